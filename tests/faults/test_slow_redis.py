"""A slow Redis is no dead worker: nobody is judged for what Redis kept waiting (B02, B17)."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, ended, story
from fleet import QUICK, Fleet
from ghostless.jobs.client import Client

pytestmark = pytest.mark.slow

SEED = 3
LEASE = float(QUICK["GHOSTLESS_LEASE"])


def test_slow_writes_and_a_slow_redis(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """Writes that pause for a moment all the time, then all commands for more than two leases just after a submit.

    With four workers and a sweep each 100 ms no task is swept, failed or started twice.
    """
    serving(workers=4)
    redis, moments = client.store.redis, random.Random(SEED)
    ids = []
    for _ in range(150):
        ids.append(client.submit("life.once", {"trace": str(trace)}).task_id)
        if moments.random() < 0.1:
            redis.execute_command("CLIENT", "PAUSE", 50, "WRITE")
    ids += [client.submit("life.once", {"trace": str(trace)}).task_id for _ in range(20)]
    redis.execute_command("CLIENT", "PAUSE", round(2500 * LEASE), "ALL")
    time.sleep(2.5 * LEASE)  # the fault itself
    for task_id in ids:
        task = ended(client, task_id, "SUCCESS")
        assert (task.attempt, task.failures, task.losses) == (1, 0, 0)
        assert story(client, task_id) == ["SUBMIT", "START", "COMPLETE"]
    assert sorted(trace.read_text().split()) == sorted(ids)
    assert_clean(client, fleet, *ids)

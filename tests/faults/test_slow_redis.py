"""A slow Redis is no dead worker: nobody is judged for what Redis kept waiting (B02, B17)."""

import random
import re
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean
from faults.sizes import ALL_PAUSED, CLAIMED
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.submission import Request
from ghostless.statemachine import Event, State
from helpers import eventually, expect

pytestmark = pytest.mark.slow

SEED = 3
TOGETHER = 20
LIFE = r"SUBMIT START (SUSPEND RESUME START )*COMPLETE"
"""The moves of a task; who is given back since another one of its batch takes long has not begun."""


def submitted(client: Client, trace: Path) -> list[str]:
    """Submit some tasks that do nothing; return their ids."""
    answers = client.submit_many([Request("life.once", {"trace": str(trace)})] * TOGETHER)
    return [answer.task_id for answer in answers]  # type: ignore[union-attr]


def test_slow_writes_and_a_slow_redis(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """Writes that pause for a moment all the time, then all commands for more than two leases just after a submit.

    With four workers and a sweep each 100 ms no task is swept or failed, and none begins twice.
    """
    serving(workers=4)
    redis, moments = client.store.redis, random.Random(SEED)
    ids: list[str] = []
    for _ in range(CLAIMED // TOGETHER):
        ids += submitted(client, trace)
        if moments.random() < 0.5:
            redis.execute_command("CLIENT", "PAUSE", 50, "WRITE")
    ids += submitted(client, trace)
    redis.execute_command("CLIENT", "PAUSE", 1000 * ALL_PAUSED, "ALL")
    time.sleep(ALL_PAUSED)  # the fault itself
    eventually(lambda: expect(client.counts()[State.SUCCESS] == len(ids)), seconds=30)
    moves, suspended = defaultdict[str, list[str]](list), set[str]()
    for _, entry in redis.xrange(client.store.keys.history):
        moves[entry["task"]].append(entry["event"])
        suspended |= {entry["message"]} if entry["event"] == Event.SUSPEND else set()
    assert [] == [told for told in map(" ".join, moves.values()) if not re.fullmatch(LIFE, told)]
    assert suspended <= {"given back, not begun"}
    assert sorted(trace.read_text().split()) == sorted(ids)
    assert_clean(client, fleet, *ids)

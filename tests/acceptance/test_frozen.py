"""Processes that stand still for longer than the lease and come back: what they still say is refused, and counted."""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, horse_of
from ghostless.jobs.client import Client
from helpers import eventually, expect

from .conftest import assert_clean, assert_gone, attempts_in, ended, owner, publish, running

pytestmark = pytest.mark.slow


def test_frozen_owners(serving: Callable[..., None], client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """A frozen worker, with or without its horse, comes back and writes nothing; its tries are counted.

    The winner's data is byte for byte what it was. A frozen horse alone loses nothing, since its worker lives.
    """
    serving(workers=3)
    end = tmp_path / "end"
    ids = [client.submit("life.freezable", {"trace": f"{tmp_path}/{n}", "end": str(end)}).task_id for n in range(3)]
    for number in range(3):
        running(tmp_path / str(number))
    owners = [owner(client, fleet, task_id) for task_id in ids]
    horses = [horse_of(owner) for owner in owners]
    frozen = [owners[0].pid, owners[1].pid, horses[1].pid, horses[2].pid]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    for number in range(2):
        fleet.worker("default", name=f"second{number}", tasks="lifecycle")
    for number in range(2):
        running(tmp_path / str(number), 3)
    for task_id in ids[:2]:
        eventually(partial(assert_all_is_told, client, task_id))
    before = [data_of(client, task_id) for task_id in ids[:2]]
    assert stale_writes(client) == 0
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: assert_counted(client))
    eventually(lambda: assert_gone(*(horse.pid for horse in horses[:2])))
    assert [data_of(client, task_id) for task_id in ids[:2]] == before
    for number, owner_of in enumerate(owners[:2]):
        eventually(partial(assert_told_once, client, str(owner_of.args[-1]), ids[number]))  # type: ignore[index]
    end.touch()
    assert [ended(client, task_id, "SUCCESS").result for task_id in ids] == ["attempt 2", "attempt 2", "attempt 1"]
    for number in range(2):
        assert attempts_in(tmp_path / str(number)) == [1, 2, 2], "the first attempt went no further"
    assert client.get(ids[2]).losses == 0
    assert_clean(client, fleet, *ids)


def test_all_that_an_old_attempt_says_is_refused(client: Client, fleet: Fleet, trace: Path, end: Path) -> None:
    """Frozen until another attempt runs, it tries each write: all are refused and counted, none leaves a byte."""
    publish(fleet)
    task_id = client.submit("life.freezable", {"trace": str(trace), "end": str(end)}).task_id
    old = fleet.spawn([sys.executable, "-m", "old_attempt", "life.freezable", str(fleet.folder)])
    eventually(lambda: expect((fleet.folder / "taken").exists()), seconds=20)
    old.send_signal(signal.SIGSTOP)
    fleet.watchdog()
    fleet.worker("default", tasks="lifecycle")
    running(trace, 2)
    eventually(lambda: assert_all_is_told(client, task_id))
    before = data_of(client, task_id)
    assert stale_writes(client) == 0
    (fleet.folder / "go").touch()
    old.send_signal(signal.SIGCONT)
    assert old.wait(timeout=20) == 0
    kinds = ("progress", "log", "checkpoint", "stage", "lease", "result", "error")
    assert json.loads((fleet.folder / "answers").read_text()) == dict.fromkeys(kinds, "stale")
    assert stale_writes(client) == len(kinds)
    assert data_of(client, task_id) == before
    end.touch()
    assert ended(client, task_id, "SUCCESS").result == "attempt 2"
    assert_clean(client, fleet, task_id)


def data_of(client: Client, task_id: str) -> dict[str, Any]:
    """Return all that Redis holds about a task, but for its lease."""
    redis, keys = client.store.redis, client.store.keys
    return {
        "task": redis.hgetall(keys.task(task_id)),
        "log": redis.lrange(keys.log(task_id), 0, -1),
        **{name: redis.get(getattr(keys, name)(task_id)) for name in ("checkpoint", "result", "error")},
        "history": client.history(task_id),
    }


def assert_all_is_told(client: Client, task_id: str) -> None:
    """Check that the last that the second attempt has to say is in Redis."""
    data = data_of(client, task_id)
    assert (data["task"].get("progress"), data["checkpoint"], data["log"][-1:]) == ("0.5", '"second"', ["second"])


def stale_writes(client: Client) -> int:
    """Return how many writes were refused as stale."""
    return client.reads.ledger()["stale_writes"]


def assert_told_once(client: Client, worker: str, task_id: str) -> None:
    """Check that the events of a worker tell that its attempt was given away."""
    told = [event.text for event in client.worker_events(worker) if event.kind == "task given away"]
    assert told == [f"attempt 1 does not hold task {task_id} any more; its work must stop"]


def assert_counted(client: Client) -> None:
    """Check that both owners that came back tried at least once."""
    assert stale_writes(client) >= 2

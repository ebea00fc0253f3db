"""Faults that were found once, and must not come back; each ends with the audit."""

import contextlib
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fleet import Fleet, horse_of
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from helpers import eventually, expect
from redis.exceptions import RedisError

from .conftest import assert_clean, assert_in_turn, begun, ended, owner, running

pytestmark = pytest.mark.slow


def test_a_frozen_worker_stops_its_handler(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path, end: Path
) -> None:
    """When only the worker is frozen, its horse ends itself before another one may start the task."""
    serving(workers=2)
    task_id = client.submit("life.busy", {"trace": str(trace), "end": str(end)}).task_id
    running(trace, 2)
    frozen = owner(client, fleet, task_id)
    frozen.send_signal(signal.SIGSTOP)
    begun(trace, 2)
    end.touch()
    ended(client, task_id, "SUCCESS")
    frozen.send_signal(signal.SIGCONT)
    assert_in_turn(trace)
    assert_clean(client, fleet, task_id)


def test_sigterm_to_the_horse_is_for_its_worker_to_handle(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path
) -> None:
    """A service manager that sends SIGTERM to the whole group hands the task back; it is no crash."""
    serving()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 100}).task_id
    running(trace, 2)
    horse = horse_of(fleet.processes[1])
    horse.terminate()
    fleet.processes[1].terminate()
    assert fleet.processes[1].wait(timeout=10) == 0
    task = ended(client, task_id, "PENDING")
    assert (task.losses, client.history(task_id)[-1].reason) == (0, "shutdown")
    assert_clean(client, fleet, task_id)


def test_a_cleaner_that_removes_the_workspace(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path
) -> None:
    """A temporary folder that was cleaned away is made again; no task pays for it."""
    serving()
    for folder in fleet.temporary.glob("ghostless-*"):
        shutil.rmtree(folder)
    task_id = client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id
    assert ended(client, task_id, "SUCCESS").attempt == 1
    assert_clean(client, fleet, task_id)


def test_flushed_scripts(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """Scripts that are flushed again and again cost nobody anything."""
    serving()
    ids = [client.submit("life.steps", {"trace": str(trace), "count": 4}).task_id for _ in range(10)]
    while client.counts()["SUCCESS"] < len(ids):
        client.store.redis.script_flush()
    for task_id in ids:
        assert ended(client, task_id, "SUCCESS").attempt == 1
    assert [process.poll() for process in fleet.processes] == [None, None]
    assert_clean(client, fleet, *ids)


def test_a_damaged_key_of_one_duty(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path, end: Path
) -> None:
    """A duty that fails for ever slows no other down: a dead worker is still found."""
    serving(workers=2)
    task_id = client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id
    running(trace, 2)
    client.store.redis.set(client.store.keys.rq_queue("bad"), "no list")
    client.store.redis.hset(client.store.keys.queues, "bad", "running")
    owner(client, fleet, task_id).kill()
    begun(trace, 2)
    end.touch()
    task = ended(client, task_id, "SUCCESS")
    assert (task.attempt, task.losses) == (2, 1)
    client.store.redis.delete(client.store.keys.rq_queue("bad"))
    assert_clean(client, fleet, task_id)


def test_types_that_redis_lost(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """After Redis was emptied, a living worker publishes its types again within a beat."""
    serving()
    client.store.redis.flushall()
    eventually(lambda: expect("life.flaky" in client.types()))
    task_id = client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id
    ended(client, task_id, "SUCCESS")
    assert_clean(client, fleet, task_id)


def test_a_horse_that_dies_at_a_full_redis(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path
) -> None:
    """A worker outlives the death of its horse while Redis is at its memory limit, and goes on afterwards."""
    serving()
    eventually(lambda: expect(client.workers()))  # one that only starts ends at a full Redis, and says so
    with connect(client.settings) as redis:
        redis.config_set("maxmemory", 1)
        horse = horse_of(fleet.processes[1])
        horse.kill()
        eventually(lambda: assert_new_horse(fleet, horse.pid))
        redis.config_set("maxmemory", 0)
    task_id = client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id
    ended(client, task_id, "SUCCESS")
    assert fleet.processes[1].poll() is None
    assert_clean(client, fleet, task_id)


def assert_new_horse(fleet: Fleet, old: int) -> None:
    """Check that the worker has another horse than before."""
    with contextlib.suppress(StopIteration, psutil.NoSuchProcess):
        assert horse_of(fleet.processes[1]).pid != old
        return
    raise AssertionError("there is no horse")


def test_cancel_after_cut_connections(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """Connections cut five times in three seconds cost nothing, a cancel is heard, and the worker listens again."""
    serving()
    listening = client.store.redis.pubsub_numsub("rq:pubsub:w0")
    assert listening == [("rq:pubsub:w0", 1)]
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 10_000}).task_id
    running(trace, 2)
    for _ in range(5):
        for kind in ("normal", "pubsub"):
            with contextlib.suppress(RedisError, OSError):
                client.store.redis.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        time.sleep(0.5)  # the fault itself
    client.cancel(task_id)
    assert ended(client, task_id, "CANCELLED").attempt == 1
    eventually(lambda: expect(client.store.redis.pubsub_numsub("rq:pubsub:w0") == listening))
    assert_clean(client, fleet, task_id)


def test_left_alarms_and_masks_hit_nobody(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path
) -> None:
    """An alarm or a signal mask that a handler left behind is not for the next task of the same horse."""
    serving()
    first = client.submit("life.litter").task_id
    second = client.submit("life.steps", {"trace": str(trace), "count": 40}).task_id
    ended(client, first, "SUCCESS")
    assert ended(client, second, "SUCCESS").attempt == 1
    assert_clean(client, fleet, first, second)

"""Watchdogs in trouble, and trouble that watchdogs must tell from death: real processes, real Redis."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, begun, ended, owner, publish, running, story
from faults.holders import beating, end_all, start_all
from faults.sizes import sized
from fleet import QUICK, Fleet, horse_of
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.submission import Request
from ghostless.statemachine import State
from helpers import eventually, expect
from redis_server import RedisServer

pytestmark = pytest.mark.slow

LEASE = float(QUICK["GHOSTLESS_LEASE"])
A_MINUTE = sized(round(4 * LEASE), 60)
"""Seconds; with the usual lease of 15 s, four leases are a minute."""

FLAKY = ["SUBMIT", "RELEASE", "START", "FAIL", "RETRY", "RELEASE", "START", "COMPLETE"]


def test_a_watchdog_that_stands_still_for_a_minute(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path, end: Path
) -> None:
    """The other one does its work meanwhile, and when it comes back nothing is done twice, by either duty."""
    serving(workers=2)
    frozen = fleet.watchdog()
    eventually(lambda: assert_swept_by(client, frozen.pid))
    lost = client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id
    running(trace, 2)
    flaky = [client.submit("life.flaky", {"trace": f"{trace}-flaky"}, delay=0.2).task_id for _ in range(10)]
    stranded = [client.submit("life.once", {"trace": f"{trace}-once"}, queue="idle").task_id for _ in range(5)]
    frozen.send_signal(signal.SIGSTOP)
    thaw_at = time.monotonic() + A_MINUTE
    client.store.redis.delete("rq:queue:idle")
    owner(client, fleet, lost).kill()
    begun(trace, 2)
    for task_id in flaky:
        ended(client, task_id, "SUCCESS")
    eventually(lambda: expect(client.store.redis.llen("rq:queue:idle") == len(stranded)))
    time.sleep(max(0.0, thaw_at - time.monotonic()))  # the fault itself
    frozen.send_signal(signal.SIGCONT)
    eventually(lambda: assert_swept_by(client, frozen.pid))
    flaky += [client.submit("life.flaky", {"trace": f"{trace}-flaky"}, delay=0.1).task_id for _ in range(10)]
    end.touch()
    for task_id in [*flaky, lost]:
        ended(client, task_id, "SUCCESS")
    assert [story(client, task_id) for task_id in flaky] == [FLAKY] * len(flaky)
    assert story(client, lost) == ["SUBMIT", "START", "TIMEOUT", "RETRY", "RELEASE", "START", "COMPLETE"]
    assert [story(client, task_id) for task_id in stranded] == [["SUBMIT", "REQUEUE"]] * len(stranded)
    assert_clean(client, fleet, lost, *flaky, *stranded)


def assert_swept_by(client: Client, pid: int) -> None:
    """Check that this watchdog swept last."""
    assert str((client.reads.watchdog() or {}).get("actor")).endswith(f"-{pid}")


def test_redis_restarts_under_two_hundred_tasks(server: RedisServer, fleet: Fleet, trace: Path) -> None:
    """It was away for longer than a lease, and two watchdogs judge nobody: all are heard of before a lease went by."""
    fleet.environment |= ROOMY
    client = Client(Settings.from_environment({**QUICK, **ROOMY, "GHOSTLESS_REDIS_URL": server.url}))
    publish(fleet)
    ids = submit_many(client, trace, 200)
    held = start_all(client, "life.once", ids)
    with beating(client, held) as lost:
        fleet.watchdog()
        fleet.watchdog()
        eventually(lambda: assert_judging(client), seconds=20)
        stopped_at = client.reads.now()
        server.stop()
        time.sleep(1.2 * client.settings.lease)  # the fault itself
        server.start()
        eventually(lambda: assert_judging(client, stopped_at), seconds=20)
        time.sleep(client.settings.lease / 2)  # in which a wrong judgement would be made
        assert client.counts()[State.PROCESSING] == len(ids)
    assert lost == []
    end_all(client, held)
    assert {tuple(story(client, task_id)) for task_id in ids} == {("SUBMIT", "START", "COMPLETE")}
    assert_clean(client, fleet, *ids)


ROOMY = {"GHOSTLESS_BEAT": "0.5", "GHOSTLESS_LEASE": "2.5"}
"""For a test that renews two hundred leases, and may be slow at it."""


def submit_many(client: Client, trace: Path, number: int) -> list[str]:
    """Submit tasks that nobody runs."""
    request = Request("life.once", {"trace": str(trace)})
    answers = [answer for _ in range(number // 100) for answer in client.submit_many([request] * 100)]
    return [answer.task_id for answer in answers]  # type: ignore[union-attr]


def assert_judging(client: Client, since: int = 0) -> None:
    """Check that a watchdog sweeps, and judges leases again, after a pause that it made later than `since` (ms)."""
    watched = client.reads.watchdog() or {}
    assert watched.get("swept_at", 0) > watched.get("judge_from", 0) > since  # type: ignore[operator]


def test_ten_workers_killed_at_once(client: Client, fleet: Fleet, tmp_path: Path, end: Path) -> None:
    """All ten tasks are found within two looks, each costs one loss, and all run anew on who is left."""
    traces = start_workers(client, fleet, tmp_path, end, 10)
    for worker in fleet.processes[1:]:
        worker.kill()
    for task_id in traces:
        ended(client, task_id, "RETRY_WAITING", "PENDING")
    end.touch()
    fleet.worker("default", name="heir", tasks="lifecycle")
    for task_id, path in traces.items():
        task = ended(client, task_id, "SUCCESS")
        assert (task.attempt, task.losses) == (2, 1)
        assert story(client, task_id) == ["SUBMIT", "START", "TIMEOUT", "RETRY", "RELEASE", "START", "COMPLETE"]
        assert path.exists()
    assert_clean(client, fleet, *traces)


def start_workers(client: Client, fleet: Fleet, folder: Path, end: Path, number: int) -> dict[str, Path]:
    """Start a watchdog and so many workers, each with a task that runs; return the tasks with their traces."""
    publish(fleet)
    fleet.processes.clear()  # of the command that published
    fleet.watchdog()
    traces = {
        client.submit("life.until", {"trace": str(folder / str(index)), "end": str(end)}).task_id: folder / str(index)
        for index in range(number)
    }
    for index in range(number):
        fleet.worker("default", name=f"w{index}", tasks="lifecycle")
    for path in traces.values():
        running(path, 2)
    return traces


SLOW = {"GHOSTLESS_BEAT": "2", "GHOSTLESS_LEASE": "4.5", "GHOSTLESS_SWEEP": "0.1"}


def test_most_of_a_fleet_silent_and_back(client: Client, fleet: Fleet, tmp_path: Path, end: Path) -> None:
    """Four of five stand still until the watchdog has looked once: who is heard of before it looks again loses nothing.

    The tasks of those that stay away are taken from them at the second look, and end on the one that lives.
    """
    fleet.environment |= SLOW
    traces = start_workers(client, fleet, tmp_path, end, 5)
    holders = {task_id: owner(client, fleet, task_id) for task_id in list(traces)[:4]}
    pids = {task_id: (worker.pid, horse_of(worker).pid) for task_id, worker in holders.items()}
    back, away = list(pids)[:2], list(pids)[2:]
    send(signal.SIGSTOP, pids.values())
    for task_id in pids:
        eventually(partial(assert_doubted, client, task_id))
    send(signal.SIGCONT, [pids[task_id] for task_id in back])
    for task_id in away:
        ended(client, task_id, "RETRY_WAITING", "PENDING", "PROCESSING")
        eventually(partial(assert_lost, client, task_id))
    send(signal.SIGCONT, [pids[task_id] for task_id in away])
    end.touch()
    for task_id in traces:
        ended(client, task_id, "SUCCESS")
    assert {task_id: client.get(task_id).losses for task_id in pids} == dict.fromkeys(back, 0) | dict.fromkeys(away, 1)
    for task_id in back:
        assert "TIMEOUT" not in story(client, task_id), "nobody who came back was judged"
    assert_clean(client, fleet, *traces)


def send(number: signal.Signals, groups: Iterable[Iterable[int]]) -> None:
    """Send a signal to all of these processes that are still there."""
    for group in groups:
        for pid in group:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def assert_doubted(client: Client, task_id: str) -> None:
    """Check that the watchdog has looked at a task, and left it for a second look."""
    assert client.store.redis.hget(client.store.keys.task(task_id), "second_look_at")


def assert_lost(client: Client, task_id: str) -> None:
    """Check that the watchdog took a task away."""
    assert client.get(task_id).losses == 1

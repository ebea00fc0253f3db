"""Whole lives of tasks with real workers, watchdogs and Redis; each ends with the audit."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fleet import Fleet, horse_of
from ghostless.jobs.client import Client
from helpers import eventually, is_running
from redis_server import RedisServer

from .conftest import assert_clean, ended, story

pytestmark = pytest.mark.slow


def running(trace: Path, least: int = 1) -> list[str]:
    """Return what the handlers noted, once there are at least so many notes."""

    def check() -> list[str]:
        lines = trace.read_text().splitlines() if trace.exists() else []
        assert len(lines) >= least
        return lines

    return eventually(check, seconds=25)


def attempts_in(trace: Path) -> list[int]:
    """Return the attempt of each note, in order."""
    return [int(line.split()[0]) for line in trace.read_text().splitlines()]


def test_success(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """A task that returns is SUCCESS with its result, and its story is three moves long."""
    serving()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 3}).task_id
    task = ended(client, task_id, "SUCCESS")
    assert task.result == {"first": 0, "count": 3}
    assert (task.progress, task.message) == (1.0, "step 3 of 3")
    assert story(client, task_id) == ["SUBMIT", "START", "COMPLETE"]
    assert_clean(client, fleet, task_id)


def test_exception(serving: Callable[..., None], client: Client, fleet: Fleet) -> None:
    """A task that always raises uses its retries and is FAILED, with the traceback of its own code."""
    serving()
    task_id = client.submit("life.doomed").task_id
    task = ended(client, task_id, "FAILED")
    assert story(client, task_id) == ["SUBMIT", "START", "FAIL", "RETRY", "RELEASE", "START", "FAIL"]
    assert (task.failures, task.losses, task.timeouts, task.reason) == (2, 0, 0, "exception")
    assert task.error
    assert "ValueError: no hope" in task.error
    assert "lifecycle.py" in task.error
    assert_clean(client, fleet, task_id)


def test_retry_then_success(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """A task that fails once is retried after its backoff and ends in SUCCESS; each attempt ran once."""
    serving()
    task_id = client.submit("life.flaky", {"trace": str(trace)}).task_id
    assert ended(client, task_id, "SUCCESS").result == {"attempt": 2}
    assert attempts_in(trace) == [1, 2]
    assert story(client, task_id) == ["SUBMIT", "START", "FAIL", "RETRY", "RELEASE", "START", "COMPLETE"]
    assert client.get(task_id).error is None
    assert_clean(client, fleet, task_id)


@pytest.mark.parametrize(
    ("how", "ending"),
    [("spin", "stopped by an exception"), ("stubborn", "killed with SIGKILL"), ("native", "killed with SIGKILL")],
)
def test_timeout(fleet: Fleet, client: Client, how: str, ending: str) -> None:
    """A handler that runs too long is stopped, in pure Python, in a greedy except, and in a loop of C."""
    fleet.watchdog()
    worker = fleet.worker("default", tasks="handlers")
    task_id = eventually(lambda: submit_when_known(client, "test.hang", {"how": how}, timeout=1.0), seconds=20)
    first = ended(client, task_id, "RETRY_WAITING")
    entry = next(entry for entry in client.history(task_id) if entry.event == "TIMEOUT")
    assert (entry.reason, first.timeouts) == ("deadline", 1)
    assert ending in entry.message
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    eventually(lambda: assert_no_hog(worker.pid))
    assert_clean(client, fleet, task_id)


def submit_when_known(client: Client, task_type: str, params: dict[str, object], **wishes: object) -> str:
    """Submit once a worker published the type."""
    assert task_type in client.types()
    return client.submit(task_type, params, **wishes).task_id


def assert_no_hog(worker_pid: int) -> None:
    """Check that the worker's horse does nothing: no handler runs on after its attempt ended."""
    for child in psutil.Process(worker_pid).children(recursive=True):
        assert child.cpu_percent(interval=0.2) < 50


def test_cancel_cooperative(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """A running task that reports is CANCELLED at once when asked, and its horse lives on for the next task."""
    serving()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 10_000}).task_id
    running(trace, 2)
    horse = horse_of(fleet.processes[1]).pid
    asked_at = time.monotonic()
    assert client.cancel(task_id).state == "CANCELLING"
    ended(client, task_id, "CANCELLED")
    assert time.monotonic() - asked_at < 5, "a cancel is a matter of a beat at most"
    assert story(client, task_id) == ["SUBMIT", "START", "CANCEL", "STOPPED"]
    assert "cancelled: stopped " in client.history(task_id)[-1].message
    following = client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id
    ended(client, following, "SUCCESS")
    assert is_running(horse), "a cooperative stop keeps the horse warm"
    assert_clean(client, fleet, task_id, following)


def test_cancel_uncooperative(fleet: Fleet, client: Client) -> None:
    """A handler that ignores everything is killed after the grace, and another task runs after it."""
    fleet.watchdog()
    fleet.worker("default", tasks="handlers")
    task_id = eventually(lambda: submit_when_known(client, "test.hang", {"how": "native"}), seconds=20)
    eventually(lambda: assert_state(client, task_id, "PROCESSING"))
    eventually(lambda: assert_logged(client, task_id, "started"))
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    assert "killed with SIGKILL" in client.history(task_id)[-1].message
    following = client.submit("test.echo", {"value": 7}).task_id
    assert ended(client, following, "SUCCESS").result == 7
    assert_clean(client, fleet, task_id, following)


def assert_state(client: Client, task_id: str, state: str) -> None:
    """Check the state of a task."""
    assert client.get(task_id).state == state


def assert_logged(client: Client, task_id: str, line: str) -> None:
    """Check that a task logged a line."""
    assert line in client.reads.log(task_id)


def test_pause_and_resume(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """A paused task holds no worker, and goes on from its checkpoint: no step is done twice, none is left out."""
    serving()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 40}).task_id
    running(trace, 3)
    assert client.pause(task_id).state == "PAUSING"
    paused = ended(client, task_id, "PAUSED")
    done = len(running(trace))
    assert paused.worker_id is None
    assert client.reads.checkpoint(task_id) == done
    client.resume(task_id)
    assert ended(client, task_id, "SUCCESS").result == {"first": done, "count": 40}
    steps = [line.split()[1] for line in running(trace)]
    assert steps == [f"step-{number}" for number in range(40)]
    assert story(client, task_id) == ["SUBMIT", "START", "PAUSE", "SUSPEND", "RESUME", "START", "COMPLETE"]
    assert_clean(client, fleet, task_id)


def test_horse_killed(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """A handler whose process is killed is `crashed` with the signal, counted as a loss, and tried again."""
    serving()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 40}).task_id
    running(trace, 3)
    horse_of(fleet.processes[1]).kill()
    task = ended(client, task_id, "SUCCESS")
    crash = next(entry for entry in client.history(task_id) if entry.event == "FAIL")
    assert crash.reason == "crashed"
    assert "signal 9 (SIGKILL" in crash.message
    assert (task.losses, task.failures) == (1, 0)
    assert_clean(client, fleet, task_id)


def test_poison(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """A task that always kills its process is started max_losses + 1 times, and then FAILED as crashed."""
    serving()
    task_id = client.submit("life.fatal", {"trace": str(trace)}).task_id
    assert ended(client, task_id, "FAILED").reason == "crashed"
    assert attempts_in(trace) == [1, 2]
    assert_clean(client, fleet, task_id)


def test_worker_killed(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """A worker killed with SIGKILL takes its horse with it; its lease ends, and another worker goes on."""
    serving(workers=2)
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 40}).task_id
    running(trace, 3)
    victim = fleet.processes[1 + int((client.get(task_id).worker_id or "w0")[1:])]
    horse = horse_of(victim).pid
    victim.kill()
    eventually(lambda: assert_gone(horse), seconds=2)
    task = ended(client, task_id, "SUCCESS")
    lost = next(entry for entry in client.history(task_id) if entry.event == "TIMEOUT")
    assert (lost.reason, task.losses) == ("heartbeat_lost", 1)
    steps = [line.split()[1] for line in running(trace)]
    assert {f"step-{number}" for number in range(40)} == set(steps)
    assert_clean(client, fleet, task_id)


def assert_gone(pid: int) -> None:
    """Check that a process has ended."""
    assert not is_running(pid)


def test_zombie(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """A worker that was frozen longer than its lease writes nothing when it comes back, and goes on with others."""
    serving(workers=2)
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 30}).task_id
    running(trace, 3)
    frozen = fleet.processes[1 + int((client.get(task_id).worker_id or "w0")[1:])]
    horse = horse_of(frozen)
    horse.suspend()
    frozen.send_signal(signal.SIGSTOP)
    won = ended(client, task_id, "SUCCESS")
    horse.resume()
    frozen.send_signal(signal.SIGCONT)
    eventually(lambda: assert_gone(horse.pid))
    assert client.get(task_id) == won
    assert_clean(client, fleet, task_id)


def test_drain(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """SIGTERM gives the task back to the head of its queue with its last checkpoint, and uses up no budget."""
    serving()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 40}).task_id
    running(trace, 3)
    fleet.processes[1].terminate()
    assert fleet.processes[1].wait(timeout=10) == 0
    back = ended(client, task_id, "PENDING")
    assert (back.failures, back.losses, back.timeouts) == (0, 0, 0)
    assert client.history(task_id)[-1].reason == "shutdown"
    fleet.worker("default", name="w9", tasks="lifecycle")
    ended(client, task_id, "SUCCESS")
    assert [line.split()[1] for line in running(trace)] == [f"step-{number}" for number in range(40)]
    assert_clean(client, fleet, task_id)


def test_redis_restart(
    serving: Callable[..., None], client: Client, fleet: Fleet, server: RedisServer, trace: Path
) -> None:
    """A restart of Redis in the middle costs no attempt: the handler goes on, and its result is stored."""
    serving()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 60}).task_id
    running(trace, 3)
    server.restart()
    task = ended(client, task_id, "SUCCESS")
    assert (task.attempt, task.losses) == (1, 0)
    following = client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id
    ended(client, following, "SUCCESS")
    assert_clean(client, fleet, task_id, following)


def test_redis_away_longer_than_the_lease(
    serving: Callable[..., None], client: Client, fleet: Fleet, server: RedisServer, trace: Path
) -> None:
    """A worker without Redis stops its handler before the lease is over; attempts never overlap."""
    serving(workers=2)
    task_id = client.submit("life.busy", {"trace": str(trace), "seconds": 4.0}).task_id
    running(trace, 3)
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(2.5)  # the fault itself: longer than the lease of 1.5 s
    notes = trace.read_text().splitlines()
    assert time.time() - float(notes[-1].split()[3]) > 0.5, "the handler was stopped while Redis was away"
    os.kill(server.pid, signal.SIGCONT)
    ended(client, task_id, "SUCCESS")
    attempts = attempts_in(trace)
    assert attempts == sorted(attempts), "an earlier attempt ran on beside a later one"
    assert_clean(client, fleet, task_id)


@pytest.mark.parametrize(("how", "ending"), [("sleep", "stopped by an exception"), ("stubborn", "killed with SIGKILL")])
def test_children_of_a_cancelled_handler(fleet: Fleet, client: Client, how: str, ending: str) -> None:
    """What a cancelled handler started is gone with it, children of children and those with their own session too."""
    fleet.watchdog()
    fleet.worker("default", tasks="handlers")
    task_id = eventually(lambda: submit_when_known(client, "test.children", {"how": how}), seconds=20)
    pids = eventually(lambda: logged_pids(client, task_id))
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    assert ending in client.history(task_id)[-1].message
    horse, *started = pids
    assert len(started) == 3
    for pid in started:
        eventually(lambda pid=pid: assert_gone(pid))
    assert is_running(horse) == (how == "sleep")
    assert_clean(client, fleet, task_id)


def logged_pids(client: Client, task_id: str) -> list[int]:
    """Return the pids that the handler logged."""
    lines = [line for line in client.reads.log(task_id) if line[0].isdigit()]
    assert lines
    return [int(part) for part in lines[0].split()]

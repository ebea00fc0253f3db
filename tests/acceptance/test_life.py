"""Whole lives of tasks with real workers, watchdogs and Redis; each ends with the audit."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet, horse_of
from ghostless.jobs.client import Client
from helpers import eventually

from .conftest import (
    assert_clean,
    assert_gone,
    assert_in_turn,
    attempts_in,
    begun,
    ended,
    entry_of,
    owner,
    running,
    story,
    submit_when_known,
)

pytestmark = pytest.mark.slow


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
    assert attempts_in(trace) == fleet.effects()[task_id] == [1, 2]
    assert story(client, task_id) == ["SUBMIT", "START", "FAIL", "RETRY", "RELEASE", "START", "COMPLETE"]
    assert client.get(task_id).error is None
    assert_clean(client, fleet, task_id)


def test_timeout(fleet: Fleet, client: Client) -> None:
    """A handler in pure Python that runs too long is stopped by an exception, and does not run on.

    Its process, whose main thread runs the handlers, is free for the next task.
    """
    fleet.watchdog()
    worker = fleet.worker("default", tasks="handlers")
    task_id = submit_when_known(client, "test.hang", {"how": "spin"}, timeout=1.0)
    first = ended(client, task_id, "RETRY_WAITING")
    horse = horse_of(worker).pid
    entry = entry_of(client, task_id, "TIMEOUT")
    assert (entry.reason, first.timeouts) == ("deadline", 1)
    assert "stopped by an exception" in entry.message
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    following = client.submit("test.process").task_id
    result = ended(client, following, "SUCCESS").result
    assert (result["pid"], result["thread"]) == (horse, True)
    assert_clean(client, fleet, task_id, following)


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
    """A task that kills its process is `crashed` with the signal, and tried again until its losses are used up."""
    serving()
    poison = client.submit("life.poison", {"trace": str(trace)}).task_id
    unlucky = client.submit("life.fatal", {"trace": f"{trace}-unlucky", "deaths": 1}).task_id
    lost = ended(client, poison, "FAILED")
    assert (lost.reason, lost.losses) == ("crashed", 4)
    assert attempts_in(trace) == [1, 2, 3, 4], "exactly four starts with three losses allowed (B39)"
    task = ended(client, unlucky, "SUCCESS")
    assert (task.losses, task.failures) == (1, 0)
    crash = entry_of(client, unlucky, "FAIL")
    assert crash.reason == "crashed"
    assert crash.actor == "worker:w0", "who tells it at once, and waits for no lease"
    assert "signal 9 (SIGKILL" in crash.message
    assert_clean(client, fleet, poison, unlucky)


def test_worker_killed(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path, end: Path) -> None:
    """A worker killed with SIGKILL takes its horse with it; its lease ends, and another worker goes on."""
    serving(workers=2)
    task_id = client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id
    running(trace, 3)
    victim = owner(client, fleet, task_id)
    horse = horse_of(victim).pid
    victim.kill()
    eventually(lambda: assert_gone(horse), seconds=2)
    begun(trace, 2)
    end.touch()
    task = ended(client, task_id, "SUCCESS")
    assert (entry_of(client, task_id, "TIMEOUT").reason, task.losses) == ("heartbeat_lost", 1)
    assert_in_turn(trace)
    steps = [(attempt, int(step.removeprefix("step-"))) for attempt, step, *_ in map(str.split, running(trace))]
    assert set(range(1, task.result + 1)) <= {step for _, step in steps}
    # What the first one did after the last checkpoint that was sent may be more than the second one had to do.
    assert max(step for attempt, step in steps if attempt == "2") == task.result
    assert_clean(client, fleet, task_id)


def test_a_spoilt_process_is_replaced(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """A handler can ask for it, and an exception that tells of a lost GPU does; the next task has a fresh one."""
    serving()
    ids = [
        client.submit("life.spoils", {"trace": str(trace), "how": how}).task_id
        for how in ("fine", "asked", "lost", "fine", "fine")
    ]
    states = [ended(client, task_id, "SUCCESS", "FAILED").state for task_id in ids]
    assert states == ["SUCCESS", "SUCCESS", "FAILED", "SUCCESS", "SUCCESS"]
    first, second, third, fourth, fifth = (line.split()[2] for line in running(trace, 5))
    assert first == second != third != fourth == fifth
    told = [event.text for event in client.worker_events("w0") if event.kind == "horse replaced"]
    assert told == [
        f"process {third}: it may have lost its GPU: RuntimeError: CUDA error: an illegal memory access",
        f"process {second}: the handler asked for that: a library is in a bad state",
    ]
    assert_clean(client, fleet, *ids)


def test_a_secret_reaches_the_handler_and_nobody_else(
    serving: Callable[..., None], client: Client, fleet: Fleet
) -> None:
    """The handler gets it; the task, its history, its log, its failure and the processes' own logs show a mask."""
    serving()
    params = {"api_key": "s3cret-s3cret", "site": "example"}
    good = client.submit("life.secret", params).task_id
    bad = client.submit("life.secret", params | {"fails": True}).task_id
    assert {"length": 13, "site": "example"} == ended(client, good, "SUCCESS").result
    failed = ended(client, bad, "FAILED")
    assert {"api_key": "***", "site": "example", "fails": True} == failed.params
    assert "refused SecretStr('**********')" in (failed.error or "")
    for task_id in (good, bad):
        shown = [client.get(task_id).to_dict(), client.history(task_id), client.log(task_id), client.explain(task_id)]
        assert "with" in str(shown[2])
        assert "s3cret" not in str(shown)
    assert "s3cret" not in fleet.logs()
    assert_clean(client, fleet, good, bad)

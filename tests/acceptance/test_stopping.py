"""How running handlers are stopped, by people and by clocks, with real workers; each ends with the audit."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fleet import Fleet, horse_of
from ghostless.jobs.client import Client
from ghostless.jobs.fleet import LOADING
from helpers import eventually, expect, is_running

from .conftest import (
    assert_clean,
    assert_gone,
    ended,
    entry_of,
    logged_pids,
    owner,
    running,
    seconds_between,
    story,
)

pytestmark = pytest.mark.slow

DEFAULT_LIKE = {"GHOSTLESS_BEAT": "5", "GHOSTLESS_LEASE": "15", "GHOSTLESS_GRACE": "5", "GHOSTLESS_SWEEP": "1"}
GRACE = 5.0


@pytest.fixture
def halting(fleet: Fleet, client: Client) -> Callable[..., None]:
    """Start a watchdog and workers that serve `halting` and more, and return when they published their types."""

    def start(*modules: str, workers: int = 1) -> None:
        fleet.watchdog()
        for number in range(workers):
            fleet.worker("default", name=f"w{number}", tasks=",".join(("halting", *modules)))
        eventually(lambda: assert_ready(client, workers), seconds=20)

    return start


def assert_ready(client: Client, workers: int) -> None:
    """Check that so many workers have loaded, and their types are known."""
    assert "halt.silent" in client.types()
    assert len([member for member in client.workers() if member.state != LOADING]) >= workers


# People


def test_a_cancel_takes_a_moment_and_keeps_the_horse(
    fleet: Fleet, serving: Callable[..., None], client: Client, trace: Path
) -> None:
    """On the default clocks a cancel takes no beat and no grace, and the same horse does the next task."""
    fleet.environment |= DEFAULT_LIKE
    serving()
    horses: set[str] = set()
    taken: list[float] = []
    for number in range(3):
        task_id = client.submit("life.steps", {"trace": str(trace), "count": 10_000}).task_id
        horses.add(running(trace, 3 * (number + 1))[-1].split()[2])
        assert client.cancel(task_id).state == "CANCELLING"
        ended(client, task_id, "CANCELLED")
        assert story(client, task_id) == ["SUBMIT", "START", "CANCEL", "STOPPED"]
        taken.append(seconds_between(client, task_id, "CANCEL", "STOPPED"))
        trace.write_text("\n" * 3 * (number + 1))
    assert min(taken) < 1, "the middle of a second is common"
    assert max(taken) < GRACE / 2
    assert len(horses) == 1
    assert_clean(client, fleet)


ENDINGS = {
    "sleep": "cancelled: stopped by an exception raised in it after N s",
    "stubborn": "cancelled: killed with SIGKILL after N s",
    "native": "cancelled: killed with SIGKILL after N s",
}


def test_what_a_handler_started_ends_with_it(halting: Callable[..., None], client: Client, fleet: Fleet) -> None:
    """Children, their children and those with a session of their own, however the handler ended; no zombie stays.

    A handler that must be killed, as a loop of C, is so after the grace and hardly more. The next task runs.
    """
    halting("handlers", "lifecycle")
    returned = client.submit("life.litter").task_id
    left = ended(client, returned, "SUCCESS").result
    assert len(left) == 3
    assert_gone(*left)
    ids = {how: client.submit("test.children", {"how": how}).task_id for how in ENDINGS}
    for how, task_id in ids.items():
        horse, *started = logged_pids(client, task_id)
        client.cancel(task_id)
        ended(client, task_id, "CANCELLED")
        assert without_seconds(entry_of(client, task_id, "STOPPED").message) == ENDINGS[how]
        assert len(started) == 3
        eventually(lambda started=started: assert_gone(*started))
        assert is_running(horse) == (how == "sleep")
    told = re.search(r"after (\d+\.\d) s", entry_of(client, ids["native"], "STOPPED").message)
    assert told
    assert 0.5 <= float(told[1]) < 0.5 + 1, "by the worker's own count, in seconds"
    late = client.submit("test.children", timeout=1).task_id
    _, *started = logged_pids(client, late)
    eventually(lambda: expect(client.get(late).timeouts == 1))
    assert_gone(*started)
    client.cancel(late)
    ended(client, late, "CANCELLED")
    following = client.submit("test.echo", {"value": 7}).task_id
    assert ended(client, following, "SUCCESS").result == 7
    family = psutil.Process(fleet.processes[1].pid).children(recursive=True)
    assert [process for process in family if process.status() == psutil.STATUS_ZOMBIE] == []
    assert_clean(client, fleet, returned, *ids.values(), late, following)


def test_the_history_says_how_a_handler_stopped(halting: Callable[..., None], client: Client, fleet: Fleet) -> None:
    """By itself at its next call, by the exception raised in it, or by SIGKILL, and after how many seconds."""
    halting("handlers")
    told: list[str] = []
    ids = [client.submit("halt.saving").task_id]
    ids += [client.submit("test.hang", {"how": how}).task_id for how in ("spin", "stubborn", "swallow")]
    for task_id in ids:
        begun = "0" if task_id == ids[0] else "started"
        eventually(lambda task_id=task_id, begun=begun: assert_begun(client, task_id, begun), seconds=20)
        (client.pause if task_id == ids[0] else client.cancel)(task_id)
        ended(client, task_id, "PAUSED", "CANCELLED")
        told.append(client.history(task_id)[-1].message)
    expected = [
        "paused: stopped when asked after N s",
        "cancelled: stopped by an exception raised in it after N s",
        "cancelled: killed with SIGKILL after N s",
        "returned N s after it was asked to stop",
    ]
    assert [without_seconds(message) for message in told] == expected
    assert_clean(client, fleet, *ids)


def without_seconds(message: str) -> str:
    """Return a message with N for how long it took, which must be there."""
    return re.sub(r"\b\d+\.\d s\b", "N s", message)


def assert_begun(client: Client, task_id: str, sign: str) -> None:
    """Check that a handler runs: it logged, or saved a checkpoint."""
    assert sign in client.reads.log(task_id) or client.reads.checkpoint(task_id) is not None


def test_a_hint_stops_nobody_and_its_loss_costs_a_beat(
    fleet: Fleet, serving: Callable[..., None], client: Client, trace: Path
) -> None:
    """What counts is the state in Redis.

    A late hint, for another task or an earlier attempt, only makes the worker look at it; when nobody hears the hint
    of a cancel, the next beat brings it.
    """
    fleet.environment |= {"GHOSTLESS_BEAT": "1", "GHOSTLESS_LEASE": "5"}
    serving()
    cancelled = client.submit("life.steps", {"trace": str(trace), "count": 10_000}).task_id
    running(trace, 2)
    with client.store.redis.pipeline(transaction=False) as pipeline:
        pipeline.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        pipeline.execute()
    client.cancel(cancelled)
    ended(client, cancelled, "CANCELLED")
    assert seconds_between(client, cancelled, "CANCEL", "STOPPED") < 2, "not when the lease ends"
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 30}).task_id
    running(trace, len(running(trace)) + 1)
    for hinted, attempt in [(cancelled, 1), (task_id, 0), (task_id, 1), (task_id, 2)] * 5:
        eventually(lambda hinted=hinted, attempt=attempt: assert_heard(client, hinted, attempt))
    task = ended(client, task_id, "SUCCESS")
    assert (task.attempt, story(client, task_id)) == (1, ["SUBMIT", "START", "COMPLETE"])
    assert_clean(client, fleet, cancelled, task_id)


def assert_heard(client: Client, task_id: str, attempt: int) -> None:
    """Send a hint, and check that the worker got it."""
    hint = json.dumps({"command": "ghostless", "task_id": task_id, "attempt": attempt})
    assert client.store.redis.publish(client.store.keys.rq_commands("w0"), hint) == 1


def test_a_large_checkpoint_goes_to_another_worker(
    halting: Callable[..., None], client: Client, fleet: Fleet, trace: Path
) -> None:
    """A mebibyte is kept over a pause; more is refused in the handler, and what was saved before stays."""
    halting(workers=2)
    task_id = client.submit("halt.saves", {"trace": str(trace)}).task_id
    (refused,) = running(trace)
    assert refused.startswith("checkpoint is 1048577 bytes, at most 1048576 are kept")
    first = owner(client, fleet, task_id)
    client.pause(task_id)
    ended(client, task_id, "PAUSED")
    assert "anew" not in client.history(task_id)[-1].message
    first.terminate()
    first.wait(timeout=15)
    client.resume(task_id)
    assert ended(client, task_id, "SUCCESS").result == {"attempt": 2, "found": 1024 * 1024 - 2}
    workers = {entry.actor for entry in client.history(task_id) if entry.event == "START"}
    assert workers == {"worker:w0", "worker:w1"}
    assert_clean(client, fleet, task_id)


def test_a_handler_that_saves_nothing_pauses_as_if_cancelled(
    fleet: Fleet, halting: Callable[..., None], client: Client
) -> None:
    """It is stopped at once, not after the grace, and the history says that it starts anew."""
    fleet.environment |= DEFAULT_LIKE
    halting("handlers")
    task_id = client.submit("test.hang", {"how": "sleep"}).task_id
    eventually(lambda: assert_begun(client, task_id, "started"))
    client.pause(task_id)
    ended(client, task_id, "PAUSED")
    assert seconds_between(client, task_id, "PAUSE", "SUSPEND") < GRACE / 2
    told = client.history(task_id)[-1].message
    assert told.startswith("paused: stopped by an exception raised in it after ")
    assert told.endswith(" s; it saved no checkpoint and starts anew")
    assert_clean(client, fleet, task_id)


def test_clean_up_hooks_run(halting: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """`finally` runs when a handler is stopped, `teardown` when its worker ends orderly."""
    halting()
    task_id = client.submit("halt.tidy", {"trace": str(trace)}).task_id
    assert running(trace) == ["begun"]
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    assert running(trace) == ["begun", "cleaned up"]
    assert "torn down" not in fleet.logs()
    fleet.processes[1].terminate()
    assert fleet.processes[1].wait(timeout=15) == 0
    assert "torn down m" in fleet.logs()
    assert_clean(client, fleet, task_id)


# Clocks


def test_a_silent_handler_is_stopped(halting: Callable[..., None], client: Client, fleet: Fleet) -> None:
    """No progress, checkpoint or stage for the stall timeout is a timeout; lines and a slow setup do not matter."""
    halting("handlers", workers=2)
    stalled = client.submit("halt.silent").task_id
    asked = client.submit("test.hang", {"how": "lock"}, stall_timeout=1).task_id
    busy = [client.submit("halt.reports", {"seconds": 2.5}).task_id]
    busy += [client.submit(name).task_id for name in ("halt.stages", "halt.slow_setup")]
    assert ended(client, stalled, "TIMEOUT_CANCELLED").timeouts == 1
    assert ended(client, asked, "RETRY_WAITING").timeouts == 1
    for task_id in (stalled, asked):
        entry = entry_of(client, task_id, "TIMEOUT")
        assert entry.reason == "stalled"
        assert entry.message.startswith("no progress for 1 s: stopped ")
        assert 1 <= seconds_between(client, task_id, "START", "TIMEOUT") < 5
    client.cancel(asked)
    for task_id in busy:
        assert ended(client, task_id, "SUCCESS").attempt == 1
    assert_clean(client, fleet, stalled, asked, *busy)


def test_who_is_asked_to_stop_is_told_as_such(halting: Callable[..., None], client: Client, fleet: Fleet) -> None:
    """`explain` knows it at once, long before the next beat, and for that attempt alone."""
    fleet.environment |= {"GHOSTLESS_BEAT": "5", "GHOSTLESS_LEASE": "15", "GHOSTLESS_GRACE": "2"}
    halting("handlers")
    stalled = client.submit("test.hang", {"how": "stubborn"}, stall_timeout=1).task_id
    eventually(lambda: expect("to stop: no progress for 1 s" in client.explain(stalled).why), seconds=20)
    told = client.explain(stalled)
    assert 0 < (told.next_at or 0) - client.reads.now() <= 2_000
    ended(client, stalled, "RETRY_WAITING")
    client.cancel(stalled)
    following = client.submit("halt.reports", {"seconds": 2}).task_id
    eventually(lambda: expect("the worker w0 runs attempt 1" == client.explain(following).why))
    ended(client, following, "SUCCESS")
    assert_clean(client, fleet, stalled, following)


def test_an_attempt_that_makes_progress_is_extended(halting: Callable[..., None], client: Client, fleet: Fleet) -> None:
    """Its deadline moves on by `extend_by` a time, as `timeout_at` shows, up to `max_runtime`; silence gets nothing."""
    halting(workers=2)
    endless = client.submit("halt.endless").task_id
    # Longer than a watchdog would wait for a worker that does not enforce the timeout.
    extended = client.submit("halt.extended", {"seconds": 5.0}).task_id
    silent = client.submit("halt.extended", {"seconds": 0, "silence": 60}).task_id
    eventually(lambda: assert_extended(client, extended, 3))
    task = ended(client, endless, "TIMEOUT_CANCELLED")
    entry = entry_of(client, endless, "TIMEOUT")
    assert (task.attempt, entry.reason) == (1, "deadline")
    assert entry.message.startswith("ran longer than allowed, 2.5 s: stopped ")
    assert 2.4 <= seconds_between(client, endless, "START", "TIMEOUT") < 5
    ended(client, silent, "TIMEOUT_CANCELLED")
    assert "ran longer than allowed, 1 s: " in entry_of(client, silent, "TIMEOUT").message
    assert ended(client, extended, "SUCCESS").attempt == 1
    assert_clean(client, fleet, endless, extended, silent)


def assert_extended(client: Client, task_id: str, times: int) -> None:
    """Check that the deadline shown moved on so often."""
    task = client.get(task_id)
    assert task.timeout_at
    assert task.started_at
    assert task.timeout_at - task.started_at > 1000 * times


def test_a_timeout_needs_no_signal_and_leaves_no_thread(
    halting: Callable[..., None], client: Client, fleet: Fleet, trace: Path
) -> None:
    """Nothing of a handler runs on after its timeout, whatever it did to its signals, and wherever it worked."""
    halting("handlers", workers=2)
    endings = {
        "blocked": "killed with SIGKILL after ",
        "ignored": "killed with SIGKILL after ",
        "thread": "stopped by an exception raised in it, and its process killed with the threads that it left after ",
    }
    native = client.submit("test.hang", {"how": "native"}, timeout=1).task_id
    ids = {how: client.submit("halt.deaf", {"trace": str(trace), "how": how}).task_id for how in endings}
    ended(client, native, "RETRY_WAITING")
    assert "killed with SIGKILL" in entry_of(client, native, "TIMEOUT").message
    client.cancel(native)
    for how, task_id in ids.items():
        ended(client, task_id, "TIMEOUT_CANCELLED")
        message = entry_of(client, task_id, "TIMEOUT").message
        assert message.startswith(f"ran longer than allowed, 1 s: {endings[how]}")
    ticks = running(trace)
    assert set(ticks) == set(endings)
    following = [client.submit("halt.reports", {"seconds": 0.3}).task_id for _ in range(2)]
    for task_id in following:
        ended(client, task_id, "SUCCESS")
    assert running(trace) == ticks
    assert_clean(client, fleet, native, *ids.values(), *following)


def test_a_frozen_horse_and_a_hanging_setup_end_at_their_timeout(
    halting: Callable[..., None], client: Client, fleet: Fleet
) -> None:
    """The worker's clock counts, not the horse's, and it counts from before the setup."""
    halting(workers=2)
    setup = client.submit("halt.setup_hangs").task_id
    frozen = client.submit("halt.saving", timeout=1).task_id
    eventually(lambda: assert_begun(client, frozen, "0"))
    horse = horse_of(owner(client, fleet, frozen))
    horse.send_signal(signal.SIGSTOP)
    ended(client, setup, "TIMEOUT_CANCELLED")
    ended(client, frozen, "TIMEOUT_CANCELLED")
    assert "killed with SIGKILL" in entry_of(client, frozen, "TIMEOUT").message
    assert "stopped by an exception raised in it" in entry_of(client, setup, "TIMEOUT").message
    assert not is_running(horse.pid)
    following = [client.submit("halt.reports", {"seconds": 0.1}).task_id for _ in range(4)]
    for task_id in following:
        ended(client, task_id, "SUCCESS")
    assert_clean(client, fleet, setup, frozen, *following)

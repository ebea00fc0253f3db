"""Batches without any process: how many tasks are taken at once, and what is known of each at every moment."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ghostless.jobs.batch import MOST, WINDOW, Batch, Pace
from ghostless.jobs.messages import Claimed, Ending, Held
from ghostless.jobs.model import Task
from ghostless.jobs.permits import Gate, Permits
from ghostless.jobs.settings import Settings
from ghostless.jobs.settle import Ended
from ghostless.jobs.worker import Worker
from ghostless.statemachine import Event, Policy, Reason, State

DONE = Ending(Event.COMPLETE, Reason.POLICY, text="1")
BROKEN = Ending(Event.FAIL, Reason.CRASHED)


@pytest.fixture
def permits() -> Iterator[Permits]:
    """The worker's end of a pipe."""
    made = Permits()
    yield made
    with suppress(OSError):
        made.close()


class NoHorse:
    """Takes orders, and begins as many as the test says."""

    def __init__(self, permits: Permits) -> None:
        self.permits, self.gate = permits, Gate(permits.fd)
        self.orders = list[str]()
        self.is_held = True

    def run(self, *orders: Any) -> None:
        """Take orders."""
        self.permits.give(len(orders) - 1)
        self.orders = [order.get("task_id", "first") for order in orders]

    def begin(self) -> bool:
        """Try to begin the next of those behind the first."""
        return self.gate.opens()

    def hand_out(self) -> None:
        """Hand out what is printed."""
        self.is_held = False


def claimed(size: int) -> Claimed:
    """Return tasks t0, t1 and so on that were started together."""
    tasks = [Task(f"t{number}", "demo", "q", State.PROCESSING, 1, 1, 1, Policy()) for number in range(size)]
    now = time.monotonic()
    first, *behind = [Claimed(Held(task.id, 1, "token"), task, {}, None, now) for task in tasks]
    return replace(first, followers=tuple(behind))


@pytest.fixture
def told() -> list[Ended]:
    """What a batch has told while a task went on."""
    return []


@pytest.fixture
def horse(permits: Permits) -> NoHorse:
    """A horse that does as it is told."""
    return NoHorse(permits)


def batch_of(first: Claimed, horse: NoHorse, told: list[Ended]) -> Batch:
    """Return the batch of what was claimed together."""
    return Batch(first, cast(Any, horse), lambda task_id, attempt: task_id, told.extend, 12.0)


@pytest.fixture
def batch(horse: NoHorse, told: list[Ended]) -> Batch:
    """Five tasks."""
    return batch_of(claimed(5), horse, told)


def ends(ended: list[Ended]) -> list[tuple[str, Event]]:
    """Return which task ended how."""
    return [(claimed.held.task_id, ending.event) for claimed, ending in ended]


# How many


def together(pace: Pace) -> dict[str, int]:
    """Return how many of which types are taken at once."""
    return dict(pace.together())


def test_as_many_as_should_take_the_window() -> None:
    """Never more than may be; a type that nobody has run is taken alone, and so is one that takes long."""
    pace = Pace()
    assert {} == together(pace)
    for name, seconds in (("quick", WINDOW / 100), ("short", WINDOW / 4.5), ("long", WINDOW)):
        pace.note(name, seconds, goes_on=True)
    assert {"quick": MOST, "short": 4} == together(pace)


@pytest.mark.parametrize(("seconds", "goes_on"), [(1.0, True), (0.0001, False)])
def test_one_that_is_long_or_has_something_to_say_is_remembered(seconds: float, goes_on: bool) -> None:
    """At once, and forgotten only after many short ones."""
    pace = Pace()
    pace.note("demo", 0.0001, goes_on=True)
    pace.note("demo", seconds, goes_on=goes_on)
    assert {} == together(pace)
    for _ in range(10):
        pace.note("demo", 0.0001, goes_on=True)
    assert {} == together(pace)
    for _ in range(30):
        pace.note("demo", 0.0001, goes_on=True)
    assert {"demo": MOST} == together(pace)


@pytest.mark.parametrize("counts", [{"max_tasks_per_horse": 100}, {"max_horse_rss": 1 << 30}, {"jobs_left": 7}, {}])
def test_where_each_task_is_looked_at_they_are_taken_one_by_one(counts: dict[str, int]) -> None:
    """And a type whose setup did not run in this horse is, for that may take long."""
    worker = object.__new__(Worker)
    worker._jobs_left = counts.pop("jobs_left", None)
    worker.settings = Settings(**counts)  # type: ignore[arg-type]
    worker._pace = Pace()
    for name in ("demo", "other"):
        worker._pace.note(name, 0.001, goes_on=True)
    worker._stable = cast(Any, SimpleNamespace(horse=SimpleNamespace(set_up={"demo"})))
    is_counted = bool(counts) or worker._jobs_left is not None
    assert ([] if is_counted else [("demo", 10)]) == worker._together()


# Permits


def test_what_is_taken_back_never_begins(permits: Permits) -> None:
    """And what has begun cannot be taken back."""
    gate = Gate(permits.fd)
    permits.give(3)
    assert gate.opens()
    assert 2 == permits.take_back()
    assert [False, False] == [gate.opens() for _ in range(2)]
    assert 0 == permits.take_back()


def test_permits_outlive_their_horse(permits: Permits) -> None:
    """Which orders a dead one has begun is known after everything is closed."""
    permits.give(3)
    Gate(permits.fd).opens()
    permits.close()
    assert [2, 0] == [permits.take_back(), permits.take_back()]


def test_an_older_worker_gives_no_permits() -> None:
    """Then none opens."""
    assert not Gate(None).opens()


# What is known of each


def test_a_batch_that_ends_as_expected_tells_nothing_before(batch: Batch, told: list[Ended]) -> None:
    """All ends are there to be told together."""
    for member in batch:
        if member is batch.claimed:
            batch.give({})
        batch.end(DONE, goes_on=True)
    assert [(f"t{number}", Event.COMPLETE) for number in range(5)] == ends(batch.ended)
    assert ([], []) == (batch.rest, told)


def test_what_is_behind_one_that_stopped_the_horse_is_free(batch: Batch, horse: NoHorse) -> None:
    """It was not begun, and is run next."""
    batch.give({})
    batch.end(DONE, goes_on=True)
    assert horse.begin()
    batch.end(BROKEN, goes_on=False)
    assert [] == list(batch)
    assert ["t2", "t3", "t4"] == [claimed.held.task_id for claimed in batch.rest]


def test_one_goes_on_alone(batch: Batch, horse: NoHorse, told: list[Ended]) -> None:
    """What has ended is told, what was not begun is given back, the last one first; once is enough."""
    batch.give({})
    batch.end(DONE, goes_on=True)
    assert horse.begin()
    assert batch.go_alone()
    assert batch.go_alone()
    batch.close()
    back = [(f"t{number}", Event.SUSPEND) for number in (4, 3, 2)]
    assert [("t0", Event.COMPLETE), *back] == ends(told)
    batch.end(DONE, goes_on=True)
    assert [("t1", Event.COMPLETE)] == ends(batch.ended)
    assert [] == list(batch)


def test_the_horse_may_be_ahead_of_what_is_watched(batch: Batch, horse: NoHorse, told: list[Ended]) -> None:
    """What it began meanwhile is still to be watched."""
    batch.give({})
    assert horse.begin()
    assert horse.begin()
    assert batch.go_alone()
    batch.close()
    assert [("t4", Event.SUSPEND), ("t3", Event.SUSPEND)] == ends(told)
    watched = []
    for member in batch:
        watched.append(member.held.task_id)
        batch.end(DONE, goes_on=True)
    assert ["t0", "t1", "t2"] == watched


def test_the_one_that_is_watched_may_not_have_begun(batch: Batch, told: list[Ended]) -> None:
    """Then it is given back too, and nothing is watched any more."""
    batch.give({})
    batch.end(DONE, goes_on=True)
    assert not batch.go_alone()
    batch.end(None, goes_on=False)
    batch.close()
    assert [] == list(batch)
    assert ["t0", "t4", "t3", "t2", "t1"] == [task_id for task_id, _ in ends(told)]
    assert [] == batch.ended


def test_when_nothing_can_be_run_here_only_what_began_fails(batch: Batch, horse: NoHorse) -> None:
    """The horse was killed: who ran in it is ended, what had ended has, and the others go back."""
    batch.give({})
    batch.end(DONE, goes_on=True)
    assert horse.begin()
    assert horse.begin()
    horse.permits.close()
    batch.fail(BROKEN)
    assert [Event.COMPLETE, Event.FAIL, Event.FAIL, Event.SUSPEND, Event.SUSPEND] == [
        event for _, event in ends(batch.ended)
    ]
    assert [] == list(batch)


def test_what_was_never_ordered_was_not_begun(batch: Batch) -> None:
    """The first one's lease was over before the horse heard of any."""
    batch.end(Ending(Event.SUSPEND, Reason.HEARTBEAT_LOST), goes_on=False)
    assert ["t1", "t2", "t3", "t4"] == [claimed.held.task_id for claimed in batch.rest]


def test_nothing_begins_behind_another_under_an_old_lease(batch: Batch, horse: NoHorse) -> None:
    """That of the first one is renewed before it begins; the others are run later, each after its own is renewed."""
    batch.claimed = replace(batch.claimed, asked_at=time.monotonic() - batch.lease)
    batch.give({})
    assert ["first"] == horse.orders
    batch.end(DONE, goes_on=True)
    assert [] == list(batch)
    assert ["t1", "t2", "t3", "t4"] == [claimed.held.task_id for claimed in batch.rest]


def test_nobody_uses_the_permit_of_another(batch: Batch, horse: NoHorse, told: list[Ended]) -> None:
    """What was taken back may still lie in the horse: the next order goes alone, and its end tells that it does not."""
    batch.give({})
    assert batch.go_alone()
    batch.end(DONE, goes_on=True)
    batch.close()
    following = batch_of(claimed(5), horse, told)
    following.give({})
    assert (["first"], False) == (horse.orders, horse.begin())
    following.end(DONE, goes_on=True)
    assert ["t1", "t2", "t3", "t4"] == [claimed.held.task_id for claimed in following.rest]
    last = batch_of(claimed(3), horse, told)
    last.give({})
    assert (["first", "t1", "t2"], True) == (horse.orders, horse.begin())


def test_what_an_old_lease_held_back_waits_behind_nobody(horse: NoHorse, told: list[Ended]) -> None:
    """It was not ordered, and is given back with the others when the first one goes on alone."""
    old = replace(claimed(3), asked_at=time.monotonic() - 7.0)
    batch = batch_of(old, horse, told)
    batch.give({})
    assert ["first"] == horse.orders
    assert batch.go_alone()
    batch.close()
    assert ([("t2", Event.SUSPEND), ("t1", Event.SUSPEND)], []) == (ends(told), batch.rest)


def test_a_batch_tells_that_it_tells(batch: Batch) -> None:
    """What is on its way back may be all that there is to claim."""
    batch.give({})
    assert not batch.tells
    batch.go_alone()
    assert batch.tells


def test_without_a_folder_nobody_behind_has_begun(batch: Batch, horse: NoHorse, told: list[Ended]) -> None:
    """A full disk, say: the first one fails here, and the others are given back."""

    def none_left(_task_id: str, _attempt: int) -> str:
        raise OSError("no space left on device")

    batch.folder_for = none_left
    with pytest.raises(OSError, match="no space"):
        batch.give({})
    batch.fail(BROKEN)
    assert [("t0", Event.FAIL), *((f"t{number}", Event.SUSPEND) for number in (4, 3, 2, 1))] == ends(batch.ended)


def test_without_a_thread_nothing_is_forgotten(
    batch: Batch, horse: NoHorse, told: list[Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken back is told with what fails then."""

    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    batch.give({})
    with pytest.raises(RuntimeError, match="new thread"):
        batch.go_alone()
    batch.fail(BROKEN)
    assert {f"t{number}" for number in range(5)} == {task_id for task_id, _ in ends(batch.ended)}

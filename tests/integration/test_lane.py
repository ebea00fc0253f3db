"""One subscription's deliveries on a real Redis, its handler played by the test: order, pauses, and what is held."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from ghostless.jobs import lane as lanes
from ghostless.jobs.consumer import Consumer
from ghostless.jobs.errors import RedisFull
from ghostless.jobs.groups import BEGINNING, END, Groups
from ghostless.jobs.handler_process import Outcome
from ghostless.jobs.lane import Lane
from ghostless.jobs.model import Entry
from ghostless.jobs.settings import Settings
from ghostless.jobs.subscriptions import Subscription
from ghostless.statemachine import Policy, State
from helpers import eventually
from redis import Redis
from scripts.seeding import Scene, put, scene, submission

GROUP = "listener:tell"
LEASE = 2.0
NEVER = Outcome("no", "no", asked=600_000)


class PlayedProcess:
    """A handler's process of which each call ends as the test says."""

    def __init__(self) -> None:
        self.subscription = Subscription("tell", "module:tell", ("SUBMIT", "START", "COMPLETE"), 2, 5.0)
        self.is_running = True
        self.called: list[str] = []
        self.ends: Callable[[Entry], Outcome] = lambda _entry: Outcome()

    def begin(self, entry: Entry) -> None:
        """Note the call."""
        self._entry = entry
        self.called.append(f"{entry.task} {entry.event}")

    def outcome(self, seconds: float) -> Outcome:
        """End it."""
        return self.ends(self._entry)

    def kill(self) -> None:
        """End nothing."""


@pytest.fixture
def stage(redis: Redis) -> Scene:
    """A store on an empty database."""
    return scene(redis)


@pytest.fixture
def process() -> PlayedProcess:
    """The handler."""
    return PlayedProcess()


@pytest.fixture
def lane(redis: Redis, settings: Settings, process: PlayedProcess, monkeypatch: pytest.MonkeyPatch) -> Lane:
    """A lane that listens to what comes next, with short pauses."""
    monkeypatch.setattr(lanes, "PATIENCE", Policy(backoff_base=50))
    groups = Groups(redis, settings)
    groups.create(GROUP)
    quick = replace(settings, beat=0.05, lease=LEASE)
    consumer = Consumer(groups, GROUP, "one", quick.lease)
    return Lane(consumer, process, quick, threading.Event(), BEGINNING)  # type: ignore[arg-type]


def run_until(lane: Lane, check: Callable[[], bool]) -> None:
    """Let the lane go on, step by step, until something holds, also while Redis is full."""

    def step() -> None:
        with suppress(RedisFull):
            lane.step()
        assert check()

    eventually(step)


def test_no_entry_overtakes_an_earlier_one_of_its_task(stage: Scene, lane: Lane, process: PlayedProcess) -> None:
    """While one waits to be tried again, later ones of its task wait behind it, and those of others do not."""
    failures = [Outcome("no", "no", asked=300)]
    process.ends = lambda entry: failures.pop() if entry.event == "START" and failures else Outcome()
    put(stage, State.SUCCESS)
    stage.store.submit(submission("t2"))
    run_until(lane, lambda: len(process.called) == 5)
    assert ["t1 SUBMIT", "t1 START", "t2 SUBMIT", "t1 START", "t1 COMPLETE"] == process.called


def test_a_pause_that_was_asked_for_is_kept(stage: Scene, lane: Lane, process: PlayedProcess) -> None:
    """RetryLater is the least pause; others are handled meanwhile, and the wait costs no rounds without end."""
    outcomes = [Outcome("later", "later", asked=400)]
    process.ends = lambda entry: outcomes.pop() if entry.task == "t1" and outcomes else Outcome()
    stage.store.submit(submission())
    stage.store.submit(submission("t2"))
    steps: list[int] = []
    run_until(lane, lambda: steps.append(1) or len(process.called) == 3)  # type: ignore[func-returns-value]
    assert ["t1 SUBMIT", "t2 SUBMIT", "t1 SUBMIT"] == process.called
    assert len(steps) < 200


def test_what_waits_is_bounded(
    stage: Scene, lane: Lane, process: PlayedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While as much as may be held waits to be tried again, the rest stays in the history: it is the queue."""
    monkeypatch.setattr(lanes, "HELD", 3)
    process.ends = lambda _entry: Outcome("no", "no", asked=60_000)
    for number in range(5):
        stage.store.submit(submission(f"t{number}"))
    run_until(lane, lambda: len(process.called) == 3)
    for _ in range(3):
        lane.step()
    assert 3 == len(process.called)
    assert 3 == stage.redis.xpending(stage.keys.history, GROUP)["pending"]


def test_an_entry_that_fails_each_time_is_parked(stage: Scene, lane: Lane, process: PlayedProcess) -> None:
    """After its retries, with the last error."""
    process.ends = lambda _entry: Outcome("no", f"Traceback {len(process.called)}")
    stage.store.submit(submission())
    groups = Groups(stage.redis, Settings())
    run_until(lane, lambda: bool(groups.parked(GROUP)[0]))
    [parked], _ = groups.parked(GROUP)
    assert (3, "Traceback 3") == (parked.begun, parked.error)
    assert 0 == stage.redis.xpending(stage.keys.history, GROUP)["pending"]


def submit(stage: Scene, number: int) -> None:
    """Submit so many tasks, t0 and so on."""
    for each in range(number):
        stage.store.submit(submission(f"t{each}"))


def lose_group(stage: Scene) -> None:
    """Let Redis lose the group, as when it comes back from a copy made before."""
    assert stage.redis.xgroup_destroy(stage.keys.history, GROUP)


def test_a_redis_that_lost_everything(stage: Scene, lane: Lane, process: PlayedProcess) -> None:
    """It goes on after what was seen last, and what is held is forgotten with Redis."""
    process.ends = lambda entry: NEVER if entry.task == "t1" else Outcome()
    submit(stage, 2)
    run_until(lane, lambda: len(process.called) == 2)
    stage.redis.flushall()
    stage.store.submit(submission("t2"))
    run_until(lane, lambda: len(process.called) == 3)
    assert ["t0 SUBMIT", "t1 SUBMIT", "t2 SUBMIT"] == process.called


@pytest.mark.parametrize("most", [1, 4])
def test_a_group_that_is_lost_with_a_backlog(
    stage: Scene, lane: Lane, process: PlayedProcess, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """It is made anew where the listener was, and nothing that waited in the history is passed over."""
    monkeypatch.setattr(lanes, "HELD", most)
    submit(stage, 12)
    run_until(lane, lambda: len(process.called) == 3)
    lose_group(stage)
    run_until(lane, lambda: len(process.called) == 12)
    assert [f"t{number} SUBMIT" for number in range(12)] == process.called


def test_a_group_that_is_lost_while_entries_wait(stage: Scene, lane: Lane, process: PlayedProcess) -> None:
    """The oldest that is not done is where it goes on, although the end was reached."""
    submit(stage, 3)
    process.ends = lambda entry: NEVER if entry.task == "t1" else Outcome()
    run_until(lane, lambda: len(process.called) == 3)
    lose_group(stage)
    run_until(lane, lambda: len(process.called) == 5)
    assert ["t1 SUBMIT", "t2 SUBMIT"] == process.called[3:]


def test_a_group_that_is_lost_in_an_outage(stage: Scene, lane: Lane, process: PlayedProcess) -> None:
    """What was held too long to be the listener's still is not done."""
    stage.store.submit(submission())
    process.ends = lambda _entry: NEVER
    run_until(lane, lambda: len(process.called) == 1)
    time.sleep(0.9 * LEASE)  # the fault itself: no beat
    lose_group(stage)
    run_until(lane, lambda: len(process.called) == 2)


def test_a_group_that_another_listener_made_anew(
    stage: Scene, lane: Lane, process: PlayedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may begin behind what is held here, which is handled all the same."""
    stage.store.submit(submission())
    outcomes = [Outcome("later", "later", asked=500)]
    process.ends = lambda _entry: outcomes.pop() if outcomes else Outcome()
    run_until(lane, lambda: len(process.called) == 1)
    subscribe = Consumer.subscribe

    def too_late(consumer: Consumer, start: str) -> bool:
        assert subscribe(consumer, END)
        return subscribe(consumer, start)

    monkeypatch.setattr(Consumer, "subscribe", too_late)
    lose_group(stage)
    run_until(lane, lambda: len(process.called) == 2)


def test_a_group_that_is_lost_before_anything_was_heard(stage: Scene, lane: Lane, process: PlayedProcess) -> None:
    """It begins where it was asked to."""
    submit(stage, 2)
    lose_group(stage)
    run_until(lane, lambda: len(process.called) == 2)


def test_parking_in_a_full_redis_holds_nothing_up(stage: Scene, lane: Lane, process: PlayedProcess) -> None:
    """An entry that cannot be parked waits, the others have their turn, and it is parked once there is room."""
    waits = {f"t{number}": Outcome("later", "later", asked=700) for number in (1, 2)}
    process.ends = lambda entry: Outcome("no", "no") if entry.task == "t0" else waits.pop(entry.task, Outcome())
    submit(stage, 3)
    groups = Groups(stage.redis, Settings())
    stage.redis.config_set("maxmemory", 1)
    try:
        run_until(lane, lambda: all(process.called.count(f"t{number} SUBMIT") == 2 for number in (1, 2)))
        assert (3, []) == (process.called.count("t0 SUBMIT"), groups.parked(GROUP)[0])
    finally:
        stage.redis.config_set("maxmemory", 0)
    run_until(lane, lambda: bool(groups.parked(GROUP)[0]))

"""One subscription's deliveries on a real Redis, its handler played by the test: order, pauses, and what is held."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from ghostless.jobs import lane as lanes
from ghostless.jobs.consumer import Consumer
from ghostless.jobs.groups import Groups
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
    quick = replace(settings, beat=0.05)
    return Lane(Consumer(groups, GROUP, "one", quick.lease), process, quick, threading.Event())  # type: ignore[arg-type]


def run_until(lane: Lane, check: Callable[[], bool]) -> None:
    """Let the lane go on, step by step, until something holds."""

    def step() -> None:
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


def test_a_group_that_redis_lost_is_made_anew(stage: Scene, lane: Lane, process: PlayedProcess) -> None:
    """It goes on after what was seen last, and what is held is forgotten with Redis."""
    stage.store.submit(submission())
    run_until(lane, lambda: len(process.called) == 1)
    lane.step()
    stage.redis.flushall()
    stage.store.submit(submission("t2"))
    run_until(lane, lambda: len(process.called) == 2)
    assert ["t1 SUBMIT", "t2 SUBMIT"] == process.called

"""When a silent worker's task is taken away, and when it may run again: the rules of docs/faults.md, by Redis' clock.

What is due is done by the first sweep that comes then, neither earlier nor later: sweeps are counted, no time is waited
for, and a machine on which they come late finds the same.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from audit import audit
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Event, Policy
from helpers import eventually, expect
from redis import Redis
from scripts.seeding import ID, Scene, claimed, scene, submission, wish

CLOCKS = Settings(beat=0.1, lease=0.3)
SHORT = Policy(backoff_base=100, backoff_cap=100)


def ms(seconds: float) -> int:
    """Return the milliseconds."""
    return round(1000 * seconds)


@dataclass
class Rounds:
    """The sweeps of a watchdog over a task that its worker left, in ms by Redis' clock."""

    stage: Scene
    lease: float = CLOCKS.lease  # seconds, of the worker
    lease_end: int = 0
    second_look_at: int = 0
    due_at: int = 0

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.stage.store)

    def begin(self, others: int = 0) -> None:
        """Start the task, and others, each on a worker that beats once and never again, after a first sweep."""
        self.watchdog.sweep_deadlines()
        store = Store(self.stage.redis, replace(CLOCKS, lease=self.lease))
        for task_id in (ID, *(f"other{number}" for number in range(others))):
            store.submit(submission(task_id, SHORT))
            store.heartbeat(claimed(store, wish(f"w-{task_id}", "aa")).held)
        self.lease_end = self.stage.redis.pexpiretime(self.stage.keys.heartbeat(ID))

    def first_after(self, event: Event, due: Callable[[], int]) -> None:
        """Sweep until the task has moved, and check that the first sweep moved it that came when it was due."""
        previous = began = 0
        while not (at := self._time_of(event)):
            previous, began = began, self.stage.now()
            self.watchdog.sweep_deadlines()
            self._look()
            self.watchdog.release_due()
            time.sleep(0.005)
        assert previous < due() <= at

    def _look(self) -> None:
        task = self.stage.task
        self.second_look_at = int(task.get("second_look_at", self.second_look_at))
        self.due_at = int(task.get("due_at", self.due_at))

    def _time_of(self, event: Event) -> int:
        for name, moved in self.stage.redis.xrange(self.stage.keys.history):
            if (moved["task"], moved["event"]) == (ID, event):
                return int(name.partition("-")[0])
        return 0

    @property
    def judged_from(self) -> int:
        """When this worker is judged at the earliest, as nobody swept for a while before."""
        told = self.stage.redis.hget(self.stage.keys.watchdog, "judge_from")
        return int(told or 0) + ms(self.lease - CLOCKS.lease)

    def assert_released(self) -> None:
        """Check that the task is back in its queue as soon as its backoff is over, and all is well."""
        self.first_after(Event.RELEASE, lambda: self.due_at)
        assert [] == audit(self.stage.redis, self.stage.keys, [ID])


@pytest.mark.parametrize("lease", [CLOCKS.lease, CLOCKS.http_lease], ids=["worker", "worker over HTTP"])
def test_a_silent_worker_is_judged_when_its_lease_is_over(redis: Redis, lease: float) -> None:
    """By the first sweep after the end of the lease, which is four times as long over HTTP."""
    rounds = Rounds(scene(redis, CLOCKS), lease)
    rounds.begin()
    rounds.first_after(Event.TIMEOUT, lambda: max(rounds.lease_end, rounds.judged_from))
    rounds.assert_released()


def test_most_of_what_runs_is_judged_a_beat_later(redis: Redis) -> None:
    """Four of four are silent: the first sweep after the lease looks, the first one a beat after that one judges."""
    rounds = Rounds(scene(redis, CLOCKS))
    rounds.begin(others=3)
    rounds.first_after(Event.TIMEOUT, lambda: max(rounds.second_look_at, rounds.judged_from))
    assert rounds.second_look_at >= rounds.lease_end + ms(CLOCKS.beat)
    rounds.assert_released()


def test_who_died_while_nobody_swept_is_judged_a_lease_later(redis: Redis) -> None:
    """Redis, or the watchdog, was away until after the lease: the first sweep judges nobody, one a lease later does."""
    rounds = Rounds(scene(redis, CLOCKS))
    rounds.begin()
    eventually(lambda: expect(rounds.stage.now() > rounds.lease_end + ms(CLOCKS.longest_gap)))
    back_at = rounds.stage.now()
    rounds.first_after(Event.TIMEOUT, lambda: rounds.judged_from)
    assert rounds.judged_from >= back_at + ms(CLOCKS.lease)
    rounds.assert_released()

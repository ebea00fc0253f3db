"""What a worker knows of its own health: for the record that goes with its beats, and for who asks it over HTTP.

Its threads leave notes here and read those of the others; each note is one assignment.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .claims import Claims
from .launch import LOADING_LIMIT
from .messages import Claimed
from .record import GpuMemory, WorkerRecord
from .reporter import Reporter
from .settings import Settings
from .stable import Stable
from .supervisor import Shutdown

PROBLEM_LIMIT = 300
"""Characters of the reason why a horse could not be started."""

ROUND = 30.0
"""Seconds in which the claim loop of a worker without work comes round; it waits 2 s for a hint."""


@dataclass(slots=True)
class Vitals:
    """The notes of one worker. Times are of the monotonic clock.

    `gpus` is called with each beat and must return at once.
    """

    name: str
    settings: Settings
    stable: Stable
    claims: Claims
    connected_at: deque[float]  # when the last connections to Redis were made; full when there were too many
    shutdown: Shutdown
    gpus: Callable[[], Sequence[GpuMemory]] = tuple
    reporter: Reporter | None = None
    address: str | None = None  # of the health endpoint
    _started_at: float = field(default_factory=time.monotonic)
    _round_at: float = 0.0
    _horse_awaited_since: float | None = field(default_factory=time.monotonic)
    _horse_problem: str = ""
    _is_at_work: bool = False
    _claimed: Claimed | None = None
    _unwritten: Mapping[str, str] = field(default_factory=dict[str, str])  # tasks whose end cannot be written, and why

    # Notes of the claim loop

    def await_horse(self, problem: str = "") -> None:
        """Note that there is no horse to give a task to; with `problem`, that one could not be started.

        Of a traceback the last line is kept, until a horse is ready.
        """
        self._horse_problem = problem.strip().rpartition("\n")[2][:PROBLEM_LIMIT] or self._horse_problem
        self._horse_awaited_since = self._horse_awaited_since or time.monotonic()

    def come_round(self) -> None:
        """Note that the worker is about to claim, with a horse that is ready."""
        self._round_at = time.monotonic()
        self._horse_awaited_since, self._horse_problem = None, ""

    def begin(self, claimed: Claimed | None) -> None:
        """Note that the worker runs a task, or a plain job when None is given."""
        self._claimed, self._is_at_work = claimed, True

    def note_unwritten(self, task_id: str, why: str) -> None:
        """Note that the end of a task cannot be written."""
        self._unwritten = {**self._unwritten, task_id: why}

    def end(self) -> None:
        """Note that the worker has ended what it ran."""
        self._claimed, self._is_at_work, self._unwritten = None, False, {}
        self._round_at = time.monotonic()

    # What follows from them

    def record(self, beat: WorkerRecord) -> WorkerRecord:
        """Return the record of a beat with all that is known here."""
        horse, claimed, lease_age = self.stable.horse, self._claimed, self._lease_age()
        stopping, kill_at = (self.reporter and self.reporter.asked) or ("", None)
        return replace(
            beat,
            types=self.stable.served,
            set_aside=self.stable.set_aside,
            task_id=claimed.held.task_id if claimed else None,
            attempt=claimed.held.attempt if claimed else None,
            since=claimed.task.started_at if claimed else None,
            stopping=stopping,
            kill_at=_by_redis(kill_at, beat),
            unwritten=self._unwritten,
            lease_age=None if lease_age is None else round(1000 * lease_age),
            horse_pid=horse.pid if horse else None,
            horse_rss=horse.rss if horse else None,
            gpus=tuple(self.gpus()),
            health=self.address,
            loading_since=_by_redis(self._horse_awaited_since, beat),
            drain_ends_at=_by_redis(self.shutdown.stop_at, beat),
        )

    def report(self) -> dict[str, Any]:
        """Return the answer to who asks for the worker's health; spans are seconds."""
        claimed, lease_age, horse = self._claimed, self._lease_age(), self.stable.horse
        reasons = self.faults()
        return {
            "healthy": not reasons,
            "reasons": reasons,
            "worker": self.name,
            "state": self._state(),
            "task": claimed.held.task_id if claimed else None,
            "attempt": claimed.held.attempt if claimed else None,
            "redis_age": round(self._redis_age(), 3),
            "lease_age": None if lease_age is None else round(lease_age, 3),
            "horse": {"pid": horse.pid, "alive": horse.alive} if horse else None,
        }

    def faults(self) -> list[str]:
        """Return all that is wrong, in words."""
        now = time.monotonic()
        redis_age, lease_age, awaited = self._redis_age(), self._lease_age() or 0.0, self._horse_awaited_since
        is_stuck = awaited is None and not self._is_at_work and now - self._round_at > ROUND
        made = [*self.connected_at] or [now]
        is_cut_off = len(made) == self.connected_at.maxlen and now - made[0] < 2 * self.settings.beat
        found = {
            f"no successful call to Redis for {redis_age:.1f} s": redis_age > 2 * self.settings.beat,
            f"the lease was last renewed {lease_age:.1f} s ago": lease_age > 2 * self.settings.beat,
            f"connections to Redis are cut: {len(made)} new ones in {now - made[0]:.1f} s": is_cut_off,
            f"the horse cannot be started: {self._horse_problem}": bool(self._horse_problem),
            f"every task type is set aside: {', '.join(self.stable.set_aside)}": self._is_useless(),
            f"no horse is ready for {now - (awaited or now):.0f} s": now - (awaited or now) > LOADING_LIMIT,
            f"the claim loop has not come round for {now - self._round_at:.0f} s": is_stuck,
        }
        return [words for words, holds in found.items() if holds]

    def _is_useless(self) -> bool:
        return bool(self.stable.set_aside) and not self.stable.served

    def _state(self) -> str:
        if self.shutdown.requested:
            return "draining"
        if self._is_at_work:
            return "busy"
        return "idle" if self._horse_awaited_since is None else "loading"

    def _redis_age(self) -> float:
        answered_at = self.reporter.answered_at if self.reporter else 0.0
        return time.monotonic() - max(self._started_at, answered_at, self.claims.answered_at)

    def _lease_age(self) -> float | None:
        """Return the seconds since the running attempt's lease was renewed; None without one."""
        if not (self.reporter and self.reporter.task_id):
            return None
        return time.monotonic() - self.reporter.renewed_at


def _by_redis(moment: float | None, beat: WorkerRecord) -> int | None:
    """Return a moment of the monotonic clock in ms by Redis' clock, as a beat of this moment has it."""
    if moment is None or beat.beat_at is None:
        return None
    return beat.beat_at + round(1000 * (moment - time.monotonic()))

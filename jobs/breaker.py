"""A circuit breaker for the setups of task types: one that fails again and again is left alone for a while."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

FAILURES = 3
"""Failures in a row after which a type is set aside."""

FIRST_PAUSE = 300.0
"""Seconds until a type that was set aside gets one more try; doubled each time that this one fails too."""

LONGEST_PAUSE = 3600.0


@dataclass(frozen=True, slots=True)
class _Failures:
    """Failures in a row of one type."""

    number: int
    why: str
    ends_at: float  # when the type may be tried again, on the clock


class Breaker:
    """Counts the failures of each type's setup in one worker. `clock` returns seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: Mapping[str, _Failures] = {}  # replaced, never changed: other threads read it

    @property
    def set_aside(self) -> dict[str, str]:
        """The types that are not to be tried now, and why."""
        now = self._clock()
        return {name: failures.why for name, failures in self._failures.items() if now < failures.ends_at}

    def failed(self, name: str, why: str, *, at_once: bool = False) -> float:
        """Note a failure; return for how many seconds the type is set aside, 0 when it may be tried again.

        With `at_once` the first failure counts as the last one that is allowed.
        """
        before = self._failures.get(name)
        number = max(before.number + 1 if before else 1, FAILURES if at_once else 1)
        pause = _pause_after(number)
        self._failures = {**self._failures, name: _Failures(number, why, self._clock() + pause)}
        return pause

    def passed(self, name: str) -> None:
        """Forget the failures of a type whose setup ran to its end."""
        self._failures = {other: failures for other, failures in self._failures.items() if other != name}


def _pause_after(failures: int) -> float:
    if failures < FAILURES:
        return 0.0
    doublings = min(failures - FAILURES, 10)  # far beyond the longest pause, and no number too large for a float
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2**doublings)

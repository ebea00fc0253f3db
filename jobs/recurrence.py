"""When a schedule is due: cron expressions in a time zone, or a fixed interval.

Daylight saving, by the rules of Debian's cron that the cronsim library follows: a job at a fixed hour that the clocks
skip runs once, right after; one in an hour that comes twice runs once; jobs with `*` or a step in the hour or minute
follow real time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import dropwhile, islice, takewhile
from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from .errors import Fault, InvalidTask

Misfire = Literal["skip", "once", "all"]
"""What becomes of runs that nobody was there for."""

Overlap = Literal["allow", "skip"]
"""Whether a run may begin while the one before is not over."""

MISFIRES: tuple[Misfire, ...] = ("skip", "once", "all")
OVERLAPS: tuple[Overlap, ...] = ("allow", "skip")

SHORTEST_INTERVAL = 1_000
"""Milliseconds between two runs at least."""


@cache
def _zones() -> frozenset[str]:
    """Return the names of all time zones: they are looked for in hundreds of files, and a schedule is read often."""
    return frozenset(available_timezones())


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Either `cron` in a `zone`, or `every` so many ms counted from `start` (ms since 1970)."""

    cron: str | None = None
    zone: str = "UTC"
    every: int | None = None
    start: int = 0

    def check(self) -> None:
        """Raise InvalidTask naming what cannot be used."""
        faults = [fault for fault in (self._cron_fault(), self._zone_fault(), self._interval_fault()) if fault]
        if faults:
            raise InvalidTask(faults)

    def _cron_fault(self) -> Fault | None:
        if (self.cron is None) == (self.every is None):
            return Fault("cron", "give exactly one of cron and every")
        if self.cron is None:
            return None
        try:
            next(CronSim(self.cron, datetime.now(ZoneInfo("UTC"))))
        except (CronSimError, StopIteration) as error:
            return Fault("cron", f"expected a cron expression that comes true, got {self.cron!r} ({error})")
        return None

    def _zone_fault(self) -> Fault | None:
        if self.zone in _zones():
            return None
        return Fault("tz", f"expected the name of a time zone like Europe/Berlin, got {self.zone!r}")

    def _interval_fault(self) -> Fault | None:
        if self.every is None or self.every >= SHORTEST_INTERVAL:
            return None
        return Fault("every", f"expected at least {SHORTEST_INTERVAL / 1000:g} s")

    def next_after(self, at: int) -> int:
        """Return the first due time after `at`, in ms."""
        if self.every is not None:
            return self.start + ((at - self.start) // self.every + 1) * self.every
        return _in_ms(next(CronSim(str(self.cron), self._moment(at))))

    def latest(self, first: int, last: int, most: int) -> list[int]:
        """Return the due times from `first` to `last`, both included; only the newest `most`, the oldest first."""
        not_later = dropwhile(lambda due: due > last, self._backwards(last))
        newest = takewhile(lambda due: due >= first, not_later)
        return list(islice(newest, most))[::-1]

    def _backwards(self, last: int) -> Iterator[int]:
        if self.every is not None:
            newest = self.start + (last - self.start) // self.every * self.every
            while True:
                yield newest
                newest -= self.every
        # The search excludes the time it begins at, and knows whole seconds only.
        yield from map(_in_ms, CronSim(str(self.cron), self._moment(last + 1_000), reverse=True))

    def _moment(self, at: int) -> datetime:
        return datetime.fromtimestamp(at / 1000, ZoneInfo(self.zone))


def _in_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)

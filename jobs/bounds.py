"""The ranges of the numbers that people may give, wherever they give them, and what is said of a value outside."""

from dataclasses import dataclass
from typing import Final

from .values import shown


@dataclass(frozen=True, slots=True)
class Seconds:
    """A range of seconds; with `or_none`, 0 is taken too and means that there is no such limit."""

    least: float
    most: float
    or_none: bool = False

    number = float
    """Reads such a number, in the range or not. Raises ValueError."""

    def nearest(self, value: object) -> float:
        """Return the number of the range that is next to a value; the least one for what is no number."""
        if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
            return self.least
        return min(max(self.least, value), self.most)

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        # NaN is in no range, and infinity above every one.
        return self.least <= value <= self.most or (self.or_none and value == 0)

    def __str__(self) -> str:
        none = "0 for none, or " if self.or_none else ""
        return f"{none}a number of seconds from {self.least:.12g} to {self.most:.12g}"


@dataclass(frozen=True, slots=True)
class Count:
    """A range of whole numbers from 0."""

    most: int

    number = int
    """Reads such a number, in the range or not. Raises ValueError."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= self.most

    def __str__(self) -> str:
        return f"a whole number from 0 to {self.most}"


Bounds = Seconds | Count

DAY: Final = 86_400.0

TIMEOUT: Final = Seconds(0.001, 7 * DAY)
CLOCK: Final = Seconds(1, 7 * DAY, or_none=True)
"""Of `stall_timeout`, `extend_by` and `max_runtime`. A handler's reports are a tenth of a second apart at least, so
that a shorter silence says nothing; and each extension is a call to Redis."""
BACKOFF: Final = Seconds(0, 7 * DAY)
RETENTION: Final = Seconds(60, 366 * DAY)
WAIT: Final = Seconds(0, 366 * DAY)
"""Of a submit's `delay`, and of what a handler asks for with RetryLater."""
MOMENT: Final = Seconds(0, 250_000_000_000)
"""Of a time since 1970; the last one is in the year 9892, and can still be shown as a date."""
ATTEMPTS: Final = Count(1000)
"""With these bounds each part of a packed policy stays under 64 bytes, which keeps a task's hash small in Redis."""

HANDLER_TIMEOUT: Final = Seconds(0.1, 3600)
HANDLER_RETRIES: Final = Count(100)
"""Of a handler of history entries (`@on`)."""


def fault(value: object, bounds: Bounds) -> str:
    """Return what is wrong with a value, in words; "" when nothing is."""
    return "" if value in bounds else f"expected {bounds}, got {shown(value)}"

"""Lengths of time, and parts of a whole, as people read them. All times are ms."""

from decimal import Decimal


def distance(at: int, now: int) -> str:
    """Return how far a time is from now: "12 s ago", "in 5 min"."""
    span = duration(abs(now - at))
    return f"{span} ago" if at <= now else f"in {span}"


def duration(ms: int) -> str:
    """Return a length of time with the unit that fits it."""
    seconds = ms / 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def percent(fraction: float | None) -> str:
    """Return a fraction as whole percents, never 100 before the end."""
    return "" if fraction is None else f"{int(Decimal(str(fraction)) * 100)} %"

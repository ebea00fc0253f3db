"""Odd values for times and counts, with what each means for each field: one table for all the ways in."""

import math
from typing import Any

ODD = [-1, 0, math.nan, math.inf, "1h", 0.2, 1e12, True, None]
SECONDS = "expected a number of seconds from"
CLOCK = "expected 0 for none, or a number of seconds from 1 to 604800"
RANGES = {
    "timeout": f"{SECONDS} 0.001 to 604800",
    "stall_timeout": CLOCK,
    "extend_by": CLOCK,
    "max_runtime": CLOCK,
    "backoff": f"{SECONDS} 0 to 604800",
    "backoff_cap": f"{SECONDS} 0 to 604800",
    "retention": f"{SECONDS} 60 to 31622400",
    "delay": f"{SECONDS} 0 to 31622400",
    **{name: "expected a whole number from 0 to 1000" for name in ("max_retries", "max_timeouts", "max_losses")},
}
MEANINGS: dict[str, dict[float, int]] = {
    "timeout": {0.2: 200},
    "stall_timeout": {0: 0},
    "extend_by": {0: 0},
    "max_runtime": {0: 0},
    "backoff": {0: 0, 0.2: 200},
    "backoff_cap": {0: 0, 0.2: 200},
    "retention": {},
    "delay": {0: 0, 0.2: 200},
    **{name: {0: 0} for name in ("max_retries", "max_timeouts", "max_losses")},
}
"""What is taken, and what it becomes: milliseconds, or a count."""

SUBMITTED = ["timeout", "stall_timeout", "delay", "max_retries"]
"""What a submit may give."""


def is_taken(field: str, value: Any) -> bool:
    """Tell whether a value has a meaning for a field; True is not 1 here, and NaN equals nothing."""
    return not isinstance(value, bool | str) and value in MEANINGS[field]

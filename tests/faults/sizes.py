"""How much the recipes of docs/faults.md do: what CI has time for, or with GHOSTLESS_FULL_SIZE=1 what is written there.

What is quick at its written size always has it, and does not stand here.
"""

import os

IS_FULL = "GHOSTLESS_FULL_SIZE" in os.environ

PATIENCE = 1_800 if IS_FULL else 120
"""Seconds that a test of these sizes may take."""


def sized(here: int, written: int) -> int:
    """Return the size for this run."""
    return written if IS_FULL else here


STOPS = sized(3, 30)
"""B14: times that five workers are stopped, and killed at any moment of that."""

CLAIMED = sized(600, 2_000)
"""B17: tasks that are claimed under a sweep each 100 ms, while writes pause at random."""

CANCELS = sized(200, 500)
"""B29, B30: tasks that are cancelled at any moment, and as many when they end."""

DUE_AT_ONCE = sized(2_000, 20_000)
"""B46: tasks that are due when three watchdogs come."""

CROWD = sized(20_000, 500_000)
"""B58: stored tasks that are purged, cancelled, listed and audited."""

LISTED = sized(20_000, 200_000)
"""B64: stored tasks that are looked at, some of them damaged."""

FAILED_LOUDLY = sized(400, 50_000)
"""B59: tasks that fail with a message of a megabyte."""

STOPPED = sized(0, 300)
"""B68: seconds that a client of events stands still at least, while much comes for it."""

ALL_PAUSED = sized(4, 10)
"""B02: seconds for which Redis answers nothing just after a submit. Such times are longer than a lease of the tests."""

TROUBLE, AWAY, FROZEN = sized(2, 10), sized(9, 60), sized(3, 30)
"""B52, B57: seconds for which Redis is read-only, busy, silent and so on; is away; is stopped."""

FULL = sized(3, 30)
"""B54: seconds for which Redis is at its memory limit."""

EXAMINED = sized(10_000, 200_000)
"""Stored tasks that the doctor looks at."""

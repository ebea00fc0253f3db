"""Budgets and backoff: whether an attempt that ended badly gets another one, and when.

The scripts decide from counters in the task's hash; these pure functions are the same rules for
readers, for `explain`, and for the tests that hold both against each other.
"""

from dataclasses import dataclass, fields
from functools import lru_cache

from .events import LOSSES, Event, Reason

CLOCKS = 3
"""How many of the last fields of a policy are packed apart: most tasks have none of them."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How long a task may run and how often it is tried. All times are integer milliseconds.

    Stored packed in two short fields of the task, in the order of these fields: `policy` up to `retention`, and
    `clocks` after it, which is left out while all of them are off. One field of all could exceed the 64 bytes up to
    which Redis keeps a hash compact.
    """

    timeout: int = 1_800_000  # longest run of one attempt
    max_retries: int = 3  # further attempts after failures
    max_timeouts: int = 2  # further attempts after deadlines and stalls
    max_losses: int = 3  # further attempts after crashes and lost workers
    backoff_base: int = 2_000
    backoff_cap: int = 600_000
    retention: int = 604_800_000  # how long a final task is kept
    stall_timeout: int = 0  # longest silence between two reports of progress; 0: any
    extend_by: int = 0  # what an attempt that made progress gets at its timeout; 0: nothing
    max_runtime: int = 0  # longest run of one attempt with all that it got; 0: it gets nothing

    @property
    def longest_run(self) -> int:
        """How long an attempt may run with every extension, in ms."""
        return max(self.timeout, self.max_runtime)

    def pack(self) -> str:
        """Return the values in field order, joined by commas; clocks are left out while all of them are off."""
        return ",".join(filter(None, self.pack_in_two()))

    def pack_in_two(self) -> tuple[str, str]:
        """Return what is stored in the two fields of a task; the second is "" while all clocks are off."""
        values = [str(getattr(self, field.name)) for field in fields(self)]
        clocks = values[-CLOCKS:]
        return ",".join(values[:-CLOCKS]), ",".join(clocks) if clocks != ["0"] * CLOCKS else ""

    @classmethod
    @lru_cache(maxsize=256)  # the tasks of a type mostly have one and the same
    def unpack(cls, packed: str, clocks: str = "") -> "Policy":
        """Read the packed form, in one or in two, also of another version: a missing last field has its default, a
        further one is passed over. Raises ValueError when it is not one.
        """
        values = (f"{packed},{clocks}" if clocks else packed).split(",")
        if not all(value.isascii() and value.isdigit() for value in values):
            raise ValueError(f"expected whole numbers, got {packed!r}")
        return cls(*map(int, values[: len(fields(cls))]))


@dataclass(frozen=True, slots=True)
class Used:
    """What a task has used up of its budgets so far."""

    failures: int = 0
    timeouts: int = 0
    losses: int = 0


BUDGETS = {"failures": "max_retries", "timeouts": "max_timeouts", "losses": "max_losses"}
"""Which limit of the policy bounds which counter of the task."""


def counter_for(event: Event, reason: Reason) -> str:
    """Name the counter that an attempt ended by `event` for `reason` adds to."""
    if reason in LOSSES:
        return "losses"
    return "timeouts" if event is Event.TIMEOUT else "failures"


def may_retry(event: Event, reason: Reason, used: Used, policy: Policy) -> bool:
    """Tell whether the budgets allow one more attempt after this one ended by `event` for `reason`."""
    counter = counter_for(event, reason)
    limit: int = getattr(policy, BUDGETS[counter])
    return getattr(used, counter) + 1 <= limit


def backoff(used: int, policy: Policy, fraction: float, asked: int = 0) -> int:
    """Return the delay in ms before the next attempt, never under what was `asked` for.

    Full jitter over an exponential ceiling (Brooker, "Exponential Backoff and Jitter", 2015), so that
    tasks which failed together do not return together; `used` is the counter before this attempt,
    `fraction` a random number in [0, 1).
    """
    # 2**40 exceeds every cap; the bound keeps the power a small number.
    ceiling = min(policy.backoff_cap, policy.backoff_base * 2 ** min(used, 40))
    return asked + int(ceiling * fraction)

"""One account of a task: why it is where it is, and what is next; and words that several accounts share."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..statemachine import Event, Reason
from .circumstances import Circumstances
from .model import Entry


@dataclass(frozen=True, slots=True)
class Account:
    """What is told of a task in one state. `next_at` is ms since 1970, where the clock moves it."""

    why: str
    next: str
    next_at: int | None = None
    evidence: tuple[str, ...] = ()


def last(around: Circumstances, *events: Event) -> Entry | None:
    """Return the newest move by one of these events."""
    return next((entry for entry in reversed(around.history) if entry.event in events), None)


def cause(entry: Entry) -> str:
    """Say in one sentence why an attempt ended."""
    return entry.message or _CAUSES.get(entry.reason, entry.reason)


def by(entry: Entry | None) -> str:
    """Say who did it, and with which words."""
    if entry is None:
        return ""
    return f" by {entry.actor}" + (f": {entry.message}" if entry.message else "")


_CAUSES: Mapping[str, str] = {
    Reason.DEADLINE: "it ran longer than allowed",
    Reason.HEARTBEAT_LOST: "its worker gave no sign of life",
    Reason.WORKER_LOST: "its worker died",
}


def unwatched(around: Circumstances) -> str:
    """Say what is missing where only a watchdog moves a task on, and none runs."""
    return "" if around.swept_at else ", once a watchdog runs: `ghostless watchdog`"


def budgets(around: Circumstances) -> tuple[str, ...]:
    """Say what the task has used up of its budgets."""
    task, policy = around.task, around.task.policy
    used = (
        ("failures", task.failures, policy.max_retries),
        ("timeouts", task.timeouts, policy.max_timeouts),
        ("lost processes", task.losses, policy.max_losses),
    )
    return tuple(f"{what} so far: {count}; retried at most {allowed} times" for what, count, allowed in used if count)

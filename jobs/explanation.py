"""Why a task is where it is, what happens next and when, and what a person can do: pure sentences over facts."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..statemachine import ACTIONS, FINAL, TABLE, Event, State
from .account import Account, budgets, by, cause, last, unwatched
from .account_ended import cancelled, failed, given_up, success
from .account_queue import pending
from .account_running import processing, stopping
from .circumstances import Circumstances
from .model import Entry
from .spans import distance

SHOWN_ENTRIES = 3
"""Moves of the history that stand in the evidence."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to "where is my task, why, and what next?". Times are ms since 1970 by Redis' clock."""

    id: str
    state: State
    since: int
    why: str
    next: str
    next_at: int | None  # when that is known
    evidence: tuple[str, ...]
    actions: tuple[str, ...]  # of `ACTIONS`: what a person can do now

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON."""
        return asdict(self)


def explain(around: Circumstances) -> Explanation:
    """Explain one task from what is around it."""
    task = around.task
    account = _ACCOUNTS[task.state](around)
    upcoming = account.next
    if around.refuses and task.state not in FINAL:
        upcoming = f"nothing until Redis takes writes again: {around.refuses}; then {upcoming}"
    return Explanation(
        id=task.id,
        state=task.state,
        since=task.entered_at,
        why=account.why,
        next=upcoming,
        next_at=account.next_at,
        evidence=(*account.evidence, *_lookout(around), *_moves(around)),
        actions=tuple(action for action, event in ACTIONS.items() if (task.state, event) in TABLE),
    )


def _lookout(around: Circumstances) -> tuple[str, ...]:
    if around.swept_at or around.task.state in FINAL:
        return ()
    return ("no watchdog swept lately, so nobody would notice a lost worker or ticket: start `ghostless watchdog`",)


def _moves(around: Circumstances) -> list[str]:
    return [_told(entry, around.now) for entry in around.history[-SHOWN_ENTRIES:]]


def _told(entry: Entry, now: int) -> str:
    message = f": {entry.message}" if entry.message else ""
    return f"{distance(entry.at, now)}: {entry.event} by {entry.actor}{message}"


# Waiting


def _scheduled(around: Circumstances) -> Account:
    return Account("it was submitted for a later time", f"it goes to its queue{unwatched(around)}", around.task.due_at)


def _retry_waiting(around: Circumstances) -> Account:
    task = around.task
    ended = last(around, Event.FAIL, Event.TIMEOUT)
    why = f"attempt {task.attempt} ended: {cause(ended)}" if ended else f"attempt {task.attempt} ended badly"
    upcoming = f"it goes back to its queue for attempt {task.attempt + 1}{unwatched(around)}"
    return Account(why, upcoming, task.due_at, budgets(around))


def _blocked(around: Circumstances) -> Account:
    awaited, task = around.awaited, around.task
    upcoming, at = awaited.upcoming(task, unwatched(around))
    return Account(awaited.why(task, around.now), upcoming, at, awaited.evidence)


def _paused(around: Circumstances) -> Account:
    asked = last(around, Event.PAUSE)
    return Account(
        f"it was paused{by(asked)}",
        f"nothing until `ghostless resume {around.task.id}`",
    )


_ACCOUNTS: Mapping[State, Callable[[Circumstances], Account]] = {
    State.PENDING: pending,
    State.SCHEDULED: _scheduled,
    State.RETRY_WAITING: _retry_waiting,
    State.BLOCKED: _blocked,
    State.PAUSED: _paused,
    State.PROCESSING: processing,
    State.PAUSING: stopping,
    State.CANCELLING: stopping,
    State.SUCCESS: success,
    State.FAILED: failed,
    State.TIMEOUT_CANCELLED: given_up,
    State.CANCELLED: cancelled,
}

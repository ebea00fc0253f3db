"""The one transition table. The scripts get it rendered before them; nothing else decides on a move."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from .events import Event
from .states import FINAL, STORED, State

INITIAL: Final = frozenset({State.PENDING, State.SCHEDULED, State.BLOCKED})
"""Where SUBMIT may put a new task."""

_ARROWS: Final[Mapping[Event, Mapping[State, State]]] = {
    Event.RELEASE: {
        State.SCHEDULED: State.PENDING,
        State.BLOCKED: State.PENDING,
        State.RETRY_WAITING: State.PENDING,
    },
    Event.START: {State.PENDING: State.PROCESSING},
    Event.HEARTBEAT: {
        State.PROCESSING: State.PROCESSING,
        State.PAUSING: State.PAUSING,
        State.CANCELLING: State.CANCELLING,
    },
    Event.PROGRESS: {
        State.PROCESSING: State.PROCESSING,
        State.PAUSING: State.PAUSING,
        State.CANCELLING: State.CANCELLING,
    },
    Event.STAGE: {State.PROCESSING: State.PROCESSING, State.PAUSING: State.PAUSING},
    Event.COMPLETE: {
        State.PROCESSING: State.SUCCESS,
        State.PAUSING: State.SUCCESS,
        State.CANCELLING: State.CANCELLED,
    },
    Event.FAIL: {
        State.PROCESSING: State.FAILED,
        State.PAUSING: State.FAILED,
        State.CANCELLING: State.CANCELLED,
    },
    Event.TIMEOUT: {
        State.PROCESSING: State.TIMEOUT,
        State.PAUSING: State.PAUSED,
        State.CANCELLING: State.CANCELLED,
    },
    Event.RETRY: {
        State.FAILED: State.RETRY_WAITING,
        State.TIMEOUT: State.RETRY_WAITING,
        State.TIMEOUT_CANCELLED: State.RETRY_WAITING,
    },
    Event.GIVE_UP: {State.TIMEOUT: State.TIMEOUT_CANCELLED},
    Event.CANCEL: {
        State.SCHEDULED: State.CANCELLED,
        State.BLOCKED: State.CANCELLED,
        State.PENDING: State.CANCELLED,
        State.RETRY_WAITING: State.CANCELLED,
        State.PAUSED: State.CANCELLED,
        State.PROCESSING: State.CANCELLING,
        State.PAUSING: State.CANCELLING,
    },
    Event.STOPPED: {State.CANCELLING: State.CANCELLED},
    Event.PAUSE: {
        State.PENDING: State.PAUSED,
        State.RETRY_WAITING: State.PAUSED,
        State.PROCESSING: State.PAUSING,
    },
    Event.SUSPEND: {
        State.PROCESSING: State.PAUSED,
        State.PAUSING: State.PAUSED,
        State.CANCELLING: State.CANCELLED,
    },
    Event.RESUME: {State.PAUSED: State.PENDING, State.PAUSING: State.PROCESSING},
    Event.REQUEUE: {State.PENDING: State.PENDING},
    Event.REPAIR: {state: state for state in STORED},
}

TABLE: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {(source, event): target for event, arrows in _ARROWS.items() for source, target in arrows.items()}
)

ALREADY: Final = frozenset(
    {(State.CANCELLING, Event.CANCEL)}
    | {(state, Event.CANCEL) for state in FINAL}
    | {(State.PAUSING, Event.PAUSE), (State.PAUSED, Event.PAUSE)}
    | {(State.PENDING, Event.RESUME), (State.PROCESSING, Event.RESUME)}
    | {(State.PENDING, Event.RELEASE)}
    # An operator's retry is due at once, and may be under way when it is asked for again.
    | {(State.RETRY_WAITING, Event.RETRY), (State.PENDING, Event.RETRY), (State.PROCESSING, Event.RETRY)}
)
"""Asked twice, or too late to matter: the answer is "already so" and nothing is written."""


class Verdict(StrEnum):
    """What the table says to an event in a state."""

    MOVED = "moved"
    ALREADY = "already"
    REFUSED = "refused"


def judge(state: State, event: Event) -> tuple[Verdict, State]:
    """Tell what `event` does to a task in `state`, and the state that follows (the same when it stays)."""
    if (state, event) in TABLE:
        return Verdict.MOVED, TABLE[state, event]
    if (state, event) in ALREADY:
        return Verdict.ALREADY, state
    return Verdict.REFUSED, state

"""What can happen to a task, and the fixed list of reasons why it did."""

from collections.abc import Mapping
from enum import StrEnum


class Event(StrEnum):
    """Something that happens to a task; the table says what follows."""

    SUBMIT = "SUBMIT"
    RELEASE = "RELEASE"
    START = "START"
    HEARTBEAT = "HEARTBEAT"
    PROGRESS = "PROGRESS"
    STAGE = "STAGE"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    TIMEOUT = "TIMEOUT"
    RETRY = "RETRY"
    GIVE_UP = "GIVE_UP"
    CANCEL = "CANCEL"
    STOPPED = "STOPPED"
    PAUSE = "PAUSE"
    SUSPEND = "SUSPEND"
    RESUME = "RESUME"
    REQUEUE = "REQUEUE"  # the watchdog made a new ticket for a task whose ticket was gone
    REPAIR = "REPAIR"  # what stands around the task was put right from its record


UNRECORDED = frozenset({Event.HEARTBEAT, Event.PROGRESS})
"""Events too frequent for the history; they leave only a snapshot in the task."""

ACTIONS: Mapping[str, Event] = {
    event.lower(): event for event in (Event.CANCEL, Event.PAUSE, Event.RESUME, Event.RETRY)
}
"""What a person can ask for, of one task or of many, by the word for it."""


class Reason(StrEnum):
    """Why a move happened, in one word that a program can match on."""

    EXCEPTION = "exception"
    CRASHED = "crashed"  # the horse died: signal, exit code, out of memory
    UNKNOWN_TYPE = "unknown_type"
    INVALID_PARAMS = "invalid_params"
    BAD_RESULT = "bad_result"
    DEADLINE = "deadline"
    STALLED = "stalled"
    HEARTBEAT_LOST = "heartbeat_lost"
    WORKER_LOST = "worker_lost"
    SHUTDOWN = "shutdown"
    USER = "user"
    OPERATOR = "operator"
    DEPENDENCY = "dependency"
    POLICY = "policy"
    REPAIR = "repair"


BY_POLICY = "policy"
"""The actor of steps that nobody asks for: what a task's policy makes of the end of an attempt, in the same move."""


LOSSES = frozenset({Reason.CRASHED, Reason.HEARTBEAT_LOST, Reason.WORKER_LOST})
"""Reasons that use up `max_losses`: the attempt ended because a process died, not by its own doing."""

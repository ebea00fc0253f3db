"""The states of a task and the groups that other modules ask about."""

from enum import StrEnum


class State(StrEnum):
    """Where a task is. Every stored task is in exactly one state."""

    SCHEDULED = "SCHEDULED"  # accepted, waits for its time
    BLOCKED = "BLOCKED"  # waits for tasks it depends on
    PENDING = "PENDING"  # in its queue
    PROCESSING = "PROCESSING"  # held by a worker under a lease
    PAUSING = "PAUSING"  # asked to stop at its next checkpoint
    PAUSED = "PAUSED"  # stopped, holds no worker, checkpoint kept
    CANCELLING = "CANCELLING"  # asked to stop, the worker has not confirmed
    RETRY_WAITING = "RETRY_WAITING"  # waits for the time of its next attempt
    TIMEOUT = "TIMEOUT"  # passed through inside one script, never stored
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    TIMEOUT_CANCELLED = "TIMEOUT_CANCELLED"  # given up after timeouts or lost workers
    CANCELLED = "CANCELLED"


FINAL = frozenset({State.SUCCESS, State.FAILED, State.TIMEOUT_CANCELLED, State.CANCELLED})
"""States that hold a task until its retention ends."""

RUNNING = frozenset({State.PROCESSING, State.PAUSING, State.CANCELLING})
"""States in which a worker holds the task under a lease."""

WAITING_FOR_TIME = frozenset({State.SCHEDULED, State.RETRY_WAITING})
"""States that the clock ends: the task stands in the `due` index."""

TRANSIENT = frozenset({State.TIMEOUT})
"""States that exist only between two moves of one script."""

STORED = tuple(state for state in State if state not in TRANSIENT)
"""States in which a task can be found at rest, in reading order."""

"""What happens next to a task, in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...statemachine import State
from ..model import Task
from .output import duration, when


@dataclass(frozen=True, slots=True)
class Around:
    """What a sentence about a task needs besides the task. `now` is ms, by Redis' clock."""

    now: int
    queue_paused: bool = False
    workers: Sequence[str] = ()  # names of workers that serve its queue
    watchdog: bool = True  # whether one swept lately


def outlook(task: Task, around: Around) -> str:
    """Say what moves the task on, when, and what a person must do when nothing will."""
    match task.state:
        case State.PENDING:
            return _pending(task, around)
        case State.SCHEDULED:
            return f"goes to its queue at {when(task.due_at, around.now)}{_watched(around)}"
        case State.RETRY_WAITING:
            return f"attempt {task.attempt + 1} from {when(task.due_at, around.now)} on{_watched(around)}"
        case State.BLOCKED:
            return "waits for the tasks it depends on"
        case State.PROCESSING:
            return _running(task, around)
        case State.PAUSING:
            return "its worker stops it at the next checkpoint"
        case State.CANCELLING:
            return "its worker stops it"
        case State.PAUSED:
            return f"nothing until `ghostless resume {task.id}`"
        case State.FAILED | State.TIMEOUT_CANCELLED:
            return f"nothing, unless you `ghostless retry {task.id}`; {_kept(task, around)}"
        case _:
            return f"nothing; {_kept(task, around)}"


def _pending(task: Task, around: Around) -> str:
    if around.queue_paused:
        return f"nothing until `ghostless queues resume {task.queue}`: the queue is paused"
    if not around.workers:
        return f"nothing until a worker serves its queue: `ghostless worker {task.queue}`"
    named = f"the worker {around.workers[0]}" if len(around.workers) == 1 else f"one of {len(around.workers)} workers"
    return f"{named} starts it when its turn comes"


def _running(task: Task, around: Around) -> str:
    policy = task.policy
    extended = ", later while it reports progress" if policy.extend_by else ""
    stalled = f", or after {duration(policy.stall_timeout)} without progress" if policy.stall_timeout else ""
    return f"ends by itself, or is stopped at {when(task.timeout_at, around.now)}{extended}{stalled}"


def _watched(around: Around) -> str:
    return "" if around.watchdog else ", once a watchdog runs: `ghostless watchdog`"


def _kept(task: Task, around: Around) -> str:
    return f"kept until {when(task.entered_at + task.policy.retention, around.now)}"

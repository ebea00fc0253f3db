"""How a task ended, in one sentence, and until when it is kept."""

from ..statemachine import TABLE, Event
from .account import Account, budgets, by, cause, last
from .circumstances import Circumstances
from .spans import duration


def success(around: Circumstances) -> Account:
    """Explain a task that completed."""
    task = around.task
    ran = f" after {duration(task.entered_at - task.started_at)}" if task.started_at else ""
    return _ended(around, f"attempt {task.attempt} completed{ran}")


def failed(around: Circumstances) -> Account:
    """Explain a task whose last attempt failed."""
    ended = last(around, Event.FAIL)
    why = f"attempt {around.task.attempt} failed: {cause(ended)}" if ended else "its last attempt failed"
    return _ended(around, why, budgets(around))


def given_up(around: Circumstances) -> Account:
    """Explain a task that ran out of time, or lost its workers, too often."""
    ended = last(around, Event.TIMEOUT)
    why = f"it was given up; attempt {around.task.attempt} ended: {cause(ended)}" if ended else "it was given up"
    return _ended(around, why, budgets(around))


def cancelled(around: Circumstances) -> Account:
    """Explain a task that was cancelled."""
    return _ended(around, f"it was cancelled{by(last(around, Event.CANCEL))}")


def _ended(around: Circumstances, why: str, evidence: tuple[str, ...] = ()) -> Account:
    task = around.task
    unless = f", unless you `ghostless retry {task.id}`" if (task.state, Event.RETRY) in TABLE else ""
    upcoming = f"nothing{unless}; it is kept until its retention ends"
    return Account(why, upcoming, task.entered_at + task.policy.retention, evidence)

"""What workers serve, and what keeps them from taking anything right now: they load their modules, or drain."""

from collections.abc import Iterable, Sequence

from .fleet import Member
from .model import Task
from .record import WorkerRecord
from .spans import duration

NAMED = 5
"""Workers, or types, that a sentence names."""


def serves(worker: Member, task_type: str) -> str:
    """Say why a worker does not serve a type."""
    record = worker.record or WorkerRecord()
    if task_type in record.set_aside:
        return f"{worker.name} does not take it for now: {record.set_aside[task_type]}"
    if worker.record is None:
        return f"{worker.name} is a worker of rq's own; what is parked comes to it after `ghostless types publish`"
    return f"{worker.name} serves {some(record.types) or 'no type'}"


def some(names: Sequence[str]) -> str:
    """Return the first of many names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def remarks(workers: Iterable[Member], now: int) -> tuple[str, ...]:
    """Return what keeps workers from taking a task; nothing of those that are at it. `now` is ms by Redis' clock."""
    return tuple(told for worker in workers if (told := remark(worker, now)))


def remark(worker: Member, now: int) -> str:
    """Return what keeps a worker from taking a task; "" when nothing does."""
    record = worker.record
    if worker.silent_for is not None:
        return f"{worker.name} has not beaten for {duration(worker.silent_for)}"
    if record and record.drain_ends_at:
        return f"{worker.name} is draining, and takes nothing new"
    if record and record.loading_since:
        return f"{worker.name} is loading its modules, for {duration(now - record.loading_since)}"
    return ""


def stop_of(holder: Member | None, task: Task) -> WorkerRecord | None:
    """Return the record of a worker that has asked the attempt of a task to stop; None when it has not."""
    record = holder.record if holder else None
    is_its = record and (record.task_id, record.attempt) == (task.id, task.attempt)
    return record if record and is_its and record.stopping else None


def unwritten_by(holder: Member | None, task: Task) -> str:
    """Return why a worker cannot write the end of the attempt of a task; "" when it says no such thing."""
    return holder.record.unwritten.get(task.id, "") if holder and holder.record else ""


def handed_back_at(holder: Member | None) -> int | None:
    """Return when a worker that drains hands back what it runs, in ms since 1970; None when it does not drain."""
    return holder.record.drain_ends_at if holder and holder.record else None

"""Every error the product raises: one root, the data on the error, and a message that says what to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

FAULTS_LIMIT: Final = 20
"""Faults that one error, or one answer, names at most."""


class GhostlessError(Exception):
    """Root of all errors; catch this one to catch them all."""


class InvalidSetting(GhostlessError):
    """A setting has a value that cannot be used."""

    def __init__(self, name: str, expected: str, got: str) -> None:
        self.name, self.expected, self.got = name, expected, got
        super().__init__(f"{name}: expected {expected}, got {got!r}")


class RedisUnavailable(GhostlessError):
    """Redis did not answer; whether the call took effect is not known, and it is safe to repeat."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause
        super().__init__(f"Redis is not reachable ({cause}); check GHOSTLESS_REDIS_URL and that the server runs")


class RedisFull(GhostlessError):
    """Redis is at its memory limit and refused the call; nothing was written."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"Redis is at its memory limit, nothing was stored ({detail}); raise maxmemory or wait")


class RedisRefused(GhostlessError):
    """Redis refused the call for a reason of its own, such as missing permissions; it may be repeated."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"Redis refused the call: {detail}")


class UnfitRedis(GhostlessError):
    """This Redis would lose tasks; carries each thing that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"this Redis is not fit to keep tasks: {'. '.join(self.problems)}")


class CorruptRecord(GhostlessError):
    """Something in Redis is not what it must be; the call wrote nothing."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"damaged data in Redis: {detail}")


class TaskNotFound(GhostlessError):
    """No task has this id."""

    def __init__(self, task_id: str, fate: str = "") -> None:
        self.task_id = task_id
        super().__init__(f"no task has the id {task_id!r}{fate}")


class TaskPurged(TaskNotFound):
    """No task has this id any more: its retention ended."""

    def __init__(self, task_id: str, purged_at: int, state: str = "", archive: str = "") -> None:
        """`purged_at` is ms since 1970, `state` the one it ended in, `archive` the name of the file that has it."""
        self.purged_at, self.state, self.archive = purged_at, state, archive
        when = datetime.fromtimestamp(purged_at / 1000, UTC).isoformat(" ", "seconds")
        where = f"; it is archived in {archive}" if archive else ""
        super().__init__(task_id, f": it ended in {state}, its retention ended and it was purged at {when}{where}")


class ArchiveUnusable(GhostlessError):
    """The archive cannot be written to; nothing that is not in it is purged."""

    def __init__(self, folder: str, cause: OSError) -> None:
        self.folder, self.cause = folder, cause
        why = cause.strerror or cause
        super().__init__(f"the archive in {folder} cannot be written to ({why}); until it can, no task is purged")


class NotArchived(GhostlessError):
    """No file of an archive has the task."""

    def __init__(self, task_id: str, folder: str) -> None:
        self.task_id, self.folder = task_id, folder
        super().__init__(f"no archive in {folder} has a task with the id {task_id!r}")


class IllegalMove(GhostlessError):
    """The transition table does not allow the event in the task's state."""

    def __init__(self, task_id: str, event: str, state: str) -> None:
        self.task_id, self.event, self.state = task_id, event, state
        super().__init__(f"task {task_id} is {state}, and {event} is not possible there")


class StaleAttempt(GhostlessError):
    """The attempt no longer holds the task: it was given away or ended; the write changed nothing."""

    def __init__(self, task_id: str, attempt: int) -> None:
        self.task_id, self.attempt = task_id, attempt
        super().__init__(f"attempt {attempt} does not hold task {task_id} any more; its work must stop")


class WorkerNameTaken(GhostlessError):
    """A worker over HTTP goes by the name of one that has a connection to Redis."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        super().__init__(f"a worker with a connection to Redis is called {worker!r}; give this one a name of its own")


class TypeNotPublished(GhostlessError):
    """A worker over HTTP asks for tasks of types of which Redis knows nothing, or nothing any more."""

    def __init__(self, types: Sequence[str]) -> None:
        self.types = tuple(types)
        super().__init__(f"not published: {', '.join(types)}; PUT /api/types/NAME (again), and then claim")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with what was sent: where, and what was expected."""

    field: str
    message: str


class InvalidTask(GhostlessError):
    """What was submitted is not acceptable; every fault is named and nothing was stored."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.field}: {fault.message}" for fault in self.faults))


class InvalidParams(InvalidTask):
    """The params do not fit the schema of the task type; the first `FAULTS_LIMIT` faults are named."""

    def __init__(self, task_type: str, faults: Sequence[Fault]) -> None:
        self.task_type = task_type
        more = [Fault("params", "more is wrong than is named here")] if faults[FAULTS_LIMIT:] else []
        super().__init__([*faults[:FAULTS_LIMIT], *more])


class QueueNotFound(GhostlessError):
    """No task, task type or worker names this queue."""

    def __init__(self, queue: str, near: Sequence[str] = ()) -> None:
        self.queue, self.near = queue, tuple(near)
        hint = f"; did you mean {', '.join(self.near)}?" if self.near else ""
        super().__init__(f"no task, task type or worker names the queue {queue!r}{hint}")


class ScheduleNotFound(GhostlessError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no schedule has the name {name!r}; `ghostless schedules` lists them")


class GroupNotFound(GhostlessError):
    """No listener's group has this name."""

    def __init__(self, group: str, groups: Sequence[str] = ()) -> None:
        """`groups` are those that there are."""
        self.group, self.groups = group, tuple(groups)
        others = f"these groups do: {', '.join(self.groups)}" if self.groups else "nor does any other group"
        super().__init__(f"no listener reads the history as {group!r}; {others}")


class DeliveryNotFound(GhostlessError):
    """No delivery of the task has this id, or its record was kept long enough."""

    def __init__(self, task_id: str, delivery_id: str) -> None:
        self.task_id, self.delivery_id = task_id, delivery_id
        super().__init__(f"task {task_id} has no delivery {delivery_id!r}; `ghostless deliveries {task_id}` lists them")


class TokenNotFound(GhostlessError):
    """No token has this id."""

    def __init__(self, token_id: str) -> None:
        self.token_id = token_id
        super().__init__(f"no token has the id {token_id!r}; `ghostless tokens list` shows them")


class InvalidToken(GhostlessError):
    """A token cannot be made like this; every fault is named and nothing was stored."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.field}: {fault.message}" for fault in self.faults))


class UnknownTaskType(GhostlessError):
    """Nobody published this task type."""

    def __init__(self, task_type: str, near: Sequence[str] = ()) -> None:
        self.task_type, self.near = task_type, tuple(near)
        hint = f"; did you mean {', '.join(self.near)}?" if self.near else "; start a worker that serves it first"
        super().__init__(f"no worker has published the task type {task_type!r}{hint}")


class TaskConflict(GhostlessError):
    """The id, or the idempotency key, belongs to a task of another type or with other params, or to a purged one."""

    def __init__(self, task_id: str, idempotency_key: str | None = None, *, is_purged: bool = False) -> None:
        self.task_id, self.idempotency_key, self.is_purged = task_id, idempotency_key, is_purged
        what = f"idempotency key {idempotency_key!r}" if idempotency_key else f"id {task_id!r}"
        whose = "a task that was purged" if is_purged else "a task of another type or with other params"
        which = f" ({task_id})" if idempotency_key else ""
        super().__init__(f"the {what} belongs to {whose}{which}; nothing was stored: choose another, or leave it out")


class IdempotencyKeyReused(TaskConflict):
    """The idempotency key belongs to another request, whose task is there."""


class TooLarge(GhostlessError):
    """A value is over its limit. Sizes are in bytes."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what, self.size, self.limit = what, size, limit
        super().__init__(f"{what} is {size} bytes, at most {limit} are kept; store it elsewhere and pass a reference")


class InvalidBulkAction(InvalidTask):
    """What was asked for many tasks at once is not acceptable; every fault is named and nothing was stored."""


class BulkActionNotFound(GhostlessError):
    """No bulk action has this id, or its record's time is over."""

    def __init__(self, bulk_id: str) -> None:
        self.bulk_id = bulk_id
        super().__init__(f"no bulk action has the id {bulk_id!r}; its record is kept for 7 days after its end")


class BulkActionConflict(GhostlessError):
    """The idempotency key belongs to a bulk action that asked for something else."""

    def __init__(self, bulk_id: str, idempotency_key: str) -> None:
        self.bulk_id, self.idempotency_key = bulk_id, idempotency_key
        super().__init__(f"the idempotency key {idempotency_key!r} belongs to another bulk action ({bulk_id})")


class TooManyBulkActions(GhostlessError):
    """So many bulk actions run that no further one is taken."""

    def __init__(self, most: int) -> None:
        self.most = most
        super().__init__(f"{most} bulk actions run, and no more are taken; wait for one to end, or stop one")


class InvalidHandler(GhostlessError):
    """A function decorated with @task cannot be a handler."""


class RetryLater(Exception):
    """Raised by a handler: this attempt failed, try again no sooner than `seconds` from now, from 0 to 31622400.

    Less counts as 0, more as the most, and what is no number as 0; the history says so then.
    """

    def __init__(self, seconds: float, message: str = "") -> None:
        self.seconds = seconds
        super().__init__(message or f"the handler asked to be retried in {seconds} s")


class TaskStopped(BaseException):
    """Raised inside a handler that is to stop: clean up and let it pass.

    Not an Exception, so that `except Exception` in a handler does not swallow it.
    """

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the attempt was asked to stop: {why}")

"""What callers hear of who may not hear of everything: their own, and of all else as if there were nothing."""

from collections.abc import Sequence

from flask import Flask, Response, g

from ..jobs.errors import TaskConflict, TaskNotFound
from ..jobs.model import Task
from ..jobs.reads import Damaged
from .access import caller
from .cursors import Cursor
from .desk import desk
from .kinds import Kind
from .names import task_id
from .places import Places, VeiledPlaces
from .problems import Refusal, of_error, problem
from .veil import unveiled, veiled
from .watch import Watch


def install(app: Flask) -> None:
    """Let errors tell a confined caller nothing of what others have."""
    app.register_error_handler(TaskNotFound, _hidden)
    app.register_error_handler(TaskConflict, _nobodys)


def task_seen(given: str) -> str:
    """Return the id. Raises TaskNotFound when the caller may not see the task, and Refusal when it is no id.

    To one who may see everything, whether the task exists is for the route to say. A task never changes its owner.
    """
    checked = task_id(given)
    if checked not in _seen([checked]):
        raise TaskNotFound(checked)
    return checked


def watch_seen(wanted: Watch, *, partly: bool = False) -> Watch:
    """Return what of a filter the caller may see. Raises Refusal (404) and TaskNotFound for what lies outside.

    `partly` says that some of the tasks are enough: one that is followed may be purged, and the others go on.
    """
    asked, granted = wanted.tasks, caller().granted
    seen = _seen(sorted(asked))
    if asked and not (seen if partly else seen == asked):
        raise TaskNotFound(min(asked - seen))
    return Watch(
        seen or granted.tasks,
        caller().owner_wanted(wanted.owner),
        _narrowed(Kind.TYPE_NOT_FOUND, "type", wanted.type, granted.type),
        _narrowed(Kind.QUEUE_NOT_FOUND, "queue", wanted.queue, granted.queue),
    )


def _seen(ids: Sequence[str]) -> frozenset[str]:
    """Return those of the ids that the caller may hear of: all, existing or not, when he is not confined."""
    if not caller().is_confined:
        return frozenset(ids)
    return frozenset(one for one, task in zip(ids, desk().client.reads.tasks(ids), strict=True) if _is_seen(task))


def cursor_read(text: str | None) -> str | None:
    """Return the cursor of a listing as the core takes it. Raises RedisUnavailable."""
    return unveiled(text, _key()) if text and caller().is_confined else text


def cursor_shown(text: str | None) -> str | None:
    """Return the cursor of a listing as the caller may see it. Raises RedisUnavailable, RedisFull."""
    return veiled(text, _key()) if text and caller().is_confined else text


def places() -> Places:
    """Return how places in the history are told to the caller, and read. Raises RedisUnavailable, RedisFull."""
    return VeiledPlaces(_key(), _is_own) if caller().is_confined else Places()


def _is_own(place: Cursor) -> bool:
    entry = desk().past.entry(place.at)
    granted = caller().granted
    return entry is not None and caller().may_see(entry.owner or None) and granted.accepts(entry)


def _key() -> str:
    keyring = desk().keyring
    return keyring.look().signing_key or keyring.tokens.signing_key()


def _hidden(error: TaskNotFound) -> Response:
    """Tell a confined caller nothing of a task that was purged: nobody knows whose it was."""
    return of_error(TaskNotFound(error.task_id) if _is_confined() else error)


def _nobodys(error: TaskConflict) -> Response:
    """Tell a confined caller nothing of the task that has the id, unless it is his."""
    if not _is_confined() or _is_seen(desk().client.reads.tasks([error.task_id])[0]):
        return of_error(error)
    detail = "the id or the Idempotency-Key belongs to another task; nothing was stored"
    return problem(Kind.TASK_CONFLICT, detail)


def _is_confined() -> bool:
    return "caller" in g and caller().is_confined


def _is_seen(task: Task | Damaged) -> bool:
    return isinstance(task, Task) and caller().sees(task)  # of a damaged one nobody can tell whose it is


def _narrowed(kind: Kind, name: str, wanted: str | None, granted: str | None) -> str | None:
    if wanted is None or granted is None or wanted == granted:
        return wanted or granted
    raise Refusal(kind, f"{name}: this stream token is for another one")

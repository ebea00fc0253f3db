"""Every error as `application/problem+json` (RFC 9457): one table from our errors to what a client is told."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flask import Flask, Response, json
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.wrappers import Response as BaseResponse

from ..jobs.errors import (
    FAULTS_LIMIT,
    BulkActionConflict,
    BulkActionNotFound,
    CorruptRecord,
    DeliveryNotFound,
    Fault,
    GhostlessError,
    IllegalMove,
    InvalidBulkAction,
    InvalidParams,
    InvalidTask,
    QueueNotFound,
    RedisFull,
    RedisRefused,
    RedisUnavailable,
    StaleAttempt,
    TaskConflict,
    TaskNotFound,
    TooLarge,
    TooManyBulkActions,
    UnknownTaskType,
    WorkerNameTaken,
)
from .hub import HubClosed, HubFull
from .limits import TooManyListeners

PROBLEM = "application/problem+json"

RETRY_AFTER = 2
"""Seconds after which a client may ask again when Redis did not answer, or there was no room for it."""

log = logging.getLogger(__name__)

Members = Mapping[str, Any]


class Refusal(Exception):
    """A request that is turned down before the core sees it. `errors` say which part of it is wrong."""

    def __init__(self, status: int, kind: str, title: str, detail: str, errors: Sequence[Members] = ()) -> None:
        super().__init__(detail)
        self.status, self.kind, self.title, self.detail = status, kind, title, detail
        self.errors = list(errors)


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one class of error is told. `detail` stands where the error's own text names what is nobody's business."""

    status: int
    kind: str
    title: str
    members: Callable[[Any], Members] = field(default=lambda _error: {})
    detail: str = ""
    logged: bool = False


def _faults(error: InvalidTask) -> Members:
    return {
        "errors": [{"pointer": pointer(*fault.field.split(".")), "detail": fault.message} for fault in error.faults]
    }


_RULES: Mapping[type[GhostlessError], _Rule] = {
    InvalidParams: _Rule(422, "invalid-params", "The params do not fit the task type", _faults),
    InvalidTask: _Rule(422, "invalid-task", "The task is not acceptable", _faults),
    InvalidBulkAction: _Rule(422, "invalid-bulk-action", "The bulk action is not acceptable", _faults),
    BulkActionNotFound: _Rule(404, "bulk-action-not-found", "No such bulk action", lambda error: {"id": error.bulk_id}),
    BulkActionConflict: _Rule(
        422, "idempotency-key-reused", "The key was used for another request", lambda error: {"id": error.bulk_id}
    ),
    TooManyBulkActions: _Rule(429, "too-many-bulk-actions", "Too many bulk actions run"),
    UnknownTaskType: _Rule(
        422, "unknown-task-type", "Nobody serves this task type",
        lambda error: {"near": list(error.near), "errors": [{"pointer": "/type", "detail": str(error)}]},
    ),
    TooLarge: _Rule(
        413, "too-large", "A value is over its limit",
        lambda error: {"errors": [{"pointer": pointer(error.what), "detail": f"at most {error.limit} bytes"}]},
    ),
    TaskNotFound: _Rule(404, "task-not-found", "No such task", lambda error: {"task": error.task_id}),
    DeliveryNotFound: _Rule(404, "delivery-not-found", "No such delivery", lambda error: {"task": error.task_id}),
    QueueNotFound: _Rule(404, "queue-not-found", "No such queue", lambda error: {"near": list(error.near)}),
    TaskConflict: _Rule(
        409, "task-conflict", "The id or the key belongs to another task", lambda error: {"task": error.task_id}
    ),
    IllegalMove: _Rule(
        409, "illegal-move", "Not possible in the task's state",
        lambda error: {"task": error.task_id, "state": error.state, "event": error.event},
    ),
    StaleAttempt: _Rule(
        409, "stale-attempt", "The attempt no longer holds the task",
        lambda error: {"task": error.task_id, "attempt": error.attempt},
    ),
    WorkerNameTaken: _Rule(
        409, "worker-name-taken", "Another worker has this name", lambda error: {"worker": error.worker}
    ),
    RedisFull: _Rule(
        503, "storage-full", "The storage is full", detail="Redis is at its memory limit, and nothing was stored."
    ),
    RedisUnavailable: _Rule(
        503, "storage-unavailable", "The storage does not answer",
        detail="Redis did not answer; the request is safe to repeat with the same id or Idempotency-Key.", logged=True,
    ),
    RedisRefused: _Rule(
        500, "storage-refused", "The storage refuses the call",
        detail="Redis does not allow the server what it needs; the server's log says what.", logged=True,
    ),
    HubClosed: _Rule(503, "stopping", "This server is stopping"),
    HubFull: _Rule(503, "busy", "No further listener can be served right now"),
    TooManyListeners: _Rule(429, "too-many-listeners", "Too many streams and long polls"),
    CorruptRecord: _Rule(
        500, "damaged-record", "The record is damaged",
        detail="Something in Redis is not what it must be; the server's log says what it is.", logged=True,
    ),
}  # fmt: skip


def install(app: Flask) -> None:
    """Answer every error of the application with a problem."""
    app.register_error_handler(Refusal, _refused)
    app.register_error_handler(GhostlessError, of_error)
    app.register_error_handler(HTTPException, _of_http)
    app.register_error_handler(Exception, _unforeseen)


def problem(status: int, kind: str, title: str, detail: str, members: Members | None = None) -> Response:
    """Return the answer; `kind` makes the stable `type`, members of None are left out."""
    document: dict[str, Any] = {"type": f"urn:ghostless:{kind}", "title": title, "status": status, "detail": detail}
    response = Response(json.dumps(document | dict(members or {})), status, content_type=PROBLEM)
    if status in (429, 503):
        response.headers["Retry-After"] = str(RETRY_AFTER)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def pointer(*parts: object) -> str:
    """Return the JSON pointer (RFC 6901) to a part of the body."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def wrong_body(faults: Sequence[tuple[str, str]]) -> Refusal:
    """Return the refusal of a body, from pointers and what is wrong there."""
    return _wrong("body", "pointer", faults)


def wrong_query(faults: Sequence[tuple[str, str]]) -> Refusal:
    """Return the refusal of a query or path, from names of parameters and what is wrong with them."""
    return _wrong("request", "parameter", faults)


def wrong_parameter(faults: Sequence[Fault]) -> Refusal:
    """Return the refusal of a query for what the core found wrong with it."""
    return wrong_query([(fault.field, fault.message) for fault in faults])


def _wrong(what: str, place: str, faults: Sequence[tuple[str, str]]) -> Refusal:
    shown = faults[:FAULTS_LIMIT]
    detail = "; ".join(f"{where.lstrip('/') or what}: {message}" for where, message in shown)
    detail += "; and more" if faults[FAULTS_LIMIT:] else ""
    errors = [{place: where, "detail": message} for where, message in shown]
    return Refusal(422, f"invalid-{what}", f"The {what} is not acceptable", detail, errors)


def _refused(error: Refusal) -> Response:
    members = {"errors": error.errors} if error.errors else {}
    return problem(error.status, error.kind, error.title, error.detail, members)


def of_error(error: GhostlessError) -> Response:
    """Return the answer to an error of ours."""
    rule = next((_RULES[kind] for kind in type(error).__mro__ if kind in _RULES), None)
    if rule is None:
        return _unforeseen(error)
    if rule.logged:
        log.error("%s", error)
    if isinstance(error, TaskNotFound) and error.purged_at is not None:
        told = {"task": error.task_id, "purged_at": error.purged_at, "state": error.state, "archive": error.archive}
        members = {name: value for name, value in told.items() if value != ""}
        return problem(410, "task-purged", "The task's retention ended", str(error), members)
    if isinstance(error, TaskConflict) and error.idempotency_key and not error.is_purged:
        members = {"task": error.task_id}
        # Without the key itself: one of a caller that is bound to an owner is kept under another name.
        detail = f"the Idempotency-Key belongs to another request, of task {error.task_id}; nothing was stored"
        return problem(422, "idempotency-key-reused", "The key was used for another request", detail, members)
    return problem(rule.status, rule.kind, rule.title, rule.detail or str(error), rule.members(error))


def _of_http(error: HTTPException) -> BaseResponse:
    status = error.code or 500
    if error.response is not None or status < 400:
        return error.get_response()
    response = problem(status, f"http-{status}", error.name, error.description or error.name)
    if isinstance(error, MethodNotAllowed):
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
    return response


def _unforeseen(error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return problem(500, "internal", "Internal error", "The request failed for a reason that is in the server's log.")

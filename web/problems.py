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
    IdempotencyKeyReused,
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
    TaskPurged,
    TooLarge,
    TooManyBulkActions,
    TypeNotPublished,
    UnknownTaskType,
    WorkerNameTaken,
)
from .hub import HubClosed, HubFull
from .kinds import Kind
from .limits import TooManyListeners

PROBLEM = "application/problem+json"

RETRY_AFTER = 2
"""Seconds after which a client may ask again when Redis did not answer, or there was no room for it."""

log = logging.getLogger(__name__)

Members = Mapping[str, Any]


class Refusal(Exception):
    """A request that is turned down before the core sees it. `errors` say which part of it is wrong."""

    def __init__(self, kind: Kind, detail: str, errors: Sequence[Members] = ()) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.errors = kind, detail, list(errors)


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one class of error is told. `detail` stands where the error's own text names what is nobody's business.

    `{}` in it is the error.
    """

    kind: Kind
    members: Callable[[Any], Members] = field(default=lambda _error: {})
    detail: str = ""
    logged: bool = False


def _faults(error: InvalidTask) -> Members:
    return {
        "errors": [{"pointer": pointer(*fault.field.split(".")), "detail": fault.message} for fault in error.faults]
    }


def _fate(error: TaskPurged) -> Members:
    told = {"task": error.task_id, "purged_at": error.purged_at, "state": error.state, "archive": error.archive}
    return {name: value for name, value in told.items() if value != ""}


_RULES: Mapping[type[GhostlessError], _Rule] = {
    InvalidParams: _Rule(Kind.INVALID_PARAMS, _faults),
    InvalidTask: _Rule(Kind.INVALID_TASK, _faults),
    InvalidBulkAction: _Rule(Kind.INVALID_BULK_ACTION, _faults),
    BulkActionNotFound: _Rule(Kind.BULK_ACTION_NOT_FOUND, lambda error: {"id": error.bulk_id}),
    BulkActionConflict: _Rule(Kind.IDEMPOTENCY_KEY_REUSED, lambda error: {"id": error.bulk_id}),
    TooManyBulkActions: _Rule(Kind.TOO_MANY_BULK_ACTIONS),
    UnknownTaskType: _Rule(
        Kind.UNKNOWN_TASK_TYPE,
        lambda error: {"near": list(error.near), "errors": [{"pointer": "/type", "detail": str(error)}]},
    ),
    TooLarge: _Rule(
        Kind.TOO_LARGE,
        lambda error: {"errors": [{"pointer": pointer(error.what), "detail": f"at most {error.limit} bytes"}]},
    ),
    TaskNotFound: _Rule(Kind.TASK_NOT_FOUND, lambda error: {"task": error.task_id}),
    TaskPurged: _Rule(Kind.TASK_PURGED, _fate),
    DeliveryNotFound: _Rule(Kind.DELIVERY_NOT_FOUND, lambda error: {"task": error.task_id}),
    QueueNotFound: _Rule(Kind.QUEUE_NOT_FOUND, lambda error: {"near": list(error.near)}),
    TaskConflict: _Rule(Kind.TASK_CONFLICT, lambda error: {"task": error.task_id}),
    IdempotencyKeyReused: _Rule(
        Kind.IDEMPOTENCY_KEY_REUSED,
        lambda error: {"task": error.task_id},
        # Without the key itself: one of a caller that is bound to an owner is kept under another name.
        "the Idempotency-Key belongs to another request, of task {.task_id}; nothing was stored",
    ),
    IllegalMove: _Rule(
        Kind.ILLEGAL_MOVE,
        lambda error: {"task": error.task_id, "state": error.state, "event": error.event},
    ),
    StaleAttempt: _Rule(
        Kind.STALE_ATTEMPT,
        lambda error: {"task": error.task_id, "attempt": error.attempt},
    ),
    TypeNotPublished: _Rule(Kind.TYPE_NOT_PUBLISHED, lambda error: {"types": list(error.types)}),
    WorkerNameTaken: _Rule(Kind.WORKER_NAME_TAKEN, lambda error: {"worker": error.worker}),
    RedisFull: _Rule(Kind.STORAGE_FULL, detail="Redis is at its memory limit, and nothing was stored."),
    RedisUnavailable: _Rule(
        Kind.STORAGE_UNAVAILABLE,
        detail="Redis did not answer; the request is safe to repeat with the same id or Idempotency-Key.",
        logged=True,
    ),
    RedisRefused: _Rule(
        Kind.STORAGE_REFUSED,
        detail="Redis does not allow the server what it needs; the server's log says what.",
        logged=True,
    ),
    HubClosed: _Rule(Kind.STOPPING),
    HubFull: _Rule(Kind.BUSY),
    TooManyListeners: _Rule(Kind.TOO_MANY_LISTENERS),
    CorruptRecord: _Rule(
        Kind.DAMAGED_RECORD,
        detail="Something in Redis is not what it must be; the server's log says what it is.",
        logged=True,
    ),
}


def install(app: Flask) -> None:
    """Answer every error of the application with a problem."""
    app.register_error_handler(Refusal, _refused)
    app.register_error_handler(GhostlessError, of_error)
    app.register_error_handler(HTTPException, _of_http)
    app.register_error_handler(Exception, _unforeseen)


def problem(kind: Kind, detail: str, members: Members | None = None) -> Response:
    """Return the answer of this kind, perhaps with further members."""
    return _answer(kind.label, kind.status, kind.title, detail, members)


def document(label: str, status: int, title: str, detail: str) -> dict[str, Any]:
    """Return what every problem says."""
    return {"type": f"urn:ghostless:{label}", "title": title, "status": status, "detail": detail}


def _answer(label: str, status: int, title: str, detail: str, members: Members | None = None) -> Response:
    told = document(label, status, title, detail) | dict(members or {})
    response = Response(f"{json.dumps(told)}\n", status, content_type=PROBLEM)
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
    return _wrong(Kind.INVALID_BODY, "body", "pointer", faults)


def wrong_query(faults: Sequence[tuple[str, str]]) -> Refusal:
    """Return the refusal of a query or path, from names of parameters and what is wrong with them."""
    return _wrong(Kind.INVALID_REQUEST, "request", "parameter", faults)


def wrong_parameter(faults: Sequence[Fault]) -> Refusal:
    """Return the refusal of a query for what the core found wrong with it."""
    return wrong_query([(fault.field, fault.message) for fault in faults])


def _wrong(kind: Kind, what: str, place: str, faults: Sequence[tuple[str, str]]) -> Refusal:
    shown = faults[:FAULTS_LIMIT]
    detail = "; ".join(f"{where.lstrip('/') or what}: {message}" for where, message in shown)
    detail += "; and more" if faults[FAULTS_LIMIT:] else ""
    errors = [{place: where, "detail": message} for where, message in shown]
    return Refusal(kind, detail, errors)


def _refused(error: Refusal) -> Response:
    members = {"errors": error.errors} if error.errors else {}
    return problem(error.kind, error.detail, members)


def of_error(error: GhostlessError) -> Response:
    """Return the answer to an error of ours."""
    rule = next((_RULES[kind] for kind in type(error).__mro__ if kind in _RULES), None)
    if rule is None:
        return _unforeseen(error)
    if rule.logged:
        log.error("%s", error)
    return problem(rule.kind, rule.detail.format(error) or str(error), rule.members(error))


def _of_http(error: HTTPException) -> BaseResponse:
    status = error.code or 500
    if error.response is not None or status < 400:
        return error.get_response()
    response = _answer(f"http-{status}", status, error.name, error.description or error.name)
    if isinstance(error, MethodNotAllowed):
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
    return response


def _unforeseen(error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return problem(Kind.INTERNAL, "The request failed for a reason that is in the server's log.")

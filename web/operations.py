"""What each route takes and demands, said once: checked before the route, and what it is described from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from flask import request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel

from .access import Scope, caller
from .guards import READING
from .models import Body, NoBody, NoQuery, Query, read_body, read_query

ViewFunction = Callable[..., ResponseReturnValue]


@dataclass(frozen=True, slots=True)
class Reply:
    """One way in which a route answers: with a JSON object, with another content type, or without a body."""

    body: type[BaseModel] | str | None
    headers: tuple[str, ...] = ()
    meaning: str = ""  # else what the model says of itself


UNCHANGED = Reply(None, ("ETag",), "The client has this version.")
"""What If-None-Match is answered with (304)."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One route's contract; without a scope it is open to everybody.

    `headers` are those of a request that the route heeds, `problems` the statuses of errors that not every route has.
    """

    scope: Scope | None
    query: type[Query]
    body: type[Body]
    whole: bool  # tells of everybody's tasks: not for callers that are bound to an owner
    streams: bool  # a stream token is enough
    headers: tuple[str, ...]
    answers: Mapping[int, Reply]
    problems: tuple[int, ...]

    @classmethod
    def of(cls, view: ViewFunction) -> "Operation | None":
        """Return what a view was declared with."""
        return cast("Operation | None", getattr(view, "operation", None))

    def read(self) -> dict[str, Any]:
        """Return what the request gives for the view, checked. Raises Refusal."""
        if self.scope:
            caller().demand(self.scope, whole=self.whole, streams=self.streams)
        given: dict[str, Any] = {}
        query = read_query(self.query)
        if self.query is not NoQuery:
            given["query"] = query
        if request.method not in READING:
            body = read_body(self.body)
            if self.scope:
                caller().confirm()  # it may be on its way for longer than a token that was revoked lets in
            if self.body is not NoBody:
                given["body"] = body
        return given


def operation(
    scope: Scope | None,
    *,
    query: type[Query] = NoQuery,
    body: type[Body] = NoBody,
    whole: bool = False,
    streams: bool = False,
    headers: Sequence[str] = (),
    answers: Mapping[int, Reply | type[BaseModel] | None],
    problems: Sequence[int] = (),
) -> Callable[[ViewFunction], ViewFunction]:
    """Declare a route's contract. Its view gets `query` and `body`, where it has models of its own, as arguments.

    `whole` is for what tells of everybody's tasks, `streams` for what a stream token is enough for. `answers` are by
    status: a model, None for an answer without a body, or a `Reply` that tells more.
    """
    told = {status: one if isinstance(one, Reply) else Reply(one) for status, one in answers.items()}
    declared = Operation(scope, query, body, whole, streams, tuple(headers), told, tuple(problems))

    def decorate(view: ViewFunction) -> ViewFunction:
        @wraps(view)
        def checked(**path: str) -> ResponseReturnValue:
            return view(**path, **declared.read())

        cast(Any, checked).operation = declared
        return checked

    return decorate

"""What each route takes and demands, said once: checked before the route, and what it is described from."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from flask import request
from flask.typing import ResponseReturnValue

from .access import Scope, caller
from .guards import READING
from .models import Body, NoBody, NoQuery, Query, read_body, read_query

View = Callable[..., ResponseReturnValue]


@dataclass(frozen=True, slots=True)
class Operation:
    """One route's contract; without a scope it is open to everybody."""

    scope: Scope | None
    query: type[Query]
    body: type[Body]
    whole: bool  # tells of everybody's tasks: not for callers that are bound to an owner
    streams: bool  # a stream token is enough

    @classmethod
    def of(cls, view: View) -> "Operation | None":
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
        body = read_body(self.body) if request.method not in READING else None
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
) -> Callable[[View], View]:
    """Declare a route's contract. Its view gets `query` and `body`, where it has models of its own, as arguments.

    `whole` is for what tells of everybody's tasks, `streams` for what a stream token is enough for.
    """
    declared = Operation(scope, query, body, whole, streams)

    def decorate(view: View) -> View:
        @wraps(view)
        def checked(**path: str) -> ResponseReturnValue:
            return view(**path, **declared.read())

        cast(Any, checked).operation = declared
        return checked

    return decorate

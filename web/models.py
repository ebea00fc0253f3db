"""What clients may send, by field: bodies and queries are read here and nowhere else."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar, cast, get_origin

from flask import request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from werkzeug.exceptions import RequestEntityTooLarge

from ..jobs import bounds
from ..jobs.client import PAGE_LIMIT
from ..jobs.names import ID, NAME
from ..jobs.submission import Request
from ..statemachine import STORED, State
from .bodies import parse_json
from .guards import BODY_LIMIT
from .problems import Refusal, pointer, wrong_body, wrong_query
from .watch import TASKS_LIMIT

WAIT_LIMIT = 60
"""Most seconds that a long poll holds."""

ID_PATTERN = f"^{ID.pattern}$"
NAME_PATTERN = f"^{NAME.pattern}$"

Model = TypeVar("Model", bound=BaseModel)


class Body(BaseModel):
    """A JSON object with these fields and no others; "1" is no number, and neither is true."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Query(BaseModel):
    """Query parameters with these names and no others; all values are text."""

    model_config = ConfigDict(extra="forbid")


def _moment(value: object) -> float | None:
    """Read seconds since 1970, or ISO 8601 with a zone."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if not isinstance(value, str):
        raise ValueError("expected seconds since 1970 or a time in ISO 8601")
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError("no zone")
        return moment.timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError("expected a time in ISO 8601 with its zone, like 2030-01-31T08:00:00Z") from error


def _within(allowed: bounds.Bounds) -> AfterValidator:
    """Return the check of a number that may be left out; its message names the range."""

    def check(value: object) -> object:
        wrong = "" if value is None else bounds.fault(value, allowed)
        if wrong:
            raise ValueError(wrong)
        return value

    return AfterValidator(check)


class SubmitBody(Body):
    """A task to run. Times are seconds; `run_at` may also be ISO 8601 with a zone."""

    type: str
    params: dict[str, Any] = {}
    queue: str | None = None
    id: str | None = None
    delay: Annotated[Any, _within(bounds.WAIT)] = None
    run_at: Annotated[float | None, BeforeValidator(_moment)] = None
    timeout: Annotated[Any, _within(bounds.TIMEOUT)] = None
    stall_timeout: Annotated[Any, _within(bounds.CLOCK)] = None
    max_retries: Annotated[Any, _within(bounds.ATTEMPTS)] = None
    depends_on: list[str] = []
    owner: str | None = None
    metadata: Any = None

    def request(self, idempotency_key: str | None) -> Request:
        """Return the wish as the core takes it."""
        return Request(**dict(self), idempotency_key=idempotency_key)


class ActionBody(Body):
    """What may be said with a cancel, pause, resume or retry; the message goes into the history."""

    message: Annotated[str, Field(max_length=2000)] = ""


class NoBody(Body):
    """Nothing, or an empty object."""


def _stored(state: State) -> State:
    if state not in STORED:
        raise ValueError("no task is ever found in this state")
    return state


Id = Annotated[str, Field(pattern=ID_PATTERN)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Owner = Annotated[str, Field(min_length=1, max_length=64)]


class ListQuery(Query):
    """Which tasks to list, and which page of them."""

    state: Annotated[State, AfterValidator(_stored)] | None = None
    type: Name | None = None
    queue: Name | None = None
    owner: Owner | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT)] = 50
    cursor: Annotated[str, Field(max_length=200)] | None = None


class WaitQuery(Query):
    """How long to hold the answer, in seconds; more than `WAIT_LIMIT` is taken as that."""

    wait: Annotated[int, Field(ge=0, le=10**9)] | None = None


class ResumeQuery(Query):
    """From where a stream goes on, for clients that cannot send the header."""

    last_event_id: Annotated[str, Field(max_length=200)] | None = None
    token: str | None = None  # a stream token, from those who cannot send the header either; read before all else


class EventsQuery(ResumeQuery):
    """Which tasks a stream tells of; several filters narrow each other down, `task` may be given often."""

    task: Annotated[list[Id], Field(max_length=TASKS_LIMIT)] = []
    owner: Owner | None = None
    type: Name | None = None
    queue: Name | None = None


class StreamTokenBody(Body):
    """What a stream token is to be good for: filters as of the stream, and its life in seconds."""

    task: Annotated[list[Id], Field(max_length=TASKS_LIMIT)] = []
    owner: Owner | None = None
    type: Name | None = None
    queue: Name | None = None
    ttl: Annotated[int, Field(ge=10, le=3600)] = 600


class SessionBody(Body):
    """The token for which a session stands."""

    token: Annotated[str, Field(max_length=200)]


class NoQuery(Query):
    """No parameter at all."""


def read_query(model: type[Model]) -> Model:
    """Return the query's values. Raises Refusal naming every fault."""
    given: dict[str, Any] = {}
    several = {name for name, field in model.model_fields.items() if get_origin(field.annotation) is list}
    for name, values in request.args.lists():
        if name not in several and len(values) > 1:
            raise wrong_query([(name, "given more than once")])
        given[name] = values if name in several else values[0]
    return _validated(model, given, _parameter, wrong_query)


def _parameter(name: object, *_inside: object) -> str:
    return str(name)


def read_body(model: type[Model]) -> Model:
    """Return the body's values; no body is an empty object. Raises Refusal naming every fault."""
    raw = request.get_data(cache=False)
    if not raw and request.mimetype != "application/json" and _demands_fields(model):
        raise Refusal(415, "not-json", "Only JSON is taken", "Content-Type: expected application/json")
    if request.content_length is not None and len(raw) < request.content_length:
        raise Refusal(400, "cut-off", "Not readable", "the body ends before its Content-Length")
    if request.content_length is None and len(raw) >= BODY_LIMIT:
        raise RequestEntityTooLarge  # sent in chunks: werkzeug stops reading at the limit and says nothing
    document: object = parse_json(raw) if raw else {}
    if not isinstance(document, dict):
        raise wrong_body([("", f"expected an object, got {type(document).__name__}")])
    return _validated(model, cast(dict[str, Any], document), pointer, wrong_body)


def _demands_fields(model: type[BaseModel]) -> bool:
    return any(field.is_required() for field in model.model_fields.values())


def _validated(
    model: type[Model],
    given: dict[str, Any],
    place: Callable[..., str],
    wrong: Callable[[Sequence[tuple[str, str]]], Refusal],
) -> Model:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        faults = [(place(*fault["loc"])[:200], _message(fault)) for fault in error.errors(include_url=False)]
        raise wrong(faults) from error


def _message(fault: Any) -> str:
    kind = fault["type"]
    if kind == "extra_forbidden":
        return "unknown name"
    return "required" if kind == "missing" else str(fault["msg"]).removeprefix("Value error, ")[:500]

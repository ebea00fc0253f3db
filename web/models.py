"""What clients may send, by field: bodies and queries are read here and nowhere else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar, cast, get_origin

from flask import request
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema
from werkzeug.exceptions import RequestEntityTooLarge

from ..jobs import bounds
from ..jobs.errors import FAULTS_LIMIT
from ..jobs.listing import PAGE_LIMIT
from ..jobs.names import ID, MESSAGE_LIMIT, NAME, OWNER_LIMIT
from ..jobs.receivers import URL_LIMIT
from ..jobs.submission import MOST_DEPENDENCIES, Request
from ..jobs.tokens import PREFIX
from ..jobs.values import text_fault
from ..statemachine import STORED, State
from .bodies import parse_json
from .guards import BODY_LIMIT
from .kinds import Kind
from .problems import Refusal, pointer, wrong_body, wrong_query
from .watch import TASKS_LIMIT

WAIT_LIMIT = 60
"""Most seconds that a long poll holds."""

ID_PATTERN = f"^{ID.pattern}$"
NAME_PATTERN = f"^{NAME.pattern}$"

OWNER_SAID = f"1 to {OWNER_LIMIT} bytes of printable text"

Model = TypeVar("Model", bound=BaseModel)


def _said(description: str, **constraints: Any) -> Any:
    """Return what the API's description says of a field; constraints that are checked elsewhere are only told."""
    return Field(description=description, json_schema_extra=constraints or None)


class Body(BaseModel):
    """A JSON object with these fields and no others; "1" is no number, and neither is true."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Query(BaseModel):
    """Query parameters with these names and no others; all values are text."""

    model_config = ConfigDict(extra="forbid")


def _given_time(value: object) -> float | None:
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


@dataclass(frozen=True, slots=True)
class Within:
    """The check of a number that may be left out; its message names the range."""

    allowed: bounds.Bounds

    def __call__(self, value: object) -> object:
        wrong = "" if value is None else bounds.fault(value, self.allowed)
        if wrong:
            raise ValueError(wrong)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self, handler(source))

    def __get_pydantic_json_schema__(self, _checked: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        allowed = self.allowed
        if isinstance(allowed, bounds.Count):
            return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": allowed.most}, {"type": "null"}]}
        none = [{"const": 0}] if allowed.or_none else []
        number = {"type": "number", "minimum": allowed.least, "maximum": allowed.most}
        return {"anyOf": [number, *none, {"type": "null"}]}


GivenTime = Annotated[
    float | None,
    BeforeValidator(_given_time),
    Within(bounds.MOMENT),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}, {"type": "null"}]}),
]
"""A time: seconds since 1970, or ISO 8601 with a zone."""


class SubmitBody(Body):
    """A task to run. Times are seconds."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"type": "video.thumbnails", "params": {"url": "https://example.com/film.mp4"}},
                {"type": "video.thumbnails", "params": {"url": "x", "count": 3}, "id": "film-7", "delay": 90.5},
            ]
        }
    )

    type: Annotated[str, _said("the task type, one of `GET /api/types`", pattern=NAME_PATTERN)]
    params: Annotated[dict[str, Any], _said("what the handler is called with; must fit the type's schema")] = {}
    queue: Annotated[str | None, _said("another queue than the type's", pattern=NAME_PATTERN)] = None
    id: Annotated[str | None, _said("the task's id; made up when it is left out", pattern=ID_PATTERN)] = None
    delay: Annotated[Any, Within(bounds.WAIT), _said("seconds to wait before it may start")] = None
    run_at: Annotated[GivenTime, _said("instead of a delay: seconds since 1970, or ISO 8601 with a zone")] = None
    timeout: Annotated[Any, Within(bounds.TIMEOUT), _said("longest run of one attempt, seconds")] = None
    stall_timeout: Annotated[
        Any, Within(bounds.CLOCK), _said("longest silence between two reports of progress, seconds; 0: any")
    ] = None
    max_retries: Annotated[Any, Within(bounds.ATTEMPTS), _said("further attempts after failures")] = None
    depends_on: Annotated[
        list[str], _said("ids of tasks that must end in SUCCESS first; they must exist", maxItems=MOST_DEPENDENCIES)
    ] = []
    owner: Annotated[str | None, _said(f"whose task it is, {OWNER_SAID}", maxLength=OWNER_LIMIT)] = None
    metadata: Annotated[Any, _said("the submitter's own data, any JSON of at most 1 MiB")] = None
    callback_url: Annotated[
        str | None, _said("where the end is told, https:// (`docs/callbacks.md`)", maxLength=URL_LIMIT)
    ] = None

    def request(self, idempotency_key: str | None) -> Request:
        """Return the wish as the core takes it."""
        return Request(**dict(self), idempotency_key=idempotency_key)


class ActionBody(Body):
    """What may be said with a cancel, pause, resume or retry."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"message": "the customer changed his mind"}, {}]})

    message: Annotated[str, Field(description=f"why, for the history: {MESSAGE_LIMIT} bytes of it are kept")] = ""


class NoBody(Body):
    """Nothing, or an empty object."""


def _stored(value: object) -> State:
    if value not in STORED:
        raise ValueError(f"expected one of {', '.join(STORED)}")
    return State(str(value))


def _owner(value: str) -> str:
    if wrong := text_fault(value, OWNER_LIMIT):
        raise ValueError(wrong)
    return value


Id = Annotated[str, Field(pattern=ID_PATTERN)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Owner = Annotated[str, AfterValidator(_owner), _said(OWNER_SAID, minLength=1, maxLength=OWNER_LIMIT)]
StoredState = Annotated[
    State, BeforeValidator(_stored), WithJsonSchema({"type": "string", "enum": [str(state) for state in STORED]})
]


class ListQuery(Query):
    """Which tasks to list, and which page of them."""

    state: Annotated[StoredState | None, _said("only tasks in this state")] = None
    type: Annotated[Name | None, _said("only tasks of this type; looked for record by record")] = None
    queue: Annotated[Name | None, _said("only tasks of this queue; from an index for PENDING ones")] = None
    owner: Annotated[Owner | None, _said("only tasks of this owner; from an index")] = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT, description="most tasks on the page")] = 50
    cursor: Annotated[
        Annotated[str, Field(max_length=200)] | None, _said("`next` of the page before; for the same filters")
    ] = None


class WaitQuery(Query):
    """How long to hold the answer."""

    wait: Annotated[
        Annotated[int, Field(ge=0, le=10**9)] | None,
        _said(f"seconds to hold the answer while nothing changes, as `Prefer: wait` does; {WAIT_LIMIT} at most"),
    ] = None


class ResumeQuery(Query):
    """From where a stream goes on."""

    last_event_id: Annotated[
        Annotated[str, Field(max_length=200)] | None, _said("for clients that cannot send Last-Event-ID")
    ] = None
    token: Annotated[str | None, _said("a stream token, for clients that cannot send Authorization")] = None


class EventsQuery(ResumeQuery):
    """Which tasks a stream tells of; several filters narrow each other down."""

    task: Annotated[list[Id], Field(max_length=TASKS_LIMIT, description="only these tasks; may be given often")] = []
    owner: Annotated[Owner | None, _said("only tasks of this owner")] = None
    type: Annotated[Name | None, _said("only tasks of this type")] = None
    queue: Annotated[Name | None, _said("only tasks of this queue")] = None


class StreamTokenBody(Body):
    """What a stream token is to be good for: filters as of the stream, and its life in seconds."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"owner": "ann", "ttl": 600}]})

    task: Annotated[list[Id], Field(max_length=TASKS_LIMIT, description="only these tasks")] = []
    owner: Annotated[Owner | None, _said("only this owner's tasks")] = None
    type: Annotated[Name | None, _said("only tasks of this type")] = None
    queue: Annotated[Name | None, _said("only tasks of this queue")] = None
    ttl: Annotated[int, Field(ge=10, le=3600, description="its life, seconds")] = 600


class SessionBody(Body):
    """The token for which a session stands."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"token": f"{PREFIX}0123456789ab_{'A' * 43}"}]})

    token: Annotated[str, Field(max_length=200, description="as `ghostless tokens add` printed it")]


class NextQuery(Query):
    """Where a person goes on after signing in; the page itself reads it."""

    next: Annotated[Annotated[str, Field(max_length=2000)] | None, _said("a path of this server")] = None


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
    if not raw and request.mimetype != "application/json" and demands_fields(model):
        raise Refusal(Kind.NOT_JSON, "Content-Type: expected application/json")
    if request.content_length is not None and len(raw) < request.content_length:
        raise Refusal(Kind.CUT_OFF, "the body ends before its Content-Length")
    if request.content_length is None and len(raw) >= BODY_LIMIT:
        raise RequestEntityTooLarge  # sent in chunks: werkzeug stops reading at the limit and says nothing
    document: object = parse_json(raw) if raw else {}
    if not isinstance(document, dict):
        raise wrong_body([("", f"expected an object, got {type(document).__name__}")])
    return _validated(model, cast(dict[str, Any], document), pointer, wrong_body)


def demands_fields(model: type[BaseModel]) -> bool:
    """Tell whether a body must say something."""
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
        found = error.errors(include_url=False)[: FAULTS_LIMIT + 1]  # there may be one for each few bytes of the body
        faults = [(place(*fault["loc"])[:200], _message(fault)) for fault in found]
        raise wrong(faults) from error


def _message(fault: Any) -> str:
    kind = fault["type"]
    if kind == "extra_forbidden":
        return "unknown name"
    return "required" if kind == "missing" else str(fault["msg"]).removeprefix("Value error, ")[:500]

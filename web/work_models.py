"""What workers over HTTP may send: claims, what they report of an attempt, and the task types that they serve."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

from pydantic import ConfigDict, Field

from ..jobs import bounds
from ..jobs.messages import Held
from ..jobs.terms import Terms
from .models import Body, Id, Name

TYPES_LIMIT = 50
"""Most task types that one claim names."""

LINES_LIMIT = 100
"""Most lines of a log in one call."""

BEATS_LIMIT = 500
"""Most attempts whose leases one call renews."""


_HELD: Final = {"worker": "box-1", "attempt": 1, "token": "6f1c0a9b2d3e4f50"}


def _like(example: Mapping[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [dict(example)]})


def _seconds(allowed: bounds.Seconds) -> Any:
    return Field(ge=0 if allowed.or_none else allowed.least, le=allowed.most)


_Timeout = Annotated[float, _seconds(bounds.TIMEOUT)]
_Backoff = Annotated[float, _seconds(bounds.BACKOFF)]
_Retention = Annotated[float, _seconds(bounds.RETENTION)]
_Clock = Annotated[float, _seconds(bounds.CLOCK)]
_Wait = Annotated[float, _seconds(bounds.WAIT)]
_Attempts = Annotated[int, Field(ge=0, le=bounds.ATTEMPTS.most)]

_Worker = Annotated[Name, Field(description="the worker's name, which no other one has")]
_Message = Annotated[str, Field(description="for the history: 2 KB of it are kept")]

Token = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]
"""A random number in hex, by which an attempt is known: who has it may write to the task."""


class ClaimBody(Body):
    """A worker's wish for a task of one of these types.

    A claim that is repeated with the same `token`, since its answer was lost, gets the same task again.
    """

    model_config = _like({"worker": "box-1", "types": ["video.thumbnails"]})

    worker: _Worker
    types: Annotated[
        list[Name], Field(min_length=1, max_length=TYPES_LIMIT, description="the task types that it serves")
    ]
    token: Annotated[
        Token | None, Field(description="a fresh random number in hex for each claim; the server makes one if not")
    ] = None


class HeldBody(Body):
    """The attempt of a task that a claim gave, and its token."""

    attempt: Annotated[int, Field(ge=1, le=10**9, description="as the claim told it")]
    token: Annotated[Token, Field(description="as the claim told it: who has it may write to the task")]

    def held(self, task_id: str) -> Held:
        """Return the right that is claimed."""
        return Held(task_id, self.attempt, self.token)


class AttemptBody(HeldBody):
    """Who writes to a task: the worker, and the attempt and token that its claim gave it."""

    model_config = _like(_HELD)

    worker: _Worker


class ProgressBody(AttemptBody):
    """How far an attempt is, from 0 to 1; 64 bytes of the message are kept."""

    model_config = _like(_HELD | {"fraction": 0.4, "message": "picture 4 of 10"})

    fraction: Annotated[float, Field(ge=0, le=1, description="how much is done")]
    message: Annotated[str, Field(description="what people see beside it: 64 bytes of it are kept")] = ""


class CheckpointBody(AttemptBody):
    """What a later attempt goes on from: any JSON of at most 1 MiB."""

    model_config = _like(_HELD | {"value": {"done": 4}})

    value: Annotated[Any, Field(description="what `checkpoint` of the next claim will be")]


class LogBody(AttemptBody):
    """Lines for the task's log; 2 KB of each are kept. Repeated with the same `call`, they are kept once."""

    model_config = _like(_HELD | {"lines": ["picture 4 is done"]})

    lines: Annotated[list[str], Field(min_length=1, max_length=LINES_LIMIT, description="in their order")]
    call: Annotated[Name | None, Field(description="a name for this call, the same when it is repeated")] = None


class CompleteBody(AttemptBody):
    """The result: any JSON of at most 1 MiB."""

    model_config = _like(_HELD | {"result": {"pictures": 10}})

    result: Annotated[Any, Field(description="what `result` of the task will be")] = None


class FailBody(AttemptBody):
    """How an attempt failed. With `deadline` or `stalled` it counts as timed out, with `crashed` as lost.

    `message` is for the history, 2 KB of it, and `error` the whole text, 64 KB of it. A further attempt follows where
    the policy allows one, unless it is not `retryable`, and no sooner than `retry_after` seconds from now.
    """

    model_config = _like(
        _HELD | {"error": "the film ends after 3 s", "message": "the film is too short", "retryable": False}
    )

    error: Annotated[str, Field(description="the whole text, such as a traceback: 64 KB of it are kept")] = ""
    message: _Message = ""
    reason: Annotated[
        Literal["exception", "crashed", "invalid_params", "bad_result", "deadline", "stalled"],
        Field(description="which budget it uses up, and what people see"),
    ] = "exception"
    retryable: Annotated[bool, Field(description="false: no further attempt, whatever the policy allows")] = True
    retry_after: Annotated[_Wait, Field(description="seconds until a further attempt, at least")] = 0


class SuspendBody(AttemptBody):
    """That an attempt was stopped at its last checkpoint: for a pause that was asked for, or since its worker ends."""

    model_config = _like(_HELD | {"reason": "shutdown"})

    reason: Annotated[
        Literal["user", "shutdown"],
        Field(description="`user` after a pause that was asked for; `shutdown` hands the task back"),
    ] = "user"
    message: _Message = ""


class StoppedBody(AttemptBody):
    """That an attempt was stopped since it was cancelled."""

    model_config = _like(_HELD)

    message: _Message = ""


class BeatOfOne(HeldBody):
    """One attempt among those whose leases are renewed together."""

    id: Annotated[Id, Field(description="the task's id")]


class BeatsBody(Body):
    """The attempts that a worker holds."""

    model_config = _like({"worker": "box-1", "tasks": [{"id": "film-7", "attempt": 1, "token": "6f1c0a9b2d3e4f50"}]})

    worker: _Worker
    tasks: Annotated[
        list[BeatOfOne],
        Field(min_length=1, max_length=BEATS_LIMIT, description="what it holds, each answered by itself"),
    ]


class TypeBody(Body):
    """A task type: its queue, the JSON Schema of its params, and its terms; times are seconds.

    What is not given has the default of `@task`.
    """

    model_config = _like({"queue": "media", "schema": {"type": "object", "properties": {"url": {"type": "string"}}}})

    queue: Annotated[Name, Field(description="where its tasks go unless a submit says otherwise")] = "default"
    params_schema: Annotated[
        dict[str, Any], Field(alias="schema", description="JSON Schema 2020-12 that the params of a submit must fit")
    ]
    description: Annotated[str, Field(max_length=500, description="for people")] = ""
    timeout: Annotated[_Timeout | None, Field(description="longest run of one attempt")] = None
    max_retries: Annotated[_Attempts | None, Field(description="further attempts after failures")] = None
    max_timeouts: Annotated[_Attempts | None, Field(description="further attempts after deadlines and stalls")] = None
    max_losses: Annotated[_Attempts | None, Field(description="further attempts after crashes and lost workers")] = None
    backoff: Annotated[
        _Backoff | None, Field(description="longest wait before the first retry; it doubles with each")
    ] = None
    backoff_cap: Annotated[_Backoff | None, Field(description="longest wait before any retry")] = None
    retention: Annotated[_Retention | None, Field(description="how long a task is kept once it is final")] = None
    stall_timeout: Annotated[
        _Clock | None, Field(description="longest silence between two reports of progress; 0: any")
    ] = None

    def terms(self) -> Terms:
        """Return the terms that were given."""
        return cast(Terms, self.model_dump(include=set(Terms.__annotations__), exclude_none=True))

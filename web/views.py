"""What clients get, by field: the answers as they are described. The core's values make them, these models say how.

All times are ms since 1970 by Redis' clock, spans are ms and sizes bytes, unless a field says otherwise.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema

from ..statemachine import ACTIONS, Event, Reason, State
from .models import ID_PATTERN, StoredState

ActionName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(ACTIONS)})]
Number = Annotated[int, Field(ge=0)]
Timestamp = Annotated[int, Field(description="ms since 1970, by Redis' clock", examples=[1_790_000_000_000])]
TaskId = Annotated[str, Field(description="the task's id", pattern=ID_PATTERN, examples=["film-7"])]
Cursor = Annotated[
    str, Field(description="a place in the history, to go on from as Last-Event-ID", examples=["5f2a.1790000000000-0"])
]


class View(BaseModel):
    """A JSON object with exactly these fields."""

    model_config = ConfigDict(extra="forbid")


class FaultView(View):
    """One thing wrong with a request: `pointer` names the place in the body, `parameter` the query's or the path's."""

    pointer: Annotated[str, Field(description="JSON pointer (RFC 6901) into the body")] = ""
    parameter: Annotated[str, Field(description="name of a parameter")] = ""
    detail: Annotated[str, Field(description="what was expected")]


class Problem(BaseModel):
    """An error (RFC 9457). Some kinds have further members, such as the `task` and the `state` it is in."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(pattern="^urn:ghostless:", description="the kind of error: docs/api.md lists them")]
    title: Annotated[str, Field(description="the kind of error, for a person")]
    status: Annotated[int, Field(ge=400, le=599, description="the answer's status")]
    detail: Annotated[str, Field(description="what happened this time, and what to do")]
    errors: Annotated[list[FaultView], Field(description="each thing wrong with the request")] = []


# Tasks


class PolicyView(View):
    """How long a task may run and how often it is tried. All times are ms."""

    timeout: Annotated[Number, Field(description="longest run of one attempt")]
    max_retries: Annotated[Number, Field(description="further attempts after failures")]
    max_timeouts: Annotated[Number, Field(description="further attempts after deadlines and stalls")]
    max_losses: Annotated[Number, Field(description="further attempts after crashes and lost workers")]
    backoff_base: Annotated[Number, Field(description="longest wait before the first retry")]
    backoff_cap: Annotated[Number, Field(description="longest wait before any retry")]
    retention: Annotated[Number, Field(description="how long the task is kept once it is final")]
    stall_timeout: Annotated[Number, Field(description="longest silence between two reports of progress; 0: any")]
    extend_by: Annotated[Number, Field(description="what progress adds at the timeout; 0: nothing")]
    max_runtime: Annotated[Number, Field(description="longest run with all that was added; 0: nothing is")]


class TaskView(View):
    """One task at one moment. Listings leave `params`, `metadata`, `depends_on`, `result` and `error` out (null)."""

    id: TaskId
    type: Annotated[str, Field(description="the task type")]
    queue: Annotated[str, Field(description="the queue that it runs from")]
    state: StoredState
    attempt: Annotated[Number, Field(description="the attempt that runs or ran last; 0 before the first")]
    submitted_at: Timestamp
    entered_at: Annotated[Timestamp, Field(description="since when it is in its state, ms since 1970")]
    policy: PolicyView
    owner: str | None
    worker_id: Annotated[str | None, Field(description="the worker that holds it, or held it last")]
    started_at: Annotated[int | None, Field(description="when its last attempt started, ms since 1970")]
    due_at: Annotated[int | None, Field(description="when its wait ends, ms since 1970")]
    timeout_at: Annotated[int | None, Field(description="when its attempt is over its time, ms since 1970")]
    parked_at: Annotated[int | None, Field(description="since when no worker that asked serves its type")]
    reason: Annotated[str | None, Field(description="why it is in its state, one word")]
    progress: Annotated[float | None, Field(description="how much is done, 0 to 1")]
    message: Annotated[str | None, Field(description="what the handler said with its progress")]
    progress_at: Annotated[int | None, Field(description="when it said so, ms since 1970")]
    failures: Annotated[Number, Field(description="failures since the last retry by a person")]
    timeouts: Annotated[Number, Field(description="deadlines and stalls since then")]
    losses: Annotated[Number, Field(description="crashes and lost workers since then")]
    dependencies: Annotated[Number, Field(description="how many tasks it depends on")]
    cursor: Cursor
    params: Annotated[JsonValue, Field(description="what it was submitted with")]
    metadata: Annotated[JsonValue, Field(description="the submitter's own data")]
    depends_on: Annotated[list[str] | None, Field(description="the ids of the tasks it depends on")]
    result: Annotated[JsonValue, Field(description="what its handler returned")]
    error: Annotated[str | None, Field(description="the text of its last failure, with the traceback")]
    finished_at: Annotated[int | None, Field(description="when it became final, ms since 1970")]


class DamagedView(View):
    """What is listed of a record that cannot be read; an operator's `ghostless doctor` says more."""

    id: str
    damaged: Literal[True]


class TaskList(View):
    """One page of tasks, the latest change first."""

    tasks: list[TaskView | DamagedView]
    next: Annotated[str | None, Field(description="the cursor of the next page; null on the last")]
    last_event_id: Annotated[Cursor, Field(description="the history's end before the page was read, for a stream")]


class SubmittedView(View):
    """What became of a submit."""

    id: TaskId
    state: StoredState
    created: Annotated[bool, Field(description="false when the task existed already")]


class EntryView(View):
    """One move of a task."""

    id: Annotated[str, Field(description="its place in the history")]
    at: Timestamp
    task: TaskId
    event: Event
    from_state: Annotated[State | None, Field(alias="from", description="null for a submit")]
    to_state: Annotated[State, Field(alias="to")]
    attempt: Number
    actor: Annotated[str, Field(description="who made it, such as `worker:NAME`, `api`, `watchdog:NAME`")]
    reason: Annotated[Reason, Field(description="why")]
    message: Annotated[str, Field(description="what there is to say of it")]
    type: str
    queue: str
    owner: str | None


class HistoryView(View):
    """Every move of a task, oldest first."""

    task: TaskId
    entries: list[EntryView]
    cursor: Cursor


class ExplanationView(View):
    """Where a task is, why, and what happens next."""

    id: TaskId
    state: StoredState
    since: Timestamp
    why: Annotated[str, Field(description="why it is in its state")]
    next: Annotated[str, Field(description="what happens next")]
    next_at: Annotated[int | None, Field(description="when, where that is known: ms since 1970")]
    evidence: Annotated[list[str], Field(description="what this was concluded from")]
    actions: Annotated[list[ActionName], Field(description="what a person can do now")]


# The whole


class ProbeView(View):
    """The answer of a probe that is content."""

    status: Literal["alive", "ready"]


class ArtifactView(View):
    """A file that a handler kept with `ctx.artifact`."""

    name: str
    size: Number
    is_picture: Annotated[bool, Field(description="whether a browser may show it; else it is saved")]


class ArtifactList(View):
    """What a task's attempts kept, by name."""

    task: TaskId
    artifacts: list[ArtifactView]

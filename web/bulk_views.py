"""What clients get of bulk actions, by field."""

from typing import Annotated, Literal

from pydantic import Field, RootModel

from .models import ID_PATTERN, StoredState
from .views import ActionName, DamagedView, Number, TaskId, Timestamp, View

BulkId = Annotated[str, Field(description="the bulk action's id", pattern=ID_PATTERN)]


class BegunView(View):
    """A bulk action that was accepted; watchdogs carry it out."""

    id: BulkId
    created: Annotated[bool, Field(description="false when it was begun before, with the same Idempotency-Key")]


class CountView(View):
    """What a bulk action would do now; nothing was changed."""

    matched: Annotated[Number, Field(description="tasks that the filter accepts and the action would move")]
    complete: Annotated[bool, Field(description="false when there may be more: at least so many then")]
    by_state: dict[StoredState, Number]
    sample: Annotated[list[TaskId], Field(description="some of their ids")]
    dry_run: Literal[True]


class BegunOrCount(RootModel[BegunView | CountView]):
    """A bulk action that was begun before, or a dry run's count."""


class BulkFilterView(View):
    """Which tasks a bulk action is for; what is not there does not restrict."""

    state: StoredState | None = None
    type: str | None = None
    queue: str | None = None
    owner: str | None = None
    after: Annotated[float | None, Field(description="seconds since 1970")] = None
    before: Annotated[float | None, Field(description="seconds since 1970")] = None
    all: bool | None = None


class ToldTask(View):
    """A task that could not be moved, and why."""

    id: str
    answer: str
    state: str


class BulkView(View):
    """How far a bulk action is, and what it did."""

    id: BulkId
    action: ActionName
    state: Literal["running", "done", "stopped"]
    filter: BulkFilterView
    number_of_ids: Annotated[Number, Field(description="tasks that the filter names")]
    limit: Annotated[Number, Field(description="tasks that it moves at most")]
    message: str
    counts: Annotated[dict[str, Number], Field(description="tasks by what became of them")]
    told: Annotated[list[ToldTask], Field(description="the first tasks that could not be moved")]
    reached_limit: Annotated[bool, Field(description="there may be more tasks that the filter accepts")]
    created_at: Timestamp
    created_by: str
    ended_at: Timestamp | None
    stopped_by: str | None
    note: Annotated[str | None, Field(description="what keeps it from going on, if anything")]


class BulkList(View):
    """The last bulk actions, the newest first."""

    bulk_actions: list[BulkView | DamagedView]

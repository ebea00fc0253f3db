"""What workers over HTTP are answered, by field. Times are seconds."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ..statemachine import State
from .views import View

Action = Literal["continue", "cancel", "pause"]


Lease = Annotated[float, Field(description="seconds of silence after which somebody else gets the task")]
Heartbeat = Annotated[float, Field(description="seconds between two beats")]


class ClaimView(View):
    """A task that was started for a worker: what it needs to run it."""

    id: str
    type: str
    queue: str
    owner: str | None
    worker: str
    attempt: Annotated[int, Field(description="number of this attempt, from 1")]
    token: Annotated[str, Field(description="the claim's own, else one that the server made")]
    params: Any
    checkpoint: Annotated[Any, Field(description="what an earlier attempt saved last; null when there is nothing")]
    results: Annotated[
        Mapping[str, Any] | None,
        Field(description="what the tasks returned that it depends on, by id; null when that is more than 1 MiB"),
    ]
    timeout: Annotated[float, Field(description="longest run of this attempt")]
    stall_timeout: Annotated[float | None, Field(description="longest silence between two reports of progress")]
    lease: Lease
    heartbeat: Heartbeat


class EndView(View):
    """The state that a task is in after an attempt ended, and the number of that attempt."""

    id: str
    state: State
    attempt: int


class AttemptView(EndView):
    """The state of a task whose attempt goes on, and what is to become of it."""

    action: Annotated[Action, Field(description="whether to go on, or to stop and confirm that")]
    lease: Lease
    heartbeat: Heartbeat


class BeatView(View):
    """What became of one beat among many."""

    id: str
    attempt: int
    outcome: Annotated[
        Literal["ok", "stale", "missing", "damaged", "unknown"],
        Field(description="`stale`, `missing`: stop its work; `damaged`: it cannot be read; `unknown`: try again"),
    ]
    state: State | None
    action: Annotated[Action | Literal["stop"], Field(description="what is to become of the attempt")]


class BeatsView(View):
    """What became of each beat, in the order of the call."""

    tasks: list[BeatView]
    lease: Lease
    heartbeat: Heartbeat

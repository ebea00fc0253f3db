"""What clients get of callbacks, by field."""

from typing import Annotated

from pydantic import Field

from ..jobs.delivery import DeliveryState
from .views import Number, TaskId, Timestamp, View


class TryView(View):
    """One try to deliver."""

    at: Timestamp
    took: Annotated[Number, Field(description="ms")]
    status: Annotated[int, Field(description="the receiver's answer; 0: there was none")]
    error: Annotated[str, Field(description="what went wrong; what the receiver said is not shown")]


class DeliveryView(View):
    """One end of a task, told to its callback."""

    id: Annotated[str, Field(description="the id of the history entry that is told")]
    task: TaskId
    type: Annotated[str, Field(description="what is told", examples=["task.success"])]
    receiver: Annotated[str, Field(description="scheme, host and port of the callback; never its path")]
    state: DeliveryState
    next_at: Annotated[int | None, Field(description="time of the next try; null when there is none")]
    tries: Annotated[list[TryView], Field(description="the last tries, the oldest first")]


class DeliveryList(View):
    """The deliveries of a task, the oldest first."""

    task: TaskId
    deliveries: list[DeliveryView]

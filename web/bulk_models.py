"""What a bulk action may say: which tasks it is for, and how many at most."""

from typing import Annotated

from pydantic import ConfigDict, Field

from ..jobs.bulk import IDS_MOST, LIMIT, USUAL_LIMIT, BulkFilter, BulkRequest
from ..jobs.listing import PAGE_LIMIT
from .models import ActionBody, Body, GivenTime, Id, Name, Owner, Query, StoredState


class BulkFilterBody(Body):
    """Which tasks a bulk action is for; at least one of these, or `all`.

    `after` and `before` bound the time of a task's last change of state, both included: seconds since 1970 or ISO 8601
    with a zone.
    """

    state: Annotated[StoredState | None, Field(description="in this state when their turn comes")] = None
    type: Annotated[Name | None, Field(description="of this type")] = None
    queue: Annotated[Name | None, Field(description="of this queue")] = None
    owner: Annotated[Owner | None, Field(description="of this owner")] = None
    after: Annotated[GivenTime, Field(description="that entered their state then or later")] = None
    before: Annotated[GivenTime, Field(description="that entered their state then or earlier")] = None
    ids: Annotated[list[Id], Field(max_length=IDS_MOST, description="these tasks")] = []
    all: Annotated[bool, Field(description="every task that the action may move")] = False


class BulkBody(ActionBody):
    """An action on many tasks: which ones, and how many at most; `dry_run` only counts them."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"filter": {"type": "video.thumbnails", "after": "2026-01-31T08:00:00Z"}, "dry_run": True},
                {"filter": {"ids": ["film-7"]}, "message": "the customer changed his mind"},
            ]
        }
    )

    filter: Annotated[BulkFilterBody, Field(description="which tasks")]
    limit: Annotated[int, Field(ge=1, le=LIMIT.most, description="tasks that are moved at most")] = USUAL_LIMIT
    dry_run: Annotated[bool, Field(description="only count and name some of them; nothing is changed")] = False

    def request(self, action: str, idempotency_key: str | None, bound_to: str | None) -> BulkRequest:
        """Return the wish as the core takes it."""
        wanted = BulkFilter(**dict(self.filter))
        return BulkRequest(action, wanted, self.limit, self.message, idempotency_key, bound_to)


class BulkListQuery(Query):
    """How many bulk actions to list."""

    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT, description="bulk actions at most")] = 50

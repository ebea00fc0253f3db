"""What clients get of tokens and sessions, by field."""

from typing import Annotated

from pydantic import Field

from ..jobs.tokens import Scope
from .views import Timestamp, View


class StreamTokenView(View):
    """A token that is good for one stream and the tasks in it."""

    token: Annotated[str, Field(description="for `Authorization: Bearer`, or `?token=` on the routes of events")]
    expires_at: Timestamp


class CallerView(View):
    """Who asks, and what he may do."""

    actor: Annotated[str, Field(description="his name in the history")]
    scopes: list[Scope]
    owner: Annotated[str | None, Field(description="whose tasks he sees; null: everybody's")]
    expires_at: Annotated[int | None, Field(description="when he must show something new; null: never")]

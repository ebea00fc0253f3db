"""Routes of streams."""

from collections.abc import Iterable

from flask import Blueprint, Response, request
from flask.typing import ResponseReturnValue

from ..jobs.errors import RedisUnavailable
from .access import Scope
from .described import OF_PATHS
from .desk import Desk, desk
from .frames import retry
from .hub import HubClosed
from .models import EventsQuery, ResumeQuery
from .names import task_id
from .operations import Answer, operation
from .sse import Stream
from .watch import Watch

EVENT_STREAM = "text/event-stream"

STREAMED = {
    200: Answer(
        EVENT_STREAM,
        meaning="`event: task` is a move, with a cursor as its id; `progress` and `log` are for those who listen now; "
        "`reset` says that moves may be missing; `end` that all tasks are final.",
    ),
    204: Answer(None, meaning="All tasks are final, and the client has seen it."),
}

routes = Blueprint("events", __name__, url_prefix="/api")


@routes.get("/events")
@operation(Scope.READ, query=EventsQuery, headers=("Last-Event-ID",), answers=STREAMED, problems=OF_PATHS)
def events(query: EventsQuery) -> ResponseReturnValue:
    """Stream what happens to the tasks that match all filters; without a filter, to all tasks."""
    return _stream(Watch(frozenset(query.task), query.owner, query.type, query.queue), query)


@routes.get("/tasks/<given_id>/events")
@operation(Scope.READ, query=ResumeQuery, headers=("Last-Event-ID",), answers=STREAMED)
def task_events(given_id: str, query: ResumeQuery) -> ResponseReturnValue:
    """Stream what happened and happens to one task."""
    return _stream(Watch(frozenset({task_id(given_id)})), query)


def _stream(watch: Watch, wanted: ResumeQuery) -> Response:
    last_event_id = request.headers.get("Last-Event-ID") or wanted.last_event_id or None
    try:
        return _opened(desk(), watch, last_event_id)
    except (HubClosed, RedisUnavailable):
        # A browser's EventSource gives up for good after any other status than 200.
        if EVENT_STREAM not in request.headers.get("Accept", ""):
            raise
        return _answer([retry()])


def _opened(here: Desk, watch: Watch, last_event_id: str | None) -> Response:
    inbox = here.hub.subscribe(watch)  # first, so that nothing falls between what is replayed and what is live
    try:
        stream = Stream(here.hub, here.past, watch, inbox)
        is_open = stream.start(last_event_id)
    except BaseException:
        here.hub.unsubscribe(inbox)
        raise
    if not is_open:
        here.hub.unsubscribe(inbox)
        return Response(status=204)
    answer = _answer(stream)
    # Not in the generator's `finally`: a client that leaves before the first byte never starts it.
    answer.call_on_close(lambda: here.hub.unsubscribe(inbox))
    return answer


def _answer(blocks: Iterable[bytes]) -> Response:
    answer = Response(blocks, content_type=EVENT_STREAM)
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["X-Accel-Buffering"] = "no"
    return answer

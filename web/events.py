"""Routes of streams."""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace

from flask import Blueprint, Response, request
from flask.typing import ResponseReturnValue

from ..jobs.errors import GhostlessError, RedisUnavailable
from .access import Scope, caller
from .confinement import places, watch_seen
from .credentials import NOBODY, Credential
from .described import OF_PATHS
from .desk import Desk, desk
from .frames import retry
from .hub import HubClosed, HubFull
from .keyring import Keyring
from .limits import TooManyListeners
from .listening import Listening
from .models import EventsQuery, ResumeQuery
from .names import task_id
from .operations import Reply, operation
from .peers import Peer
from .problems import of_error
from .sse import Stream, Terms
from .watch import Watch

EVENT_STREAM = "text/event-stream"

STREAMED = {
    200: Reply(
        EVENT_STREAM,
        meaning="`event: task` is a move, with a cursor as its id; `progress` and `log` are for those who listen now; "
        "`reset` says that moves may be missing; `end` that nothing more comes: `tasks` are final, `gone` are not "
        "there any more.",
    ),
    204: Reply(None, meaning="All tasks are final, and the client has seen it."),
}

log = logging.getLogger(__name__)

routes = Blueprint("events", __name__, url_prefix="/api")


@routes.get("/events")
@operation(
    Scope.READ,
    query=EventsQuery,
    headers=("Last-Event-ID",),
    streams=True,
    answers=STREAMED,
    problems=(*OF_PATHS, 429),
)
def events(query: EventsQuery) -> ResponseReturnValue:
    """Stream what happens to the tasks that match all filters; without a filter, to all tasks."""
    return _stream(Watch(frozenset(query.task), query.owner, query.type, query.queue), query)


@routes.get("/tasks/<given_id>/events")
@operation(Scope.READ, query=ResumeQuery, headers=("Last-Event-ID",), streams=True, answers=STREAMED, problems=(429,))
def task_events(given_id: str, query: ResumeQuery) -> ResponseReturnValue:
    """Stream what happened and happens to one task."""
    return _stream(Watch(frozenset({task_id(given_id)})), query)


def _stream(watch: Watch, wanted: ResumeQuery) -> Response:
    last_event_id = request.headers.get("Last-Event-ID") or wanted.last_event_id or None
    return _opened(desk(), watch_seen(watch, partly=last_event_id is not None), last_event_id)


@routes.errorhandler(HubClosed)
@routes.errorhandler(HubFull)
@routes.errorhandler(TooManyListeners)
@routes.errorhandler(RedisUnavailable)
def come_back(error: GhostlessError) -> Response:
    """Tell an EventSource to come back in a moment, also when nobody can tell whether its token is good."""
    if EVENT_STREAM not in request.headers.get("Accept", ""):
        return of_error(error)
    return _answer([retry()])  # it gives up for good after any other status than 200


def _opened(here: Desk, watch: Watch, last_event_id: str | None) -> Response:
    listening = Listening(here, watch)
    with ExitStack() as held:
        # First, so that nothing falls between what is replayed and what is live.
        inbox = held.enter_context(listening)
        stream = Stream(here.hub, here.past, watch, inbox, _terms())
        if not stream.start(last_event_id):
            return Response(status=204)
        answer = _answer(Body(_while_known(stream, caller().credential, here.keyring), listening))
        answer.direct_passthrough = True  # no wrapper around each block
        held.pop_all()
        return answer


def _terms() -> Terms:
    terms = Terms(peer=Peer(request.environ), places=places())
    expires_at = caller().expires_at
    # Who comes back after the end of his token must show a new one.
    return terms if expires_at is None else replace(terms, seconds=min(terms.seconds, expires_at - time.time()))


class Body:
    """What the server sends of a stream, and closes when the client left, also one who left before the first byte."""

    __slots__ = ("_blocks", "_listening")

    def __init__(self, blocks: Iterable[bytes], listening: Listening) -> None:
        self._blocks, self._listening = blocks, listening

    def __iter__(self) -> Iterator[bytes]:
        yield from self._blocks
        # Flask's own server does not close what has ended when a client resets its connection at that very moment.
        self.close()

    def close(self) -> None:
        """Listen no more."""
        self._listening.close()


def _while_known(blocks: Iterable[bytes], credential: Credential, keyring: Keyring) -> Iterable[bytes]:
    """Return a stream that ends when its client would not be let in any more."""
    return blocks if credential == NOBODY else _checked(blocks, credential, keyring)


def _checked(blocks: Iterable[bytes], credential: Credential, keyring: Keyring) -> Iterator[bytes]:
    """Look before each block, signs of life too."""
    for block in blocks:
        if not _may_go_on(credential, keyring):
            yield retry()
            return
        yield block


def _may_go_on(credential: Credential, keyring: Keyring) -> bool:
    try:
        return credential.is_good(keyring)
    except GhostlessError as error:  # nobody can tell, and nothing new can be told either
        log.info("a stream goes on although its token cannot be looked up: %s", error)
        return True


def _answer(blocks: Iterable[bytes]) -> Response:
    answer = Response(blocks, content_type=EVENT_STREAM)
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["X-Accel-Buffering"] = "no"
    return answer

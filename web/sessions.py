"""Routes that turn a token into what a browser can use: a stream token in an address, a session in a cookie."""

from flask import Blueprint, Response, jsonify
from flask.typing import ResponseReturnValue

from . import credentials
from .access import Scope, caller
from .confinement import watch_seen
from .cookies import end_session, start_session
from .desk import desk
from .models import SessionBody, StreamTokenBody
from .operations import Reply, operation
from .session_views import CallerView, StreamTokenView
from .watch import Watch

routes = Blueprint("sessions", __name__, url_prefix="/api")


@routes.post("/stream-tokens")
@operation(Scope.READ, body=StreamTokenBody, answers={200: StreamTokenView}, problems=(404,))
def stream_token(body: StreamTokenBody) -> ResponseReturnValue:
    """Return a token that is good for one stream and the tasks in it, for some minutes; asked again, a fresh one.

    It reads only: `/api/events`, and of a task `/api/tasks/{id}`, its `/events` and its `/history`. It may be used more
    than once, and stand in the address of events as `token`. It ends at `expires_at` (ms), or with the token behind.
    """
    watch = watch_seen(Watch(frozenset(body.task), body.owner, body.type, body.queue), partly=True)
    text, expires = credentials.stream_token(desk().keyring, caller().credential, watch, body.ttl)
    return jsonify(token=text, expires_at=expires)


@routes.post("/session")
@operation(None, body=SessionBody, answers={204: Reply(None, meaning="The cookie is set.")})
def log_in(body: SessionBody) -> ResponseReturnValue:
    """Begin a browser's session: the answer sets a cookie that stands for the token, and lives on while it is used."""
    credential = credentials.of_token(desk().keyring, body.token)
    answer = Response(status=204)
    if credential.token:
        start_session(answer, credential.token)
    return answer


@routes.get("/session")
@operation(None, answers={200: CallerView})
def who() -> ResponseReturnValue:
    """Return who asks: his name in the history, what he may do, and whose tasks he sees (null: everybody's)."""
    asks = caller()
    return jsonify(actor=asks.actor, scopes=sorted(asks.scopes), owner=asks.owner, expires_at=asks.credential.expires)


@routes.delete("/session")
@operation(None, answers={204: Reply(None, meaning="The session is over.")})
def log_out() -> ResponseReturnValue:
    """End a browser's session: its cookie is taken away, and good for nothing any more wherever it was copied to."""
    answer = Response(status=204)
    end_session(answer)
    return answer

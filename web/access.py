"""Who asks, and what he may do and see."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import Flask, Request, Response, current_app, g, request

from ..jobs.errors import GhostlessError, TaskConflict, TaskNotFound
from ..jobs.model import Task
from ..jobs.tokens import Scope, Token
from . import credentials
from .credentials import NOBODY, Credential
from .desk import desk
from .hosts import is_local
from .keyring import Keyring
from .names import task_id
from .problems import Refusal, of_error, problem
from .veil import unveiled, veiled
from .watch import Watch

SESSION_COOKIE = "ghostless_session"

SESSION_LIFE = 3600.0
"""Seconds that a session lives on after its last use; in the first half of them it is not renewed."""

log = logging.getLogger(__name__)

_DEMANDED = "TOKENS_DEMANDED"
_LONGEST_ACTOR = 64


@dataclass(frozen=True, slots=True)
class Caller:
    """One who asks: `actor` names him in the history; bound to an owner he sees that owner's tasks only."""

    actor: str
    scopes: frozenset[Scope]
    owner: str | None = None
    credential: Credential = NOBODY

    @classmethod
    def anonymous(cls) -> "Caller":
        """Return the caller of whom nothing is known, where nobody has to say who he is."""
        return cls("api", frozenset(Scope))

    @classmethod
    def of(cls, credential: Credential) -> "Caller":
        """Return the one who showed this."""
        token, watch = credential.token, credential.watch
        actor = f"api:{token.name}"[:_LONGEST_ACTOR] if token else "api"
        if watch:  # whose owner was checked against the token's when it was made
            return cls(actor, frozenset({Scope.READ}), watch.owner, credential)
        scopes = frozenset(scope for scope in Scope if token is None or token.allows(scope))
        return cls(actor, scopes, token.owner if token else None, credential)

    @property
    def is_anonymous(self) -> bool:
        """Whether nothing tells this caller from others."""
        return self.credential.token is None

    @property
    def expires_at(self) -> float | None:
        """When the caller must show something new, in seconds since 1970 by this server's clock; None: never."""
        ends = self.credential.expires
        return None if ends is None else time.time() + (ends - desk().keyring.look().now) / 1000

    def demand(self, scope: Scope, *, whole: bool = False, streams: bool = False) -> None:
        """Raise Refusal (403) when the caller has not this scope.

        `whole` is said of what tells of tasks of everybody, `streams` of what a stream token is enough for.
        """
        if scope not in self.scopes:
            raise _forbidden("missing-scope", f"this needs the scope {scope}")
        if self.credential.watch and not streams:
            raise _forbidden("stream-token", "a stream token is good for its stream and its tasks only")
        if whole and self.owner is not None:
            raise _forbidden("bound-token", "this tells of everybody's tasks: it needs a token without an owner")

    def may_see(self, owner: str | None) -> bool:
        """Tell whether tasks of this owner are the caller's business."""
        return self.owner is None or self.owner == owner

    def check(self, task: Task) -> None:
        """Raise TaskNotFound for a task that is not the caller's business, as if there were none."""
        if not self.may_see(task.owner) or not _is_of(self.credential.watch, task):
            raise TaskNotFound(task.id)

    def owner_wanted(self, owner: str | None) -> str | None:
        """Return the owner whose tasks a filter lets through. Raises Refusal (404) for somebody else's."""
        if owner is None:
            return self.owner
        if not self.may_see(owner):
            raise Refusal(404, "owner-not-found", "No such owner", "owner: no task that you may see has this owner")
        return owner

    def confirm(self) -> None:
        """Raise Refusal (401) when the caller would not be let in any more, since he was kept waiting."""
        if not self.credential.is_good(desk().keyring):
            raise credentials.unauthorized()


def install(app: Flask, *, tokens_demanded: bool) -> None:
    """Find out who asks, by what the request brings; hide from a bound caller what others have."""
    app.config[_DEMANDED] = tokens_demanded
    app.register_error_handler(TaskNotFound, _hidden)
    app.register_error_handler(TaskConflict, _nobodys)
    app.after_request(_renew_session)


def caller() -> Caller:
    """Return who makes the request that is served. Raises Refusal (401), RedisUnavailable."""
    if "caller" not in g:
        g.caller = Caller.of(_shown(request, desk().keyring))
    return g.caller


def tasks_seen(given: Sequence[str]) -> list[str]:
    """Return the ids. Raises TaskNotFound for one that the caller may not see, and Refusal for one that is none.

    Whether the task exists is for the route to find out; a task never changes its owner.
    """
    ids = [task_id(one) for one in given]
    if caller().owner is not None:
        owners = desk().client.reads.owners(ids)
        foreign = [one for one, owner in zip(ids, owners, strict=True) if not caller().may_see(owner)]
        if foreign:
            raise TaskNotFound(foreign[0])
    return ids


def task_seen(given: str) -> str:
    """Return the id; see `tasks_seen`."""
    return tasks_seen([given])[0]


def watch_seen(wanted: Watch) -> Watch:
    """Return what of a filter the caller may see. Raises Refusal (404) and TaskNotFound for what lies outside."""
    granted = caller().credential.watch or Watch()
    tasks_seen(sorted(wanted.tasks))
    if granted.tasks and (outside := sorted(wanted.tasks - granted.tasks)):
        raise TaskNotFound(outside[0])
    return Watch(
        wanted.tasks or granted.tasks,
        caller().owner_wanted(wanted.owner),
        _narrowed("type", wanted.type, granted.type),
        _narrowed("queue", wanted.queue, granted.queue),
    )


def cursor_read(text: str | None) -> str | None:
    """Return the cursor of a listing as the core takes it. Raises RedisUnavailable."""
    return unveiled(text, _key()) if text and caller().owner is not None else text


def cursor_shown(text: str | None) -> str | None:
    """Return the cursor of a listing as the caller may see it. Raises RedisUnavailable, RedisFull."""
    return veiled(text, _key()) if text and caller().owner is not None else text


def _key() -> str:
    keyring = desk().keyring
    return keyring.look().signing_key or keyring.tokens.signing_key()


def start_session(response: Response, token: Token) -> None:
    """Give the browser a cookie that stands for a token. Raises RedisUnavailable, RedisFull."""
    text = credentials.session(desk().keyring, token, SESSION_LIFE)
    response.set_cookie(SESSION_COOKIE, text, max_age=int(SESSION_LIFE), **_cookie_terms())


def end_session(response: Response) -> None:
    """Take the cookie away."""
    response.delete_cookie(SESSION_COOKIE, **_cookie_terms())


def _renew_session(response: Response) -> Response:
    """Let a session that is used live on."""
    used: Credential | None = g.get("session")
    if used is None or used.token is None or used.expires is None:
        return response
    try:
        if used.expires - desk().keyring.look().now < SESSION_LIFE * 500:
            start_session(response, used.token)
    except GhostlessError as error:  # the next answer may do it
        log.info("a session was not renewed: %s", error)
    return response


def _hidden(error: TaskNotFound) -> Response:
    """Tell a caller who is bound to an owner nothing of a task that was purged: nobody knows whose it was."""
    return of_error(TaskNotFound(error.task_id) if _is_bound() else error)


def _nobodys(error: TaskConflict) -> Response:
    """Tell a caller who is bound to an owner nothing of the task that has the id, unless it is his."""
    if not _is_bound() or caller().may_see(desk().client.reads.owners([error.task_id])[0]):
        return of_error(error)
    detail = "the id or the Idempotency-Key belongs to another task; nothing was stored"
    return problem(409, "task-conflict", "The id or the key belongs to another task", detail)


def _is_bound() -> bool:
    return "caller" in g and caller().owner is not None


def _cookie_terms() -> dict[str, Any]:
    # Never in plain text over a network; browsers differ in whether they count this machine as safe.
    return {"path": "/", "httponly": True, "samesite": "Strict", "secure": not is_local(request.host)}


def _shown(asked: Request, keyring: Keyring) -> Credential:
    credential = _given(asked, keyring)
    if credential.token is None and current_app.config[_DEMANDED]:
        raise credentials.unauthorized("This needs a token: `Authorization: Bearer gl_…`.")
    return credential


def _given(asked: Request, keyring: Keyring) -> Credential:
    """Return what the request brings; the header goes before the query, and that before the cookie."""
    header = asked.headers.get("Authorization")
    if header is not None:
        return _of_bearer(keyring, header)
    if "token" in asked.args:
        return credentials.of_stream_token(keyring, asked.args["token"])
    return _of_cookie(keyring, asked.cookies.get(SESSION_COOKIE, ""))


def _of_cookie(keyring: Keyring, text: str) -> Credential:
    try:
        g.session = credentials.of_session(keyring, text)
    except Refusal:  # a browser sends an old cookie by itself: it says as little as none
        return NOBODY
    return g.session


def _of_bearer(keyring: Keyring, header: str) -> Credential:
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "bearer":
        raise credentials.unauthorized("Authorization: expected `Bearer` and a token")
    text = text.strip()
    if text.startswith(credentials.STREAM_PREFIX):
        return credentials.of_stream_token(keyring, text)
    return credentials.of_token(keyring, text)


def _forbidden(kind: str, detail: str) -> Refusal:
    return Refusal(403, kind, "Not allowed", detail)


def _is_of(watch: Watch | None, task: Task) -> bool:
    if watch is None:
        return True
    pairs = ((watch.type, task.type), (watch.queue, task.queue))
    return task.id in (watch.tasks or {task.id}) and all(value is None or value == actual for value, actual in pairs)


def _narrowed(name: str, wanted: str | None, granted: str | None) -> str | None:
    if wanted is None or granted is None or wanted == granted:
        return wanted or granted
    raise Refusal(404, f"{name}-not-found", f"No such {name}", f"{name}: this stream token is for another one")

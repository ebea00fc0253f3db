"""Who asks, and what he may do and see."""

import time
from dataclasses import dataclass

from flask import Flask, Request, current_app, g, request

from ..jobs.errors import TaskNotFound
from ..jobs.model import Task
from ..jobs.tokens import PREFIX, Scope
from . import credentials
from .cookies import session_of
from .credentials import NOBODY, Credential
from .desk import desk
from .keyring import Keyring
from .kinds import Kind
from .problems import Refusal
from .watch import Watch

_DEMANDED = "TOKENS_DEMANDED"
_LONGEST_ACTOR = 64


ANONYMOUS = "api"
"""The actor in the history where nobody has to say who he is."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One who asks: `actor` names him in the history; bound to an owner he sees that owner's tasks only."""

    actor: str
    scopes: frozenset[Scope]
    owner: str | None = None
    credential: Credential = NOBODY

    @classmethod
    def of(cls, credential: Credential) -> "Caller":
        """Return the one who showed this."""
        token, watch = credential.token, credential.watch
        actor = f"api:{token.name}"[:_LONGEST_ACTOR] if token else ANONYMOUS
        if watch:  # whose owner was checked against the token's when it was made
            return cls(actor, frozenset({Scope.READ}), watch.owner, credential)
        scopes = frozenset(scope for scope in Scope if token is None or token.allows(scope))
        return cls(actor, scopes, token.owner if token else None, credential)

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
            raise Refusal(Kind.MISSING_SCOPE, f"this needs the scope {scope}")
        if self.credential.watch and not streams:
            raise Refusal(Kind.STREAM_TOKEN, "a stream token is good for its stream and its tasks only")
        if whole and self.owner is not None:
            raise Refusal(Kind.BOUND_TOKEN, "this tells of everybody's tasks: it needs a token without an owner")

    @property
    def is_confined(self) -> bool:
        """Whether there are tasks that he must not hear of."""
        return self.owner is not None or self.credential.watch is not None

    def may_see(self, owner: str | None) -> bool:
        """Tell whether tasks of this owner are the caller's business."""
        return self.owner is None or self.owner == owner

    def check(self, task: Task) -> None:
        """Raise TaskNotFound for a task that is not the caller's business, as if there were none."""
        if not self.sees(task):
            raise TaskNotFound(task.id)

    def sees(self, task: Task) -> bool:
        """Tell whether a task is the caller's business."""
        return self.may_see(task.owner) and self.granted.fits(task.id, task.owner or "", task.type, task.queue)

    @property
    def granted(self) -> Watch:
        """Return which tasks are there for him: those of his stream token, else all."""
        return self.credential.watch or Watch()

    def owner_wanted(self, owner: str | None) -> str | None:
        """Return the owner whose tasks a filter lets through. Raises Refusal (404) for somebody else's."""
        if owner is None:
            return self.owner
        if not self.may_see(owner):
            raise Refusal(Kind.OWNER_NOT_FOUND, "owner: no task that you may see has this owner")
        return owner

    def confirm(self) -> None:
        """Raise Refusal (401) when the caller would not be let in any more, since he was kept waiting."""
        if not self.credential.is_good(desk().keyring):
            raise credentials.unauthorized()


def install(app: Flask, *, tokens_demanded: bool) -> None:
    """Demand a token of everybody, or of nobody."""
    app.config[_DEMANDED] = tokens_demanded


def caller() -> Caller:
    """Return who makes the request that is served. Raises Refusal (401), RedisUnavailable."""
    if "caller" not in g:
        g.caller = Caller.of(_shown(request, desk().keyring))
    return g.caller


def _shown(asked: Request, keyring: Keyring) -> Credential:
    credential = _given(asked, keyring)
    if credential.token is None and current_app.config[_DEMANDED]:
        raise credentials.unauthorized(f"This needs a token: `Authorization: Bearer {PREFIX}…`.")
    return credential


def _given(asked: Request, keyring: Keyring) -> Credential:
    """Return what the request brings; the header goes before the query, and that before the cookie."""
    header = asked.headers.get("Authorization")
    if header is not None:
        return _of_bearer(keyring, header)
    if "token" in asked.args:
        return credentials.of_stream_token(keyring, asked.args["token"])
    return session_of(asked, keyring) or NOBODY


def _of_bearer(keyring: Keyring, header: str) -> Credential:
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "bearer":
        raise credentials.unauthorized("Authorization: expected `Bearer` and a token")
    text = text.strip()
    if text.startswith(credentials.STREAM_PREFIX):
        return credentials.of_stream_token(keyring, text)
    return credentials.of_token(keyring, text)

"""What a request brings to show who sends it: a token, or something that the server signed for one.

Stream tokens and session cookies are signed statements about a token of Redis: they end with it, or before it.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadData, URLSafeSerializer

from ..jobs.tokens import Token, split
from .keyring import Keyring
from .kinds import Kind
from .problems import Refusal
from .watch import Watch

STREAM_PREFIX = "gls_"
"""Begins a stream token, so that people and scanners tell it from others."""

_STREAM, _SESSION = "ghostless stream", "ghostless session"


@dataclass(frozen=True, slots=True)
class Credential:
    """What was shown: the token that stands behind it, None on a server that asks for none.

    Times are ms since 1970 by Redis' clock. A stream token has a `watch`: it is good for that and nothing else. What
    comes from a browser's session names it; of a cookie it is known when the session `ends`, however it is renewed.
    """

    token: Token | None = None
    expires: int | None = None
    watch: Watch | None = None
    session: str = ""
    ends: int | None = None

    def is_good(self, keyring: Keyring) -> bool:
        """Tell whether it would still be taken. Raises RedisUnavailable, CorruptRecord."""
        if self == NOBODY:
            return True
        sight = keyring.look(self.token.id if self.token else "", self.session)
        is_over = sight.session_ended or (self.expires is not None and self.expires <= sight.now)
        return sight.token == self.token and not is_over


NOBODY = Credential()
"""Where nobody has to show anything."""


def of_token(keyring: Keyring, text: str) -> Credential:
    """Return what a whole token is good for. Raises Refusal (401), RedisUnavailable."""
    parts = split(text)
    token = keyring.look(parts[0]).token if parts else None
    if token is None or parts is None or not token.matches(parts[1]):
        raise unauthorized()
    return _checked(keyring, Credential(token, token.expires))


def of_stream_token(keyring: Keyring, text: str) -> Credential:
    """Return what a stream token is good for. Raises Refusal (401), RedisUnavailable."""
    if not text.startswith(STREAM_PREFIX):
        raise unauthorized("Only a stream token may stand in an address; POST /api/stream-tokens makes one.")
    stated = _stated(keyring, _STREAM, text.removeprefix(STREAM_PREFIX))
    watch = Watch(frozenset(stated["task"]), stated["owner"], stated["type"], stated["queue"])
    return _checked(keyring, Credential(_parent(keyring, stated), stated["expires"], watch, stated["session"]))


def of_session(keyring: Keyring, text: str) -> Credential:
    """Return what a session's cookie is good for. Raises Refusal (401), RedisUnavailable."""
    stated = _stated(keyring, _SESSION, text)
    token, session_id, ends = _parent(keyring, stated), stated["session"], stated["ends"]
    return _checked(keyring, Credential(token, stated["expires"], None, session_id, ends))


def stream_token(keyring: Keyring, behind: Credential, watch: Watch, seconds: float) -> tuple[str, int]:
    """Return a stream token that lives for so many seconds, and when it ends. Raises RedisUnavailable, RedisFull."""
    filters = {"task": sorted(watch.tasks), "owner": watch.owner, "type": watch.type, "queue": watch.queue}
    text, expires = _signed(keyring, _STREAM, behind, seconds, filters)
    return STREAM_PREFIX + text, expires


def new_session(keyring: Keyring, token: Token, seconds: float) -> Credential:
    """Return a session that ends after so many seconds at most, or with its token. Raises RedisUnavailable."""
    ends = _earliest(keyring.look().now + round(seconds * 1000), token.expires)
    return Credential(token, session=secrets.token_hex(16), ends=ends)


def session_cookie(keyring: Keyring, behind: Credential, seconds: float) -> str:
    """Return a cookie of a session that is good for so many seconds. Raises RedisUnavailable, RedisFull."""
    return _signed(keyring, _SESSION, behind, seconds, {"ends": behind.ends})[0]


def unauthorized(detail: str = "The token is not valid: it is unknown, revoked or expired.") -> Refusal:
    """Return the refusal of a request whose sender is not known."""
    return Refusal(Kind.UNAUTHORIZED, detail)


def _signed(
    keyring: Keyring, kind: str, behind: Credential, seconds: float, more: Mapping[str, Any]
) -> tuple[str, int]:
    sight, token = keyring.look(), behind.token
    # The end is told by Redis' clock, since servers' clocks differ; hence no signature with a time of its own.
    expires = _earliest(sight.now + round(seconds * 1000), token.expires if token else None, behind.ends)
    key = sight.signing_key or keyring.tokens.signing_key()
    stated = {"token": token.id if token else "", "session": behind.session, "expires": expires, **more}
    return _serializer(key, kind).dumps(stated), expires


def _earliest(*times: int | None) -> int:
    return min(time for time in times if time is not None)


def _stated(keyring: Keyring, kind: str, text: str) -> Mapping[str, Any]:
    key = keyring.look().signing_key
    if key is None:  # nothing was ever signed
        raise unauthorized()
    try:
        return _serializer(key, kind).loads(text)
    except BadData as error:
        raise unauthorized() from error


def _serializer(key: str, kind: str) -> URLSafeSerializer:
    return URLSafeSerializer(key, salt=kind, signer_kwargs={"digest_method": hashlib.sha256})


def _parent(keyring: Keyring, stated: Mapping[str, Any]) -> Token | None:
    """Return the token behind a signed statement; None when it was made for somebody without one."""
    if not stated["token"]:
        return None
    token = keyring.look(stated["token"], stated["session"]).token
    if token is None:
        raise unauthorized()
    return token


def _checked(keyring: Keyring, credential: Credential) -> Credential:
    if not credential.is_good(keyring):
        raise unauthorized()
    return credential

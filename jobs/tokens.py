"""Tokens of the HTTP API: who may do what. Redis keeps a digest of each secret, never the secret."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, cast

from pydantic import Field, TypeAdapter, ValidationError
from redis import Redis

from . import bounds
from .errors import CorruptRecord, Fault, InvalidToken, TokenNotFound
from .keys import Keys
from .names import NAME, OWNER_LIMIT
from .scripts import milliseconds, translated
from .values import mismatch, text_fault

LIFE: Final = bounds.Seconds(1, 10 * 366 * bounds.DAY)

SECRET_BYTES: Final = 32

PREFIX: Final = "gl_"
"""Begins each token, so that scanners of leaked secrets find one."""

_TEXT: Final = re.compile(rf"{PREFIX}(?P<id>[0-9a-f]{{12}})_(?P<secret>[A-Za-z0-9_-]{{43}})")
"""What a whole token looks like."""


class Scope(StrEnum):
    """What a token allows; each is given by itself, and `admin` stands for all of them."""

    SUBMIT = "submit"
    READ = "read"
    OPERATE = "operate"
    WORK = "work"
    ADMIN = "admin"


OF_AN_OWNER: Final = frozenset({Scope.SUBMIT, Scope.READ, Scope.OPERATE})
"""Scopes that can be confined to one owner's tasks; the others concern tasks of everybody."""


@dataclass(frozen=True, slots=True)
class Token:
    """What Redis keeps of a token. Times are ms since 1970, by Redis' clock."""

    id: str
    name: str
    scopes: frozenset[Scope]
    hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # SHA-256 of the secret
    created: int
    owner: str | None = None  # whose tasks it is confined to
    expires: int | None = None

    def allows(self, scope: Scope) -> bool:
        """Tell whether the token has a scope."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def is_expired(self, now: int) -> bool:
        """Tell whether its life is over at a time in ms."""
        return self.expires is not None and self.expires <= now

    def matches(self, secret: str) -> bool:
        """Tell whether this is the token's secret, in a time that says nothing about it."""
        return hmac.compare_digest(self.hash, _digest(secret))

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON; the hash is nobody's business."""
        view = asdict(self) | {"scopes": sorted(self.scopes)}
        del view["hash"]
        return view


_JSON = TypeAdapter(Token)


@dataclass(frozen=True, slots=True)
class Sight:
    """What there is to know of a token at a moment (ms, by Redis' clock), and the key that signs what derives of it."""

    token: Token | None
    signing_key: str | None
    now: int
    session_ended: bool = False


class Tokens:
    """The tokens of one database. Every function raises RedisUnavailable when Redis does not answer."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def add(
        self, name: str, scopes: Collection[Scope], owner: str | None = None, seconds: float | None = None
    ) -> tuple[str, Token]:
        """Make a token that lives for so many seconds, None for ever; return its text, which nobody can tell again.

        Raises InvalidToken naming every fault. Tokens that have expired are forgotten on the way.
        """
        if faults := [Fault(field, message) for field, message in _faults(name, scopes, owner, seconds) if message]:
            raise InvalidToken(faults)
        known, now = self.all()
        token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(SECRET_BYTES)
        expires = None if seconds is None else now + round(seconds * 1000)
        token = Token(token_id, name, frozenset(scopes), _digest(secret), now, owner, expires)
        over = [old.id for old in known.values() if isinstance(old, Token) and old.is_expired(now)]
        with translated(), self._redis.pipeline() as pipeline:
            if over:
                pipeline.hdel(self._keys.tokens, *over)
            pipeline.hset(self._keys.tokens, token_id, _JSON.dump_json(token).decode())
            pipeline.execute()
        return f"{PREFIX}{token_id}_{secret}", token

    def all(self) -> tuple[dict[str, Token | CorruptRecord], int]:
        """Return every token by its id, a damaged one as its error, and the time in ms."""
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(self._keys.tokens)
            pipeline.time()
            stored, time = cast(tuple[dict[str, str], tuple[int, int]], pipeline.execute())
        return {token_id: _read(token_id, stored[token_id]) for token_id in sorted(stored)}, milliseconds(time)

    def revoke(self, token_id: str) -> None:
        """Forget a token: from now on nobody who has it is let in. Raises TokenNotFound."""
        with translated():
            if not self._redis.hdel(self._keys.tokens, token_id):
                raise TokenNotFound(token_id)

    def look(self, token_id: str, session_id: str = "") -> Sight:
        """Return what there is to know of a token, and of a session, in one round trip. Raises CorruptRecord."""
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hget(self._keys.tokens, token_id)
            pipeline.get(self._keys.signing_key)
            pipeline.exists(self._keys.session_ended(session_id))
            pipeline.time()
            text, key, ended, time = cast(tuple[str | None, str | None, int, tuple[int, int]], pipeline.execute())
        token = None if text is None else _read(token_id, text)
        if isinstance(token, CorruptRecord):
            raise token
        return Sight(token, key, milliseconds(time), bool(ended))

    def end_session(self, session_id: str, seconds: float) -> None:
        """End a session whose cookies might be good for so long. Raises RedisFull."""
        with translated():
            self._redis.set(self._keys.session_ended(session_id), "", px=max(1, round(seconds * 1000)))

    def signing_key(self) -> str:
        """Return the key with which all processes sign; the first one that asks makes it."""
        with translated(), self._redis.pipeline() as pipeline:
            pipeline.set(self._keys.signing_key, secrets.token_urlsafe(SECRET_BYTES), nx=True)
            pipeline.get(self._keys.signing_key)
            return cast(list[str], pipeline.execute())[-1]


def split(text: str) -> tuple[str, str] | None:
    """Return the id and the secret of a token's text; None for what is no token."""
    match = _TEXT.fullmatch(text)
    return (match["id"], match["secret"]) if match else None


def _digest(secret: str) -> str:
    # The secret is random and long, so nothing is gained by a slow hash.
    return hashlib.sha256(secret.encode()).hexdigest()


def _read(token_id: str, text: str) -> Token | CorruptRecord:
    try:
        token = _JSON.validate_json(text)
    except ValidationError as error:
        return CorruptRecord(f"token {token_id}: {error.error_count()} of its fields are not what they must be")
    return token if token.id == token_id else CorruptRecord(f"token {token_id}: its record is of another token")


def _faults(name: str, scopes: Collection[Scope], owner: str | None, seconds: float | None) -> list[tuple[str, str]]:
    wide = sorted(set(scopes) - OF_AN_OWNER)
    return [
        ("name", mismatch(name, NAME)),
        ("scope", "" if scopes else f"expected at least one of {', '.join(Scope)}"),
        ("owner", _owner_fault(owner, wide)),
        ("expires", "" if seconds is None else bounds.fault(seconds, LIFE)),
    ]


def _owner_fault(owner: str | None, wide: list[Scope]) -> str:
    if owner is None:
        return ""
    if wrong := text_fault(owner, OWNER_LIMIT):
        return wrong
    return f"a token with the scope {wide[0]} cannot be bound to one owner" if wide else ""

"""The scripts on a connection: called by SHA, loaded again when Redis forgot them, errors told as ours."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from redis import Redis
from redis.commands.core import Script
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from ..lua import render_all
from .errors import CorruptRecord, GhostlessError, RedisFull, RedisRefused, RedisUnavailable
from .keys import Keys, script_names

Argument = str | int | float | bytes
Call = tuple[str, Sequence[str], Sequence[Argument]]
"""A verb, its KEYS and its ARGV."""

LAST_MOMENT = 250_000_000_000_000
"""The end of time, in ms since 1970: a moment in the year 9892, that can still be shown as a date."""

_NOT_NOW = ("BUSY", "LOADING", "READONLY", "MASTERDOWN", "MISCONF", "TRYAGAIN", "NOREPLICAS", "UNBLOCKED")


@cache  # rendering takes as long as a hundred calls, and a process makes several stores
def _texts(keys: Keys) -> dict[str, str]:
    return render_all(script_names(keys))


class Scripts:
    """All verbs, ready to be called. Safe to use from several threads."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._scripts: dict[str, Script] = {verb: redis.register_script(text) for verb, text in _texts(keys).items()}

    def call(self, verb: str, keys: Sequence[str | bytes] = (), arguments: Sequence[Argument] = ()) -> Any:
        """Run one verb in one round trip. Raises RedisUnavailable, RedisFull or CorruptRecord."""
        script = self._scripts[verb]
        with translated():
            try:
                return self._redis.evalsha(script.sha, len(keys), *keys, *arguments)
            except NoScriptError:
                # The text itself: between loading it and calling it by SHA it could be flushed again.
                return self._redis.eval(str(script.script), len(keys), *keys, *arguments)

    def call_many(self, calls: Iterable[Call]) -> list[Any]:
        """Run many calls in one round trip; the reply of a call that failed is its error, not raised.

        EVALSHA in a pipeline cannot fall back by itself: each script is loaded in the same pipeline, and a call
        that still misses it (somebody flushed the scripts meanwhile) is repeated alone.
        """
        calls = list(calls)
        loads = sorted({verb for verb, _, _ in calls})
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for verb in loads:
                pipeline.script_load(str(self._scripts[verb].script))
            for verb, keys, arguments in calls:
                pipeline.evalsha(self._scripts[verb].sha, len(keys), *keys, *arguments)
            replies = pipeline.execute(raise_on_error=False)[len(loads) :]
        return [self._settle(call, reply) for call, reply in zip(calls, replies, strict=True)]

    def _settle(self, call: Call, reply: Any) -> Any:
        if isinstance(reply, NoScriptError):
            try:
                return self.call(*call)
            except GhostlessError as error:
                return error
        return translate(reply) if isinstance(reply, RedisError) else reply


@contextmanager
def translated(name: str = "") -> Generator[None]:
    """Turn redis-py's errors into ours; `name` is the one key that all is about, which Redis does not name."""
    try:
        yield
    except RedisError as error:
        raise translate(error, name) from error


def literal(name: str) -> str:
    """Return a pattern for SCAN that matches this name and no other."""
    return "".join(f"\\{character}" if character in "*?[]\\" else character for character in name)


def milliseconds(time: tuple[int, int]) -> int:
    """Return Redis' answer to TIME in ms."""
    return time[0] * 1000 + time[1] // 1000


def moment(score: float) -> int:
    """Return the score of an index in ms; for a damaged one, which may be infinite, the nearest time there is."""
    return int(max(0, min(score, LAST_MOMENT)))


def translate(error: RedisError, name: str = "") -> GhostlessError:
    """Return the error of ours that a Redis error means, when it is about the key of this name."""
    text = str(error)
    if isinstance(error, OutOfMemoryError) or text.startswith("OOM") or "command not allowed when used memory" in text:
        return RedisFull(text)
    if isinstance(error, ConnectionError | TimeoutError | BusyLoadingError | ReadOnlyError):
        return RedisUnavailable(error)
    if isinstance(error, ResponseError) and text.startswith(_NOT_NOW):
        return RedisUnavailable(error)
    if text.startswith("CORRUPT "):
        return CorruptRecord(text.removeprefix("CORRUPT "))
    if "WRONGTYPE" in text:
        return CorruptRecord(f"{name}: {text}; `ghostless doctor` tells of it" if name else text)
    return RedisRefused(text)

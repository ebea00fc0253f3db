"""Going over much without blocking Redis: lists of bounded length, and one round trip for each."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar, cast

from redis import Redis

from .scripts import translated

T = TypeVar("T")

TOGETHER = 500
"""Keys, members or tickets looked at in one round trip."""


def raw(name: str) -> bytes:
    """Return what Redis calls a name that was read with an exact connection, be it text or not."""
    return name.encode("utf-8", "surrogateescape")


def batches(values: Iterable[T], most: int = TOGETHER) -> Iterator[list[T]]:
    """Yield the values in lists of at most so many."""
    remaining = iter(values)
    while some := list(islice(remaining, most)):
        yield some


def ask_each(redis: Redis, command: str, names: Iterable[str], *arguments: Any) -> list[Any]:
    """Send one command for each of some keys, in one round trip; return the answers, errors among them."""
    with translated(), redis.pipeline(transaction=False) as pipeline:
        for name in names:
            getattr(pipeline, command)(raw(name), *arguments)
        return pipeline.execute(raise_on_error=False)


def members(redis: Redis, index: str) -> Iterator[str]:
    """Yield the members of a sorted set; one that moves meanwhile may come twice, or not at all."""
    with translated():
        found = cast(Iterator[tuple[str, float]], redis.zscan_iter(raw(index), count=TOGETHER))
        yield from (member for member, _ in found)


def elements(redis: Redis, name: str) -> Iterator[str]:
    """Yield the elements of a list; those that move meanwhile may come twice, or not at all."""
    start = 0
    while True:
        with translated():
            page = cast(list[str], redis.lrange(raw(name), start, start + TOGETHER - 1))
        yield from page
        if len(page) < TOGETHER:
            return
        start += TOGETHER

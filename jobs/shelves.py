"""Where listings look: tasks in indices by the time of their latest change, several indices read as one."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast

from redis import Redis

from ..lua import BAND, LISTED_FROM
from ..statemachine import State
from .keys import Keys
from .scripts import moment, translated

TIED = 100
"""Tasks that may have entered their states in the same millisecond without a further round trip for the next page."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a listing goes on: below this time (ms) and, at the same time, below this id."""

    entered_at: int
    task_id: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """The tasks of a sorted set by the time they entered their state: all of it, or its part of one state."""

    index: str
    state: State | None = None

    @property
    def start(self) -> int:
        """What its scores have in front of the time."""
        return 0 if self.state is None else LISTED_FROM[self.state]

    def bounds(self, latest: int | None = None) -> tuple[int | str, int | str]:
        """Return its least and highest score, no task on it newer than a time in ms if one is given."""
        if self.state is None:
            return "-inf", "+inf" if latest is None else latest
        end = self.start + BAND - 1
        return self.start, end if latest is None else min(end, self.start + latest)


def of_kinds(keys: Keys, places: Iterable[str], states: Sequence[State]) -> list[Shelf]:
    """Return the shelves of these "queue:type", in these states."""
    return [Shelf(keys.listed(place), state) for place in places for state in states]


def newest(redis: Redis, shelves: Sequence[Shelf], below: Position | None, limit: int) -> list[Position]:
    """Return at most `limit` places of the tasks on these shelves, the latest change first."""
    number = limit + (TIED if below else 1)
    while True:
        pages = _pages(redis, shelves, below, number)
        usable = [[place for place in page if below is None or _order(place) < _order(below)] for page in pages]
        # Even more can share a millisecond: read on until those above the position are passed.
        if all(len(page) < number or len(rest) >= limit for page, rest in zip(pages, usable, strict=True)):
            return _first(heapq.merge(*usable, key=_order, reverse=True), limit)
        number *= 2


def emptiest(redis: Redis, sides: Sequence[Sequence[Shelf]]) -> Sequence[Shelf]:
    """Return those of several shelves on which the fewest tasks stand."""
    with translated(), redis.pipeline(transaction=False) as pipeline:
        for shelf in (shelf for side in sides for shelf in side):
            pipeline.zcount(shelf.index, *shelf.bounds())
        numbers = iter(cast(list[int], pipeline.execute()))
    return min(sides, key=lambda side: sum(islice(numbers, len(side))))


def _pages(redis: Redis, shelves: Sequence[Shelf], below: Position | None, number: int) -> list[list[Position]]:
    with translated(), redis.pipeline(transaction=False) as pipeline:
        for shelf in shelves:
            least, highest = shelf.bounds(below.entered_at if below else None)
            pipeline.zrevrangebyscore(shelf.index, highest, least, start=0, num=number, withscores=True)
        pages = cast(list[list[tuple[str, float]]], pipeline.execute())
    return [
        [Position(moment(score - shelf.start), task_id) for task_id, score in page]
        for shelf, page in zip(shelves, pages, strict=True)
    ]


def _first(places: Iterable[Position], limit: int) -> list[Position]:
    """Return the first places; a task that moved while the indices were read is in two of them, and shown once."""
    found: dict[str, Position] = {}
    for place in places:
        if len(found) == limit and place.task_id not in found:
            break
        found.setdefault(place.task_id, place)
    return list(found.values())


def _order(place: Position) -> tuple[int, str]:
    return place.entered_at, place.task_id

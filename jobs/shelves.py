"""Where listings look: tasks in indices by the time of their latest change, several indices read as one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from redis import Redis

from ..lua import BAND, LISTED_FROM
from ..statemachine import State
from .keys import Keys
from .scripts import moment, translated


class Position(NamedTuple):
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


def sizes(redis: Redis, shelves: Sequence[Shelf]) -> list[int]:
    """Return how many tasks stand on each of these shelves."""
    with translated(), redis.pipeline(transaction=False) as pipeline:
        for shelf in shelves:
            pipeline.zcount(shelf.index, *shelf.bounds())
        return cast(list[int], pipeline.execute())


def newest(
    redis: Redis, shelves: Sequence[Shelf], below: Position | None, limit: int, *, at_once: bool = False
) -> list[Position]:
    """Return at most `limit` places of the tasks on these shelves, the latest change first.

    That is one round trip or two, and three at most; `at_once` makes it one, and reads that many of each shelf. Only
    where more tasks than a page entered their states in the same millisecond as the last one, it takes more.
    """
    # Of a later page's shelf, what is not below the position is read too.
    most, number = (limit if below is None else 2 * limit), 0
    found: list[Position] = []
    while shelves:
        number = max(4 * number, most if at_once else min(most, _depth(limit, len(shelves))))
        pages = _pages(redis, shelves, below, number)
        usable = (place for page in pages for place in page if below is None or place < below)
        found = _first(sorted({*found, *usable}, reverse=True), limit)
        shelves = [shelf for shelf, page in zip(shelves, pages, strict=True) if _goes_on(page, number, found, limit)]
    return found


def _depth(limit: int, shelves: int) -> int:
    """Return how far to read on each of so many shelves.

    However the tasks stand on them, at most 50 go on after the first look, 5 after the second, none after the third.
    """
    return max(limit // 50 + 1, 10 * limit // shelves)


def _goes_on(page: Sequence[Position], number: int, found: Sequence[Position], limit: int) -> bool:
    """Tell whether a shelf may hold more of the first `limit` places than the `number` that were read of it."""
    return len(page) == number and (len(found) < limit or page[-1] > found[-1])


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

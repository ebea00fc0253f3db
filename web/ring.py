"""The newest moves of the history, kept in memory, so that who was away for a moment costs Redis nothing.

They are replayed by small parts: a client that takes nothing holds one of them. Those who lack the same share it, so
that each move is matched and encoded once, however many were too slow together. The hub calls all of this under its
own lock.
"""

from bisect import bisect_right
from collections import deque
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from .cursors import ORIGIN, EntryId
from .frames import Moment, Moves
from .rooms import PENDING_LIMIT
from .watch import Watch

RING = 4096
"""Moves that are kept."""

PARTS = 2 * RING // PENDING_LIMIT
"""Parts that are kept for others who lack the same."""


class Part(NamedTuple):
    """What a watch accepts of the moves up to a place; empty for a client that is already there."""

    moves: Moves
    reached: EntryId


class Ring:
    """The moves behind a place, oldest first."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque()
        self._begins = ORIGIN
        self._parts: dict[tuple[Watch, EntryId], Part] = {}

    def append(self, moment: Moment) -> None:
        """Keep a move, instead of the oldest."""
        self._moments.append(moment)
        if len(self._moments) > RING:
            self._begins = self._moments.popleft().at

    def clear(self, begins: EntryId) -> None:
        """Forget all moves; the next ones are behind this place."""
        self._moments.clear()
        self._parts.clear()
        self._begins = begins

    def after(self, watch: Watch, at: EntryId) -> Part | None:
        """Return what a watch accepts of the next `PENDING_LIMIT` moves; None for a place that memory does not know.

        A place between two known moves is of a history that Redis lost; only Redis can tell.
        """
        key = watch, at
        if key not in self._parts and (part := self._read(watch, at)):
            if part.reached == at:
                return part  # not kept, as more will follow
            self._parts[key] = part
            if len(self._parts) > PARTS:
                del self._parts[next(iter(self._parts))]
        return self._parts.get(key)

    def _read(self, watch: Watch, at: EntryId) -> Part | None:
        start = bisect_right(self._moments, at, key=attrgetter("at"))
        if at != (self._moments[start - 1].at if start else self._begins):
            return None
        moments = list(islice(self._moments, start, start + PENDING_LIMIT))
        wanted = Moves([moment for moment in moments if watch.accepts(moment.entry)])
        return Part(wanted, moments[-1].at if moments else at)

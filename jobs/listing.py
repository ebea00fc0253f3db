"""Pages of a listing, the latest change first: bounded in time, however many tasks there are and however few fit.

Indices answer by any of state, type and queue together, and by an owner. What is left to look up in records is what
else is asked of an owner's tasks.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

from ..statemachine import STORED, State
from .batches import ask_each
from .errors import Fault, InvalidTask
from .model import Task
from .names import OWNER_LIMIT
from .reads import Damaged, Reads
from .shelves import Position, Shelf, newest, of_kinds, sizes
from .values import text_fault

PAGE_LIMIT = 500
"""Most tasks on one page of a listing."""

LOOKED_AT = 500
"""Records that one page looks at where no index answers all of its filter. The next page goes on from there."""

READ_AT_ONCE = 10 * LOOKED_AT
"""Places read at most to find those records beside an owner's own, where they are spread over several indices."""

_FILTERED = ("state", "type", "queue", "owner")


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing; `cursor` asks for the next one, None when this is the last."""

    tasks: tuple[Task | Damaged, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks a listing shows; None means any."""

    state: State | None = None
    type: str | None = None
    queue: str | None = None
    owner: str | None = None

    @property
    def needs_records(self) -> bool:
        """Whether no index alone can answer it."""
        return bool(self.owner and (self.state or self.type or self.queue))

    def accepts(self, task: Task | Damaged) -> bool:
        """Tell whether the listing shows this task; whose a damaged one is cannot be told."""
        if isinstance(task, Damaged):
            return not self.owner
        return self.fits([task.state, task.type, task.queue, task.owner])

    def shelves(self, reads: Reads) -> Sequence[Shelf]:
        """Return those on which all that it accepts stand, and as little besides as there are indices for."""
        if not self.owner:
            return self._of_anybody(reads)
        owned = Shelf(reads.keys.owned(self.owner))
        if not self.needs_records:
            return [owned]
        others = self._of_anybody(reads)
        his, *numbers = sizes(reads.redis, [owned, *others])
        is_shallow = sum(min(number, LOOKED_AT) for number in numbers) <= READ_AT_ONCE
        # One page goes over few of his; right after an upgrade his index may be the only one that is filled.
        return others if LOOKED_AT < his > sum(numbers) and is_shallow else [owned]

    def _of_anybody(self, reads: Reads) -> list[Shelf]:
        # Empty or not: a task that goes on while they are read, in the order of a life, is met in its next state.
        states = [self.state] if self.state else STORED
        if not (self.type or self.queue):
            return [Shelf(reads.keys.state(state)) for state in states]
        return of_kinds(reads.keys, filter(self._is_at, reads.places()), states)

    def _is_at(self, place: str) -> bool:
        queue, _, task_type = place.partition(":")
        return self.queue in (None, queue) and self.type in (None, task_type)

    def fits(self, fields: Sequence[str | None]) -> bool:
        """Tell whether a record with these fields is shown: its state, type, queue and owner."""
        wanted = (self.state, self.type, self.queue, self.owner)
        return all(value is None or value == actual for value, actual in zip(wanted, fields, strict=True))


def page_of(reads: Reads, wanted: Filter, limit: int, cursor: str | None) -> Page:
    """Return one page of tasks, the latest change first.

    A filtered page may hold fewer than `limit` tasks, even none, and still have a next one. Raises InvalidTask for a
    bad limit, owner or cursor.
    """
    if not 1 <= limit <= PAGE_LIMIT:
        raise InvalidTask([Fault("limit", f"expected 1 to {PAGE_LIMIT}, got {limit}")])
    if wanted.owner is not None and (wrong := text_fault(wanted.owner, OWNER_LIMIT)):
        raise InvalidTask([Fault("owner", wrong)])
    reached = None if cursor is None else _read_cursor(cursor)
    together = LOOKED_AT if wanted.needs_records else limit + 1
    shelves = wanted.shelves(reads)
    places = newest(reads.redis, shelves, reached, together, at_once=wanted.needs_records)
    found = _fitting(reads, wanted, places)[:limit]
    if places:
        reached = found[-1] if len(found) == limit else places[-1]
    is_last = len(places) < together and (not places or reached == places[-1])
    # A task can have left the state since its place in the index was read.
    tasks = filter(wanted.accepts, reads.tasks([place.task_id for place in found]))
    return Page(tuple(tasks), None if is_last else _cursor(reached))


def _fitting(reads: Reads, wanted: Filter, places: list[Position]) -> list[Position]:
    """Return the places of those records that the filter accepts, read without the rest of them."""
    if not wanted.needs_records:
        return places
    records = ask_each(reads.redis, "hmget", (reads.keys.task(place.task_id) for place in places), _FILTERED)
    return [
        place
        for place, record in zip(places, records, strict=True)
        if not isinstance(record, Exception) and wanted.fits(record)
    ]


def _cursor(place: Position | None) -> str | None:
    if place is None:
        return None
    return base64.urlsafe_b64encode(f"{place.entered_at} {place.task_id}".encode()).decode()


def _read_cursor(cursor: str) -> Position:
    try:
        entered_at, _, task_id = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        return Position(int(entered_at), task_id)
    except (binascii.Error, ValueError) as error:
        raise InvalidTask([Fault("cursor", "expected a cursor of an earlier page")]) from error

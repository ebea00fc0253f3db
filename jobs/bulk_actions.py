"""Bulk actions in Redis: accepted in one call, worked off by the watchdogs a page at a time, and counted beforehand."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from redis import WatchError

from ..lua import BATCH
from ..statemachine import State
from .batches import TOGETHER, ask_each, batches
from .bulk import LOOKED_AT, BulkAction, BulkFilter, BulkRequest
from .errors import BulkActionConflict, BulkActionNotFound, CorruptRecord, TooManyBulkActions
from .messages import Swept
from .reads import Damaged, Reads
from .scripts import translated
from .store import Store
from .submission import new_id

KEPT_FOR: Final = 7 * 86_400_000
"""Milliseconds that the record of a bulk action is kept after its end."""

LISTED: Final = 1000
"""Bulk actions that can be listed: the newest."""

RUNNING: Final = 1000
"""Bulk actions that may run at a time."""

OWNERS_RUNNING: Final = 10
"""Those of them that may be bound to one owner."""

OWNERS_LISTED: Final = 100
"""Those of the listed ones that may be bound to one owner: the newest of his."""

LOOKS: Final = 500
"""Tasks that one call looks at, most of which the filter may pass over."""

PAGE_TIME: Final = 1000
"""Microseconds after which a call ends, however few tasks it has moved: others wait for Redis meanwhile."""

PASSES: Final = 10
"""Times that a bulk action goes after those that moved on meanwhile."""

COUNTED: Final = 5_000
"""Tasks that are looked at to tell how many a filter accepts: as many as do not keep who asks waiting."""

SAMPLE: Final = 20
"""Ids of such tasks that are told."""


class Begun(NamedTuple):
    """An accepted bulk action; `created` is False when it existed already."""

    bulk_id: str
    created: bool


@dataclass(slots=True)
class Count:
    """How many tasks an action would move now, at least when not `complete`; how many by state, and some of them."""

    matched: int = 0
    complete: bool = True
    by_state: dict[State, int] = field(default_factory=dict[State, int])
    sample: list[str] = field(default_factory=list[str])

    def add(self, state: State, ids: Sequence[str], number: int) -> None:
        """Count tasks in a state, of which some ids are known."""
        self.matched += number
        if number:
            self.by_state[state] = self.by_state.get(state, 0) + number
        self.sample += ids[: SAMPLE - len(self.sample)]


class BulkActions:
    """The bulk actions of one database. Every function raises RedisUnavailable, RedisFull or CorruptRecord."""

    def __init__(self, store: Store) -> None:
        self.redis, self.keys, self._scripts = store.redis, store.keys, store.scripts
        self._reads = Reads(store.redis, store.keys)

    def begin(self, request: BulkRequest, actor: str = "client") -> Begun:
        """Accept a bulk action; the watchdogs carry it out.

        Only tasks that were submitted before are touched. Where the filter names a state or a time, and for resume and
        retry, a task must be in its state since before too; a cancel or a pause goes after one that moves on meanwhile.
        Raises InvalidBulkAction, BulkActionConflict, TooManyBulkActions.
        """
        wish = request.checked()
        bulk_id = wish.id_of_key() or new_id()
        bounds = (RUNNING, LISTED, OWNERS_RUNNING, OWNERS_LISTED)
        arguments = (wish.fingerprint, *bounds, wish.pack(actor), *wish.filter.ids)
        word = self._scripts.call("begin_bulk", [self.keys.bulk(bulk_id)], arguments)[0]
        if word == "conflict":
            raise BulkActionConflict(bulk_id, wish.idempotency_key or "")
        if word == "refused":
            raise TooManyBulkActions(OWNERS_RUNNING if wish.bound_to else RUNNING)
        return Begun(bulk_id, word == "moved")

    def work_off(self) -> Swept:
        """Do a page of the bulk action whose turn it is; a full batch was looked at when more is to be done at once."""
        more, moved, *problems = self._scripts.call("work_bulk", (), (LOOKS, PAGE_TIME, KEPT_FOR, PASSES))
        return Swept(BATCH if more else moved, moved, tuple(problems))

    def stop(self, bulk_id: str, actor: str = "client") -> bool:
        """End a bulk action; what it has done stays done. Tell whether it still ran. Raises BulkActionNotFound."""
        word = self._scripts.call("stop_bulk", [self.keys.bulk(bulk_id)], (actor, KEPT_FOR))[0]
        if word == "missing":
            raise BulkActionNotFound(bulk_id)
        return word == "moved"

    # Records and turns, for the doctor

    def is_over(self, bulk_id: str) -> bool:
        """Tell whether its record says that it has ended. Raises CorruptRecord."""
        with translated():
            return bool(self.redis.hexists(self.keys.bulk(bulk_id), "ended_at"))

    def is_stranded(self, bulk_id: str, *, repairs: bool) -> bool:
        """Tell whether a bulk action has not ended and has no turn; with `repairs` it gets one."""
        return not self._has_turn(bulk_id) and self._puts_right(bulk_id, is_lost=False, repairs=repairs)

    def is_lost(self, bulk_id: str, *, repairs: bool) -> bool:
        """Tell whether a turn is that of a bulk action without a record; with `repairs` it is taken out."""
        return self._has_turn(bulk_id) and self._puts_right(bulk_id, is_lost=True, repairs=repairs)

    def _has_turn(self, bulk_id: str) -> bool:
        with translated():
            return self.redis.lpos(self.keys.bulks_running, bulk_id) is not None

    def _puts_right(self, bulk_id: str, *, is_lost: bool, repairs: bool) -> bool:
        """Tell whether a record is gone, or else not over; nobody may change it between this look and the repair."""
        name, running = self.keys.bulk(bulk_id), self.keys.bulks_running
        with translated(), self.redis.pipeline() as pipeline:
            pipeline.watch(name)
            is_wrong = not pipeline.exists(name) if is_lost else pipeline.hexists(name, "ended_at") == 0
            if is_wrong and repairs:
                pipeline.multi()
                pipeline.lrem(running, 0, bulk_id)
                pipeline.delete(self.keys.bulk_ids(bulk_id)) if is_lost else pipeline.rpush(running, bulk_id)
                with suppress(WatchError):  # it is looked at by somebody else just now, who puts it right
                    pipeline.execute()
            return bool(is_wrong)

    # Reading

    def get(self, bulk_id: str, bound_to: str | None = None) -> BulkAction:
        """Return a bulk action. Raises BulkActionNotFound, also for one that is not bound to the owner `bound_to`."""
        found = self._read([bulk_id])[0]
        if found is None or not _is_for(found, bound_to):
            raise BulkActionNotFound(bulk_id)
        if isinstance(found, Damaged):
            raise CorruptRecord(found.detail)
        return found

    def newest(self, limit: int = 50, bound_to: str | None = None) -> list[BulkAction | Damaged]:
        """Return bulk actions, the newest first; only those that are bound to an owner, when one is given."""
        # All records count where there is no owner to look for: no more are read than are wanted.
        return list(islice(self._listed(bound_to, TOGETHER if bound_to else limit), limit))

    def _listed(self, bound_to: str | None, together: int) -> Iterator[BulkAction | Damaged]:
        with translated():
            ids = cast(list[str], self.redis.lrange(self.keys.bulks, 0, LISTED - 1))
        for some in batches(ids, together):
            yield from (one for one in self._read(some) if one and _is_for(one, bound_to))

    def _read(self, bulk_ids: Sequence[str]) -> list[BulkAction | Damaged | None]:
        records = ask_each(self.redis, "hgetall", map(self.keys.bulk, bulk_ids))
        is_watched = not any(map(_runs, records)) or self._reads.is_watched()  # who has ended waits for nobody
        return [_readable(*pair, is_watched) for pair in zip(bulk_ids, records, strict=True)]

    # Counting beforehand

    def count(self, request: BulkRequest) -> Count:
        """Count the tasks that the action would move now, and change nothing. Raises InvalidBulkAction."""
        wish = request.checked()
        states = wish.filter.states(wish.action)
        if not wish.filter.needs_records:
            return self._counted_by_index(wish.filter, states)
        count, looked = Count(), 0
        for some in batches(wish.filter.ids or self._placed(wish.filter, states)):
            if looked >= COUNTED:
                count.complete = False
                break
            looked += len(some)
            for task_id, state in self._accepted(wish.filter, some):
                if state in states:
                    count.add(state, [task_id], 1)
        return count

    def _counted_by_index(self, wanted: BulkFilter, states: Sequence[State]) -> Count:
        count = Count()
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for index in map(self.keys.state, states):
                pipeline.zcount(index, wanted.earliest, wanted.latest)
                pipeline.zrange(index, wanted.earliest, wanted.latest, byscore=True, offset=0, num=SAMPLE)
            answers = iter(pipeline.execute())
        for state in states:
            number, ids = next(answers), next(answers)
            count.add(state, ids, number)
        return count

    def _placed(self, wanted: BulkFilter, states: Sequence[State]) -> Iterator[str]:
        """Yield the ids in the indices of these states, the oldest first; one that moves meanwhile may be missed."""
        for index in map(self.keys.state, states):
            for start in range(0, COUNTED + 1, TOGETHER):
                with translated():
                    page = self.redis.zrange(
                        index, wanted.earliest, wanted.latest, byscore=True, offset=start, num=TOGETHER
                    )
                yield from cast(list[str], page)
                if len(cast(list[str], page)) < TOGETHER:
                    break

    def _accepted(self, wanted: BulkFilter, task_ids: Sequence[str]) -> Iterator[tuple[str, State]]:
        records = ask_each(self.redis, "hmget", map(self.keys.task, task_ids), LOOKED_AT)
        for task_id, values in zip(task_ids, records, strict=True):
            if not isinstance(values, Exception) and wanted.accepts(dict(zip(LOOKED_AT, values, strict=True))):
                yield task_id, values[0]


def _runs(record: Any) -> bool:
    return isinstance(record, dict) and bool(record) and "ended_at" not in record  # pyright: ignore


def _is_for(found: BulkAction | Damaged, bound_to: str | None) -> bool:
    return not bound_to or (isinstance(found, BulkAction) and found.bound_to == bound_to)


def _readable(bulk_id: str, record: Any, is_watched: bool) -> BulkAction | Damaged | None:
    if isinstance(record, Exception):
        return Damaged(bulk_id, f"bulk action {bulk_id}: {record}")
    try:
        return BulkAction.from_fields(bulk_id, record, is_watched=is_watched) if record else None
    except CorruptRecord as error:
        return Damaged(bulk_id, error.detail)

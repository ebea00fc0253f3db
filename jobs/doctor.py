"""The audit of a whole database: streams over everything stored, blocks nothing, and tells each broken invariant.

What is wrong with a task is decided by a script, in one step with fresh state, so no task in motion is suspected. What
is gathered here are the ids to decide on: from the records, the indices, the values, the history and the tickets.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from ..lua.loader import VALUES
from ..statemachine import STORED, State, graph
from .batches import TOGETHER, ask_each, batches, members, raw
from .deliveries import Deliveries, Overview
from .endings import Endings
from .errors import CorruptRecord
from .inventory import Place, place_of
from .keys import INDICES, SINGLE_INDICES, pair
from .reads import Reads
from .scripts import literal, translated
from .shapes import Shapes
from .store import Store
from .tickets import Tickets
from .upkeep import Finding, Upkeep

REMEDIES = {
    "repaired": "repaired",
    "removed": "removed",
    "repairable": "--repair puts it right",
    "remains": "--repair removes it",
    "later": "the watchdog, or --repair, makes a new ticket",
    "kept": "it cannot be put right: look at it by hand",
}
"""What becomes of a problem, by its outcome."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken invariant: which rule, whose ("-" for nobody's), what is wrong, and what becomes of it."""

    rule: str
    task_id: str
    what: str
    outcome: str

    @property
    def is_solved(self) -> bool:
        """Whether it is wrong no more."""
        return self.outcome in ("repaired", "removed")

    def __str__(self) -> str:
        return _printable(f"{self.rule}: {self.task_id}: {self.what}; {REMEDIES[self.outcome]}")

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        told = asdict(self) | {"remedy": REMEDIES[self.outcome]}
        return {name: _printable(text) for name, text in told.items()}


def _printable(text: str) -> str:
    """Return the text with bytes that are none as \\xff."""
    return raw(text).decode("utf-8", "backslashreplace")


class Doctor:
    """Audits one database, and repairs it when an `actor` is named. Every function raises RedisUnavailable."""

    def __init__(self, store: Store, actor: str = "") -> None:
        self.store, self.redis, self.keys, self.actor = store, store.redis, store.keys, actor
        self.tasks = self.entries = 0  # seen by the audit
        self.deliveries = Overview(0, 0)  # of callbacks, seen too
        self._reads, self._upkeep, self._tickets = Reads(store.redis, store.keys), Upkeep(store), Tickets(store, actor)
        self._callbacks = Deliveries(store.redis, store.keys, store.scripts)
        self._endings, self._shapes = Endings(store, actor), Shapes(store, actor)
        self._indices: set[str] = set()
        self._queues: set[str] = set()
        self._hosts: set[str] = set()  # to which something is to be delivered
        self._remains: dict[str, set[str]] = defaultdict(set)  # id of a task without a record -> keys that speak of it
        self._last_entry: dict[str, str] = {}  # the same id -> its last history entry
        self._unlisted: set[str] = set()  # ids of tasks that their queue's index of their type lacked

    @property
    def queues(self) -> int:
        """How many queues the audit saw."""
        return len(self._queues)

    def is_watched(self) -> bool:
        """Tell whether a watchdog runs."""
        return self._reads.is_watched()

    def audit(self) -> Iterator[Problem]:
        """Yield every invariant that is broken, each once."""
        told: set[str] = set()
        phases = (
            *(
                self._table,
                self._whole,
                self._stored,
                self._listed,
                self._empty_parkings,
                self._history,
                self._ticketed,
            ),
            *(self._not_listed, self._lost, self._ledger, self._delivered, self._quarantined),
        )
        for phase in phases:
            for problem in self._spared(phase):
                if str(problem) not in told:
                    told.add(str(problem))
                    yield problem

    def _spared(self, phase: Callable[[], Iterable[Problem]]) -> Iterator[Problem]:
        """Let what is damaged end one part of the audit only."""
        try:
            yield from phase()
        except CorruptRecord as error:
            if "WRONGTYPE" not in error.detail:  # which names no key; `Shapes` told of it
                yield Problem("c", "-", error.detail, "kept")

    def _table(self) -> Iterator[Problem]:
        yield from (Problem("e", "-", f"the transition table: {fault}", "kept") for fault in graph.problems())

    # What is stored: the keys, and with them the tasks

    def _whole(self) -> Iterator[Problem]:
        """Tell of the keys of which there is one each, whatever ends the rest of the audit."""
        yield from self._found(self._shapes.of_the_whole())

    def _stored(self) -> Iterator[Problem]:
        fixed = (getattr(self.keys, name) for name in SINGLE_INDICES)
        self._indices = {*fixed, *map(self.keys.state, STORED)}
        self._queues = set(self._reads.queues())
        for names in batches(self._scan()):
            places = {name: place_of(self.keys, name) for name in names}
            self._note(places.items())
            yield from self._found(self._shapes.audit(places))
            tasks = [place.id for place in places.values() if place.family == "task"]
            self.tasks += len(tasks)
            yield from self._compared(tasks)
            owned = {place.id for place in places.values() if place.family in (*VALUES, "heartbeat")}
            yield from self._compared(self._missing(sorted(owned)))
            for name, place in places.items():
                if place.life == "ending":
                    yield from self._found(self._endings.audit(name, place))

    def _scan(self) -> Iterator[str]:
        with translated():
            yield from cast(Iterator[str], self.redis.scan_iter(f"{literal(self.keys.prefix)}*", count=TOGETHER))

    def _note(self, places: Iterable[tuple[str, Place]]) -> None:
        for name, place in places:
            if place.family in INDICES:
                self._indices.add(name)
            if place.family in ("pending", "parked", "parked_types"):
                self._queues.add(place.id.partition(":")[0])
            if place.family == "due_deliveries":
                self._hosts.add(place.id)

    def _missing(self, task_ids: Sequence[str]) -> list[str]:
        there = ask_each(self.redis, "exists", map(self.keys.task, task_ids))
        return [task_id for task_id, exists in zip(task_ids, there, strict=True) if not exists]

    def _compared(self, task_ids: Sequence[str], indices: Sequence[str] = ()) -> Iterator[Problem]:
        findings = self._upkeep.compare(task_ids, indices, self.actor).findings
        # A ticket may be on its way to a worker; they are for a part of their own.
        yield from self._told(finding for finding in findings if finding.outcome != "later")

    def _told(self, findings: Iterable[Finding]) -> Iterator[Problem]:
        for finding in findings:
            if finding.outcome in ("removed", "remains"):
                self._remains[finding.task_id].add(finding.what)
            elif finding.outcome in ("listed", "unlisted"):
                self._unlisted.add(finding.task_id)
            else:
                yield Problem(finding.rule, finding.task_id, finding.what, finding.outcome)

    # What is listed in the indices

    def _listed(self) -> Iterator[Problem]:
        for index in sorted(self._indices):
            yield from self._spared(lambda index=index: self._listed_in(index))

    def _listed_in(self, index: str) -> Iterator[Problem]:
        place = place_of(self.keys, index)
        for some in batches(members(self.redis, index)):
            records = ask_each(self.redis, "hmget", map(self.keys.task, some), ("state", "queue", "type", "owner"))
            strays = [task_id for task_id, record in zip(some, records, strict=True) if not _fits(place, record)]
            yield from self._compared(strays, [index])

    def _empty_parkings(self) -> Iterator[Problem]:
        for queue in sorted(self._queues):
            types = self.keys.parked_types(queue)
            with translated():
                named = sorted(cast(set[str], self.redis.smembers(raw(types))))
            empty = [name for name in named if self._is_empty(queue, name)]
            if empty and self.actor:
                self.store.requeue(self.actor, queue)
            for name in empty:
                what = f"{types} names {name}, of which no task is parked"
                yield Problem("c", "-", what, "repaired" if self.actor else "repairable")

    def _is_empty(self, queue: str, task_type: str) -> bool:
        place = raw(self.keys.parked(pair(queue, task_type)))
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.exists(place)
            pipeline.sismember(raw(self.keys.parked_types(queue)), task_type)
            pipeline.exists(place)  # again: its last task may have left, and another have come
            return pipeline.execute() == [0, 1, 0]

    def _not_listed(self) -> Iterator[Problem]:
        """Tell of all at once: when the index is new, no task is in it."""
        index = self.keys.listed("*")
        if self._unlisted:
            what = f"{len(self._unlisted)} tasks were not where listings by queue or type look: {index}"
            yield Problem("b", "-", what, "repaired" if self.actor else "repairable")

    # The history

    def _history(self) -> Iterator[Problem]:
        found, half_purged = False, self._half_purged()
        for unnamed in self._leaves():
            found = True
            gone = set(self._missing(sorted(set(unnamed.values()))))
            unnamed = {entry_id: task_id for entry_id, task_id in unnamed.items() if task_id not in half_purged}
            self._last_entry.update({task_id: entry_id for entry_id, task_id in unnamed.items() if task_id in gone})
            for entry_id, task_id in unnamed.items():
                if task_id not in gone:
                    what = f"the history has an entry of it, {entry_id}, that it does not name"
                    yield Problem("c", task_id, what, "removed" if self.actor else "remains")
        # Asked again, since a purge may have begun meanwhile; one that is over has left no entry.
        self._describe_last_entries(self._half_purged())
        if found and self.actor:
            list(self._leaves(deletes=True))

    def _half_purged(self) -> set[str]:
        """Return the purged tasks of whose long histories the watchdogs delete the rest."""
        with translated():
            names = cast(list[str], self.redis.lrange(self.keys.leftovers, 0, -1))
        return {name.rpartition(".")[0] for name in names}

    def _leaves(self, *, deletes: bool = False) -> Iterator[dict[str, str]]:
        after: str | None = "0-0"
        while after is not None:
            leaf = self._upkeep.leaf_through(after, deletes=deletes)
            self.entries += 0 if deletes else leaf.number
            if leaf.unnamed:
                yield leaf.unnamed
            after = leaf.after

    def _describe_last_entries(self, half_purged: Container[str]) -> None:
        """Put in the place of each last entry's id what it tells; forget those that are gone or about to go."""
        left = [one for one in self._last_entry.items() if one[0] not in half_purged]
        self._last_entry = {}
        for some in batches(left):
            with translated(), self.redis.pipeline(transaction=False) as pipeline:
                for _, entry_id in some:
                    pipeline.xrange(self.keys.history, entry_id, entry_id)
                found = cast(list[list[tuple[str, dict[str, str]]]], pipeline.execute())
            self._last_entry |= {
                task_id: _move(*entries[0]) for (task_id, _), entries in zip(some, found, strict=True) if entries
            }

    # Tickets

    def _ticketed(self) -> Iterator[Problem]:
        known = {*self._queues, *self._reads.queues()}  # a repair may have named more
        yield from self._told(self._tickets.audit(sorted(known)))

    # What is gone, and what is counted

    def _lost(self) -> Iterator[Problem]:
        task_ids = sorted({*self._remains, *self._last_entry})
        was_purged = ask_each(self.redis, "exists", map(self.keys.tombstone, task_ids))
        for task_id, purged in zip(task_ids, was_purged, strict=True):
            remains, move = sorted(self._remains[task_id]), self._last_entry.get(task_id)
            lost = not purged and (move is not None or self.keys.params(task_id) in remains)
            what = "it was purged" if purged else "its record is gone"
            what += f"; left of it: {', '.join(remains)}" if remains else ""
            what += f"; its last move: {move}" if move else ""
            yield Problem("a" if lost else "c", task_id, what, "removed" if self.actor else "remains")

    def _ledger(self) -> Iterator[Problem]:
        account = self._upkeep.account()
        # An index that lacks an entry was told already: only a record that is missing is missing here.
        if account.missing and account.submitted != self.tasks + account.purged + account.lost:
            if self.actor:
                self._upkeep.account(corrects=True)
            booked = f"{account.purged} were purged and {account.lost} written off as lost"
            what = f"{account.submitted} tasks were submitted, {account.here} are here, {booked}"
            yield Problem("h", "-", what, "repaired" if self.actor else "repairable")

    def _quarantined(self) -> Iterator[Problem]:
        with translated():
            held = cast(Iterator[tuple[str, str]], self.redis.hscan_iter(self.keys.quarantine, count=TOGETHER))
            for place, wrong in held:
                yield from self._noted(place, wrong)

    def _noted(self, place: str, wrong: str) -> Iterator[Problem]:
        """Tell a note about a member that was taken out of an index; it is settled when nothing of it is damaged."""
        has_blanks = place.startswith(self.keys.owned(""))  # maybe, in the name of an owner; else only in what is no id
        index, _, task_id = place.rpartition(" ") if has_blanks else place.partition(" ")
        is_settled = not self._upkeep.compare([task_id]).findings
        if is_settled and self.actor:
            with translated():
                self.redis.hdel(self.keys.quarantine, raw(place))
        if task_id not in self._remains:  # else it was told, and noted by this audit
            outcome = "kept" if not is_settled else "removed" if self.actor else "remains"
            yield Problem("c", task_id, f"it was taken out of {index}: {wrong}", outcome)

    # Bulk actions and callbacks

    def _delivered(self) -> Iterator[Problem]:
        yield from self._found(self._endings.unrecorded(sorted(self._hosts)))
        self.deliveries = self._callbacks.overview()

    def _found(self, findings: Iterable[Finding]) -> Iterator[Problem]:
        """Tell these; what is damaged ends them, and nothing else."""
        yield from self._spared(lambda: (Problem(it.rule, it.task_id, it.what, it.outcome) for it in findings))


def _fits(place: Place, record: Any) -> bool:
    """Tell whether a task may be in an index; a record that cannot be read was told before."""
    if isinstance(record, Exception):
        return True
    state, queue, task_type, owner = record
    if state is None or place.family == "dependents":
        return state == State.BLOCKED
    both = pair(queue, task_type)
    wanted = {"state": state, "owned": owner, "pending": queue, "parked": both, "listed": both}
    return wanted.get(place.family, place.id) == place.id


def _move(entry_id: str, entry: Mapping[str, str]) -> str:
    """Return a history entry as one line."""
    move = f"{entry.get('event')} from {entry.get('from') or 'nothing'} to {entry.get('to')}"
    return f"{move} by {entry.get('actor')} ({entry.get('reason')}), entry {entry_id}"

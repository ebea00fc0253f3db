"""Compares what stands around tasks with what must, and puts it right: the scripts of the doctor and of the audit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..lua import BATCH
from .batches import raw
from .keys import index_names
from .messages import Swept
from .scripts import literal
from .store import Store

ROUND = 50.0
"""Seconds in which the watchdogs' audit goes over all keys, unless that takes more than its share of Redis' time."""

PATROL_SHARE, PRUNE_SHARE = 20, 200
"""What the audit of tasks and the look through the indices take of Redis' time at most: one part in so many."""

KEYS_A_TURN = 5_000
"""Keys for each of which, begun or whole, there is a round in whose turn a task in order is looked at closely."""

STEPS = 100
"""Steps of a walk that one sweep makes, at most."""

LATER_THAN_REQUEUE = 2
"""Times the hand-over after which the audit makes a new ticket: the watchdog's own step for it costs less."""

REPLAYED = 500
"""History entries that one call replays, beside those of one more task."""

LEAFED = 250
"""History entries that one call looks through."""

SEARCHED = 100_000
"""Tickets that one call searches: as many tasks as a list of them allows, and at least one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be, and what became of it: `outcome` is one of

    `repaired`, `repairable` (nobody asked for it), `later` (a ticket that may be on its way to a worker), `listed` and
    `unlisted` (the same of an entry of a listing that no version may have written, which no history tells of), `kept`
    (nobody can); for what is left of a task whose record is gone `removed` or `remains`, and `what` is the key.
    """

    task_id: str
    rule: str
    what: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Looked:
    """What a call that compares tasks found, and how many tasks it put right."""

    moved: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of the history: how many entries, those that no task names, by id, and where to go on; None at the end."""

    number: int
    unnamed: dict[str, str]
    after: str | None


@dataclass(frozen=True, slots=True)
class Account:
    """The ledger beside the number of tasks that are here."""

    here: int
    submitted: int
    purged: int
    lost: int
    corrected: bool

    @property
    def missing(self) -> int:
        """Tasks of which nothing is known; negative when there are more than were submitted."""
        return self.submitted - self.here - self.purged - self.lost


class Upkeep:
    """The calls, each bounded and safe to repeat. Each raises RedisUnavailable, RedisFull or CorruptRecord."""

    def __init__(self, store: Store) -> None:
        self.scripts, self.keys, self.settings = store.scripts, store.keys, store.settings

    def compare(self, task_ids: Sequence[str], indices: Sequence[str] = (), actor: str = "") -> Looked:
        """Compare tasks with what must hold around them; an actor also puts right what can be, and records it.

        `indices` are those in which the ids were seen, beside those that the tasks themselves name.
        """
        return self._compare(task_ids, actor, indices, replayed=REPLAYED)

    def search(self, task_ids: Sequence[str], queue: str, length: int, actor: str = "") -> Looked:
        """Compare tasks with the tickets of a queue too, of which there are about `length`."""
        return self._compare(task_ids, actor, queue=queue, together=max(1, min(BATCH, SEARCHED // max(1, length))))

    def _compare(
        self,
        task_ids: Sequence[str],
        actor: str,
        indices: Sequence[str] = (),
        *,
        queue: str = "",
        together: int = BATCH,
        replayed: int | None = None,
    ) -> Looked:
        hand_over = round(1000 * self.settings.hand_over)
        arguments = (actor, int(bool(actor)), self._lease, hand_over, queue, "" if replayed is None else replayed)
        done, moved, findings = 0, 0, list[Finding]()
        while done < len(task_ids):
            some = map(raw, task_ids[done : done + together])
            looked_at, mended, *told = self.scripts.call("repair", [*map(raw, indices)], (*arguments, *some))
            done, moved = done + looked_at, moved + mended
            findings += _findings(told)
        return Looked(moved, tuple(findings))

    def patrol(self, actor: str) -> Swept:
        """Go on with the audit of all watchdogs by as many steps as are due: put right what is around tasks."""
        return self._walk("patrol", actor, f"{literal(self.keys.task(''))}*", PATROL_SHARE, KEYS_A_TURN)

    def prune(self, actor: str) -> Swept:
        """Go on with the look of all watchdogs through the indices: take out what does not belong there."""
        return self._walk("prune", actor, f"{literal(self.keys.prefix)}*", PRUNE_SHARE, *index_names(self.keys))

    def _walk(self, verb: str, actor: str, pattern: str, share: int, *others: str | int) -> Swept:
        hand_over, sweep = LATER_THAN_REQUEUE * self.settings.hand_over, 0.9 * self.settings.sweep
        spans = (round(1000 * seconds) for seconds in (self.settings.lease, hand_over, sweep, ROUND))
        arguments, moved, problems = (actor, pattern, *spans, share, *others), 0, list[str]()
        for _ in range(STEPS):
            goes_on, mended, *told = self.scripts.call(verb, (), arguments)
            moved, problems = moved + mended, problems + told
            if not goes_on:
                break
        return Swept(moved, moved, tuple(problems))

    def leaf_through(self, after: str, *, deletes: bool = False) -> Leaf:
        """Look through a part of the history for entries that no task names; delete them when asked to."""
        number, _, last, *found = self.scripts.call("unnamed", (), (after, LEAFED, int(deletes)))
        return Leaf(number, dict(found), last if number else None)

    def account(self, *, corrects: bool = False) -> Account:
        """Compare the ledger with the tasks that are here; correct it when asked to, missing ones booked as lost."""
        here, corrected, submitted, purged, lost = self.scripts.call("recount", (), (int(corrects),))
        return Account(here, submitted, purged, lost, bool(corrected))

    @property
    def _lease(self) -> int:
        return round(1000 * self.settings.lease)


def _findings(told: Sequence[Any]) -> Iterator[Finding]:
    yield from (Finding(*told[index : index + 4]) for index in range(0, len(told), 4))

"""The audit of a whole database: streams over everything stored, blocks nothing, and tells each broken invariant.

Tasks move while it looks. So whatever seems wrong is only a suspicion, looked at again after a moment; what is told
was wrong both times.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar, cast

from redis import Redis

from ..statemachine import STORED, State
from .errors import CorruptRecord
from .examination import Examination, Problem
from .keys import Keys
from .model import Task
from .reads import Reads
from .scripts import translated

T = TypeVar("T")

TOGETHER = 500
"""Keys, members or tickets looked at in one round trip."""

SECOND_LOOK = 0.5
"""Seconds until what seems wrong is looked at again: longer than any script takes."""


class Doctor:
    """Audits one database. Every function raises RedisUnavailable when Redis does not answer."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis, self.keys = redis, keys
        self.reads = Reads(redis, keys)
        self.tasks = 0  # seen by the last audit
        self._examination = Examination(redis, keys)

    def audit(self) -> Iterator[Problem]:
        """Yield every invariant that is broken."""
        yield from self._quarantined()
        suspects = list(dict.fromkeys([*self._suspect_tasks(), *self._strays(), *self._unticketed()]))
        yield from self._ledger()
        if suspects:
            time.sleep(SECOND_LOOK)
            yield from self._looked_at_again(suspects)

    def _looked_at_again(self, task_ids: list[str]) -> Iterator[Problem]:
        for some in batches(task_ids):
            yield from self._examination.examine(some)
            yield from self._strayed(some)
            yield from self._without_ticket(some)

    def _quarantined(self) -> Iterator[Problem]:
        with translated():
            held = cast(dict[str, str], self.redis.hgetall(self.keys.quarantine))
        for place, wrong in held.items():
            index, _, task_id = place.rpartition(" ")
            yield Problem("c", task_id, f"it was taken out of {index}: {wrong}", "it is kept in quarantine")

    def _ledger(self) -> Iterator[Problem]:
        try:
            ledger, live = self.reads.ledger(), sum(self.reads.counts().values())
        except CorruptRecord as error:
            yield Problem("h", "-", str(error), "look at its key by hand")
            return
        if ledger["submitted"] != live + ledger["purged"]:
            wrong = f"{ledger['submitted']} were submitted, {live} are here and {ledger['purged']} were purged"
            yield Problem("h", "-", wrong, "records were removed or added by hand")

    # Tasks by their records

    def _suspect_tasks(self) -> Iterator[str]:
        self.tasks = 0
        prefix = self.keys.task("")
        for some in batches(self._scan(f"{_escaped(prefix)}*")):
            ids = [key.removeprefix(prefix) for key in some]
            self.tasks += len(ids)
            yield from (problem.task_id for problem in self._examination.examine(ids))

    def _scan(self, pattern: str) -> Iterator[str]:
        with translated():
            yield from cast(Iterator[str], self.redis.scan_iter(pattern, count=TOGETHER))

    # Tasks by the indices

    def _indices(self) -> list[str]:
        fixed = [self.keys.deadlines, self.keys.due, self.keys.retention]
        return [*fixed, *map(self.keys.state, STORED), *map(self.keys.pending, self.reads.queues())]

    def _strays(self) -> Iterator[str]:
        for index in self._indices():
            for some in batches(self._members(index)):
                yield from self._missing(some)

    def _members(self, index: str) -> Iterator[str]:
        with translated():
            found = cast(Iterator[tuple[str, float]], self.redis.zscan_iter(index, count=TOGETHER))
            yield from (member for member, _ in found)

    def _missing(self, task_ids: list[str]) -> list[str]:
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                pipeline.exists(self.keys.task(task_id))
            return [task_id for task_id, there in zip(task_ids, pipeline.execute(), strict=True) if not there]

    def _strayed(self, task_ids: list[str]) -> Iterator[Problem]:
        for task_id in self._missing(task_ids):
            for index in self._indices():
                with translated():
                    listed = self.redis.zscore(index, task_id) is not None
                if listed:
                    yield Problem("c", task_id, f"{index} lists it, and it has no record", "the entry is removed")

    # Tickets

    def _unticketed(self) -> Iterator[str]:
        for queue in self.reads.queues():
            tickets = Counter(self._tickets(queue))
            yield from (task_id for task_id in self._members(self.keys.pending(queue)) if tickets[task_id] != 1)

    def _tickets(self, queue: str) -> Iterator[str]:
        start = 0
        while True:
            with translated():
                page = cast(list[str], self.redis.lrange(self.keys.rq_queue(queue), start, start + TOGETHER - 1))
            yield from page
            if len(page) < TOGETHER:
                return
            start += TOGETHER

    def _without_ticket(self, task_ids: list[str]) -> Iterator[Problem]:
        for task in self.reads.tasks(task_ids):
            if isinstance(task, Task) and task.state is State.PENDING:
                yield from self._ticket_of(task.id, task.queue)

    def _ticket_of(self, task_id: str, queue: str) -> Iterator[Problem]:
        tickets = Counter(self._tickets(queue))[task_id]
        with translated():
            still = self.redis.hget(self.keys.task(task_id), "state") == State.PENDING
        if still and tickets != 1:
            wrong = f"it is PENDING and has {tickets} tickets in {self.keys.rq_queue(queue)}"
            yield Problem("b", task_id, wrong, "the watchdog makes a new ticket, and a worker drops one too many")


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """Yield the values in lists of at most TOGETHER."""
    remaining = iter(values)
    while some := list(islice(remaining, TOGETHER)):
        yield some


def _escaped(prefix: str) -> str:
    """Return a prefix in which nothing is a wildcard for SCAN."""
    return "".join(f"\\{character}" if character in "*?[]\\" else character for character in prefix)

"""The tickets of queues beside the tasks that wait in them: the part of the audit that has to walk rq's lists."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from ..lua.loader import LONGEST_CALL, TICKET_FUNCTION
from .batches import TOGETHER, ask_each, batches, elements, members, raw
from .errors import CorruptRecord
from .scripts import literal, translated
from .store import Store
from .upkeep import Finding, Upkeep

SECOND_LOOK = 0.5
"""Seconds until a ticket that was not found is searched again: a stock rq worker may just have taken it."""


class Tickets:
    """Compares lists of tickets with tasks, and with an `actor` puts them right. Raises RedisUnavailable."""

    def __init__(self, store: Store, actor: str = "") -> None:
        self.redis, self.keys, self.actor = store.redis, store.keys, actor
        self.upkeep, self.hand_over = Upkeep(store), store.settings.hand_over

    def audit(self, queues: Iterable[str]) -> Iterator[Finding]:
        """Yield what is wrong with the tickets of these queues; a damaged one keeps nobody from the others."""
        suspects: dict[str, Sequence[str]] = {}
        for queue in queues:
            try:
                suspects |= {queue: found} if (found := self._suspects(queue)) else {}
            except CorruptRecord as error:
                yield self._damaged(queue, error)
        if suspects:
            time.sleep(SECOND_LOOK)
        late: dict[str, list[str]] = defaultdict(list)
        for queue, task_ids in suspects.items():
            for finding in self._searched(queue, task_ids):
                if finding.outcome == "later" and self.actor:
                    late[queue].append(finding.task_id)
                else:
                    yield finding
        if late:
            time.sleep(self.hand_over)
        for queue, task_ids in late.items():
            yield from self._searched(queue, task_ids)
        yield from self._orphans()

    def _orphans(self) -> Iterator[Finding]:
        """Yield the tickets of tasks that are gone, which stand in no queue's list any more."""
        prefix = self.keys.rq_job("")
        with translated():
            names = cast(Iterator[str], self.redis.scan_iter(f"{literal(prefix)}*", count=TOGETHER, _type="HASH"))
            for some in batches(name.removeprefix(prefix) for name in names):
                yield from self.upkeep.compare(self._gone(some), actor=self.actor).findings

    def _gone(self, tickets: Sequence[str]) -> list[str]:
        """Return those that have no task, and are not plain rq jobs."""
        is_task = ask_each(self.redis, "exists", map(self.keys.task, tickets))
        return list(self._ours([ticket for ticket, known in zip(tickets, is_task, strict=True) if not known]))

    def _suspects(self, queue: str) -> list[str]:
        """Return tasks of a queue without exactly one ticket, and tickets of what does not wait in the queue."""
        tickets = Counter(elements(self.redis, self.keys.rq_queue(queue)))
        waiting = set(members(self.redis, self.keys.pending(queue)))
        found = [task_id for task_id in waiting if tickets[task_id] != 1]
        for some in batches(ticket for ticket in tickets if ticket not in waiting):
            found += self._ours(some)
        return sorted(found)

    def _ours(self, tickets: Sequence[str]) -> Iterator[str]:
        """Yield the tickets that are not those of plain rq jobs."""
        is_task = ask_each(self.redis, "exists", map(self.keys.task, tickets))
        lengths = ask_each(self.redis, "hstrlen", map(self.keys.rq_job, tickets), "data")
        short = [ticket for ticket, length in zip(tickets, lengths, strict=True) if _may_be_ours(length)]
        calls = dict(zip(short, ask_each(self.redis, "hget", map(self.keys.rq_job, short), "data"), strict=True))
        for ticket, known in zip(tickets, is_task, strict=True):
            call = calls.get(ticket, "")
            if known or call is None or TICKET_FUNCTION in str(call):
                yield ticket

    def _searched(self, queue: str, task_ids: Sequence[str]) -> tuple[Finding, ...]:
        """Compare tasks with all tickets of a queue."""
        try:
            with translated():
                length = self.redis.llen(raw(self.keys.rq_queue(queue)))
            return self.upkeep.search(task_ids, queue, length, self.actor).findings
        except CorruptRecord as error:
            return (self._damaged(queue, error),)

    def _damaged(self, queue: str, error: CorruptRecord) -> Finding:
        return Finding("-", "c", f"{self.keys.rq_queue(queue)}: {error.detail}", "kept")


def _may_be_ours(length: Any) -> bool:
    return isinstance(length, int) and length <= LONGEST_CALL

"""The tickets of a queue beside the tasks that wait in it: the part of the audit that has to walk rq's lists."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ..lua.loader import TICKET_FUNCTION
from .batches import ask_each, batches, elements, members, raw
from .scripts import translated
from .store import Store
from .upkeep import Finding, Upkeep


class Tickets:
    """Compares lists of tickets with tasks. Every function raises RedisUnavailable or CorruptRecord."""

    def __init__(self, store: Store, actor: str = "") -> None:
        self.redis, self.keys, self.actor = store.redis, store.keys, actor
        self.upkeep = Upkeep(store)

    def suspects(self, queue: str) -> list[str]:
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
        calls = ask_each(self.redis, "hget", map(self.keys.rq_job, tickets), "data")
        for ticket, known, call in zip(tickets, is_task, calls, strict=True):
            if known or call is None or TICKET_FUNCTION in str(call):
                yield ticket

    def search(self, queue: str, task_ids: Sequence[str]) -> tuple[Finding, ...]:
        """Compare tasks with all tickets of a queue; with an actor, put right what can be."""
        with translated():
            length = self.redis.llen(raw(self.keys.rq_queue(queue)))
        return self.upkeep.search(task_ids, queue, length, self.actor).findings

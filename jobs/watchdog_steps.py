"""What watchdogs do to Redis: each step is one bounded script, and may be done by any number of them."""

import json
import random
import secrets
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from ..lua import BATCH
from .calls import Calls
from .keys import ARCHIVE_DEMAND
from .messages import Answer, Archived, Swept
from .scripts import translated

ENTRIES_DELETED = 500
"""History entries that one call of a purge deletes, at most."""

TICKET_WINDOW = 1000
"""Tickets at the head of a queue that the watchdog compares with its oldest tasks."""


class WatchdogSteps(Calls):
    """The steps of a watchdog, for whom a task is only moved when its record says so at that moment."""

    def release(self, actor: str) -> Swept:
        """Put tasks whose waiting time is over into their queues."""
        return read_swept(self._scripts.call("release", (), (actor, BATCH)))

    def sweep(self, actor: str, findings: Mapping[str, str] | None = None) -> Swept:
        """Take tasks away from workers that are gone.

        Without `findings` (worker -> what it answered) those whose worker can be asked for its health are left to
        the next call, and named in `to_ask`; with them, be they ever so few, no task is left.
        """
        gap = round(1000 * self.settings.longest_gap)
        known = "" if findings is None else json.dumps(findings)
        beat = round(1000 * self.settings.beat)
        arguments = (actor, BATCH, self._lease, gap, self._patience, secrets.randbits(31), known, beat)
        looked_at, moved, to_ask, *problems = self._scripts.call("sweep", (), arguments)
        return Swept(looked_at, moved, tuple(problems), dict(zip(to_ask[::2], to_ask[1::2], strict=True)))

    def lose(self, task_id: str, attempt: int, worker_id: str, actor: str, message: str, *, is_dead: bool) -> Answer:
        """Take a task away from a worker that is gone, unless this attempt is over.

        Unless its process `is_dead` for certain, no further attempt starts before the worker's lease is over.
        """
        arguments = (attempt, worker_id, actor, message, random.random(), int(is_dead))
        return Answer.read(self._scripts.call("lose", [self.keys.task(task_id)], arguments), task_id)

    def requeue(self, actor: str, queue: str, *, corrects_parking: bool = True) -> Swept:
        """Make new tickets for PENDING tasks of a queue whose ticket is gone, and put right which types are parked."""
        hand_over = round(1000 * self.settings.hand_over)
        arguments = (actor, BATCH, TICKET_WINDOW, hand_over, int(corrects_parking))
        return read_swept(self._scripts.call("requeue", [self.keys.rq_queue(queue)], arguments))

    def settle(self) -> Swept:
        """Tell those that wait for tasks that ended, where the ending script could not tell all of them."""
        return read_swept(self._scripts.call("settle", (), (BATCH,)))

    def recheck(self, actor: str) -> Swept:
        """Look again at a page of the BLOCKED tasks: what they wait for may be gone."""
        return read_swept(self._scripts.call("recheck", (), (actor, BATCH)))

    def purge(self, archived: Archived | None = None) -> Swept:
        """Remove final tasks whose retention is over; where an archive is demanded, only those that are `archived`."""
        pairs = chain.from_iterable(archived.tasks.items()) if archived else ()
        file = archived.file if archived else ""
        arguments = (BATCH, round(self.settings.tombstone * 1000), ENTRIES_DELETED, file, *pairs)
        return read_swept(self._scripts.call("purge", (), arguments))

    def demand_archive(self, demanded: bool = True) -> None:
        """Let no watchdog purge what was not archived, or let it again; it holds until it is changed."""
        with translated(self.keys.limits):
            # Asked first, since a full Redis refuses to write what stands there already, and could not purge then.
            if demanded and not self.redis.hexists(self.keys.limits, ARCHIVE_DEMAND):
                self.redis.hset(self.keys.limits, ARCHIVE_DEMAND, "demanded")
            elif not demanded:
                self.redis.hdel(self.keys.limits, ARCHIVE_DEMAND)


def read_swept(reply: Sequence[Any]) -> Swept:
    """Return what a step over many tasks answered."""
    return Swept(reply[0], reply[1], tuple(reply[2:]))

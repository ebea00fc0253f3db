"""The watchdog: ten bounded steps, again and again, that move what would otherwise stand still.

Any number may run at once: each step is one script that decides with fresh state, so none needs a lock.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping

from ..lua import BATCH
from .bulk_actions import BulkActions
from .connection import connect
from .errors import CorruptRecord, GhostlessError, RedisUnavailable
from .messages import Swept
from .pauses import Pauses
from .preflight import preflight
from .probe import ask_all
from .reads import Reads
from .settings import Settings
from .store import Store
from .upkeep import Upkeep

log = logging.getLogger("ghostless.watchdog")

LONGEST_PAUSE = 5.0
"""Seconds between two tries while Redis does not answer."""

ASKING = 1.0
"""Seconds in which workers that seem lost may answer for their health."""

LOOK_AT_SERVER_AGAIN = 60.0
"""Seconds between two looks at how the server is set up."""

CORRECT_AGAIN = 60.0
"""Seconds between two looks at which types are parked, whose cost follows the types and queues that there are."""

TELL_AGAIN = 60.0
"""Seconds after which a problem that is still there is told again."""

LONGEST_TOLD = 1000
"""Characters of a problem that are logged."""


def _on_one_line(problem: str) -> str:
    """Return what is told of a problem; what stands in Redis may be of any length and hold any characters."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in problem[:LONGEST_TOLD])


class Watchdog:
    """The duties of one watchdog. `sweep_all` is one round; `run` repeats it until told to stop."""

    def __init__(self, store: Store, name: str | None = None) -> None:
        self.store = store
        self.reads = Reads(store.redis, store.keys)
        self._told: dict[str, float] = {}
        self._upkeep = Upkeep(store)
        self._bulk = BulkActions(store)
        self._correct_at = self._look_at_server_at = 0.0
        self.actor = f"watchdog:{name or f'{socket.gethostname()}-{os.getpid()}'}"

    def sweep_deadlines(self) -> Swept:
        """Take tasks away from workers that are gone, at most a batch; those that can be asked are asked first.

        Only the lease decides: what they answer, or that they do not, stands in the history.
        """
        swept = self.store.sweep(self.actor)
        if not swept.to_ask:
            return swept
        judged = self.store.sweep(self.actor, self._ask(swept.to_ask))
        return Swept(judged.looked_at, swept.moved + judged.moved, swept.problems + judged.problems)

    def _ask(self, addresses: Mapping[str, str]) -> dict[str, str]:
        # At most half of the gap between two sweeps after which nobody would be judged.
        patience = min(ASKING, self.store.settings.longest_gap / 2)
        try:
            return ask_all(addresses, patience)
        except Exception:  # no thread to be had, say: that must not keep a task from being judged
            log.exception("workers could not be asked for their health")
            return {}

    def release_due(self) -> Swept:
        """Put tasks whose waiting time is over into their queues, at most a batch."""
        return self.store.release(self.actor)

    def requeue_missing(self) -> Swept:
        """Make new tickets for PENDING tasks whose ticket is gone, at most a batch a queue."""
        corrects_parking = time.monotonic() >= self._correct_at
        if corrects_parking:
            self._correct_at = time.monotonic() + CORRECT_AGAIN
        swept = [self._requeue(queue, corrects_parking) for queue in self.reads.queues()]
        problems = tuple(problem for step in swept for problem in step.problems)
        return Swept(sum(step.looked_at for step in swept), sum(step.moved for step in swept), problems)

    def _requeue(self, queue: str, corrects_parking: bool) -> Swept:
        try:
            return self.store.requeue(self.actor, queue, corrects_parking=corrects_parking)
        except CorruptRecord as error:  # of this queue, which must not keep the others from their turn
            return Swept(0, 0, (str(error),))

    def settle_dependents(self) -> Swept:
        """Tell those that wait for tasks that ended, where the ending script could not tell all, at most a batch."""
        return self.store.settle()

    def recheck_blocked(self) -> Swept:
        """Look again at tasks that wait for others, at most a batch: what they wait for may be gone."""
        return self.store.recheck(self.actor)

    def work_off_bulk_actions(self) -> Swept:
        """Move some of the tasks that a person wished something for all at once; several such wishes take turns."""
        return self._bulk.work_off()

    def purge(self) -> Swept:
        """Remove final tasks whose retention is over, at most a batch; none where an archivist does so."""
        if self.store.settings.archive_to:
            self.store.demand_archive()  # each time, since the database may have been emptied
        return self.store.purge()

    def audit(self) -> Swept:
        """Put right what is wrong around a few of the stored tasks."""
        return self._upkeep.patrol(self.actor)

    def prune(self) -> Swept:
        """Take out of a few of the indices what does not belong there."""
        return self._upkeep.prune(self.actor)

    def look_at_server(self) -> Swept:
        """Tell, now and then, when the server is not fit to keep tasks any more."""
        if time.monotonic() < self._look_at_server_at:
            return Swept(0, 0, ())
        self._look_at_server_at = time.monotonic() + LOOK_AT_SERVER_AGAIN
        found = preflight(self.store.redis, allow_eviction=self.store.settings.allow_eviction)
        return Swept(0, 0, tuple(f"Redis: {finding}" for finding in found if finding.level == "refused"))

    def sweep_all(self) -> bool:
        """Do each duty once; tell whether one of them had a full batch, so that more is waiting.

        A duty that fails, by whatever error, does not keep the others from their turn, nor slow them down. Raises
        RedisUnavailable, after the last duty, when Redis did not answer one of them.
        """
        outages: list[RedisUnavailable] = []
        full = [self._perform(duty, outages) for duty in self._duties()]
        if outages:
            raise outages[0]
        return any(full)

    def _duties(self) -> tuple[Callable[[], Swept], ...]:
        return (
            *(self.sweep_deadlines, self.release_due, self.requeue_missing),
            *(self.settle_dependents, self.recheck_blocked, self.work_off_bulk_actions),
            *(self.purge, self.audit, self.prune, self.look_at_server),
        )

    def _perform(self, duty: Callable[[], Swept], outages: list[RedisUnavailable]) -> bool:
        try:
            swept = duty()
        except RedisUnavailable as error:
            outages.append(error)
            return False
        except GhostlessError as error:
            swept = Swept(0, 0, (str(error),))
        except Exception as error:
            self._tell(f"{duty.__name__}: met an error that it does not know: {error!r}", error)
            return False
        for problem in swept.problems:
            self._tell(f"{duty.__name__}: {problem}")
        if swept.moved:
            log.info("%s: %d of %d moved", duty.__name__, swept.moved, swept.looked_at)
        return swept.looked_at >= BATCH

    def _tell(self, problem: str, error: Exception | None = None) -> None:
        """Log a problem, with the trace of an error, and again only when it is still there after a while."""
        now = time.monotonic()
        if now - self._told.get(problem, -TELL_AGAIN) >= TELL_AGAIN:
            self._told = {known: at for known, at in self._told.items() if now - at < TELL_AGAIN} | {problem: now}
            log.error("%s", _on_one_line(problem), exc_info=error)

    def run(self, stop: threading.Event) -> None:
        """Sweep until `stop` is set, whatever happens; a Redis that does not answer is waited for."""
        # Also when one duty alone is never answered, the next sweep must not be so late that it judges nobody.
        pauses = Pauses(0.2, min(LONGEST_PAUSE, self.store.settings.longest_gap / 2))
        while not stop.is_set():
            try:
                more = self.sweep_all()
                pause = 0.0 if more else self.store.settings.sweep
                pauses.reset()
            except RedisUnavailable as error:
                log.error("%s", error)
                pause = pauses.next()
            except Exception:
                log.exception("the watchdog met an error it does not know, and goes on")
                pause = self.store.settings.sweep
            stop.wait(pause)


def run_watchdog(settings: Settings, stop: threading.Event) -> None:
    """Run a watchdog until `stop` is set."""
    log.info("watching %s", settings.redis_url.rpartition("@")[2])
    Watchdog(Store(connect(settings), settings)).run(stop)

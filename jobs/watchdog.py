"""The watchdog: four bounded steps, again and again, that move what would otherwise stand still.

Any number may run at once: each step is one script that decides with fresh state, so none needs a lock.
"""

import logging
import os
import random
import socket
import threading
from collections.abc import Callable

from .connection import connect
from .errors import GhostlessError
from .messages import Swept
from .reads import Reads
from .settings import Settings
from .store import BATCH, Store

log = logging.getLogger("ghostless.watchdog")

LONGEST_PAUSE = 10.0
"""Seconds between two tries while Redis does not answer."""


class Watchdog:
    """The duties of one watchdog. `sweep_all` is one round; `run` repeats it until told to stop."""

    def __init__(self, store: Store, name: str | None = None) -> None:
        self.store = store
        self.reads = Reads(store.redis, store.keys)
        self.actor = f"watchdog:{name or f'{socket.gethostname()}-{os.getpid()}'}"

    def sweep_deadlines(self) -> Swept:
        """Take tasks away from workers that are gone, at most a batch."""
        return self.store.sweep(self.actor)

    def release_due(self) -> Swept:
        """Put tasks whose waiting time is over into their queues, at most a batch."""
        return self.store.release(self.actor)

    def requeue_missing(self) -> Swept:
        """Make new tickets for PENDING tasks whose ticket is gone, at most a batch a queue."""
        swept = [self.store.requeue(self.actor, queue) for queue in self.reads.queues()]
        problems = tuple(problem for step in swept for problem in step.problems)
        return Swept(sum(step.looked_at for step in swept), sum(step.moved for step in swept), problems)

    def purge(self) -> Swept:
        """Remove final tasks whose retention is over, at most a batch."""
        return self.store.purge()

    def sweep_all(self) -> bool:
        """Do each duty once; tell whether one of them had a full batch, so that more is waiting.

        A duty that fails does not keep the others from their turn; the first failure is raised at the end.
        """
        failures: list[GhostlessError] = []
        full = [self._perform(duty, failures) for duty in self._duties()]
        if failures:
            raise failures[0]
        return any(full)

    def _duties(self) -> tuple[Callable[[], Swept], ...]:
        return self.sweep_deadlines, self.release_due, self.requeue_missing, self.purge

    def _perform(self, duty: Callable[[], Swept], failures: list[GhostlessError]) -> bool:
        try:
            swept = duty()
        except GhostlessError as error:
            failures.append(error)
            return False
        for problem in swept.problems:
            log.error("%s: %s", duty.__name__, problem)
        if swept.moved:
            log.info("%s: %d of %d moved", duty.__name__, swept.moved, swept.looked_at)
        return swept.looked_at >= BATCH

    def run(self, stop: threading.Event) -> None:
        """Sweep until `stop` is set; a Redis that does not answer is waited for."""
        pause = self.store.settings.sweep
        while not stop.is_set():
            try:
                more = self.sweep_all()
                pause = 0.0 if more else self.store.settings.sweep
            except GhostlessError as error:
                log.error("%s", error)
                pause = min(LONGEST_PAUSE, 2 * max(pause, 0.1)) * random.uniform(0.5, 1)
            stop.wait(pause)


def run_watchdog(settings: Settings, stop: threading.Event) -> None:
    """Run a watchdog until `stop` is set."""
    log.info("watching %s", settings.redis_url.rpartition("@")[2])
    Watchdog(Store(connect(settings), settings)).run(stop)

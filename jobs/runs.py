"""What a worker does with what it claimed: it is run in the horse, one task or a batch of short ones, and told."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .batch import Batch, Pace
from .claims import Claims
from .messages import Claim, Claimed, Ending
from .reporter import Reporter
from .settle import Ended, not_run, settle, tell
from .stable import Stable
from .store import Store
from .supervisor import LEASE_SHARE, Shutdown, Supervisor
from .vitals import Vitals
from .wakeup import Wakeup
from .workspace import Workspace

log = logging.getLogger("rq.worker.ghostless")


@dataclass(slots=True)
class Runs:
    """Runs what one worker claimed. `next_claim` is what it wants next, if anything, `count` counts each end.

    `store` is for what is told while a handler runs; all else goes by the store of the claims.
    """

    actor: str
    store: Store
    claims: Claims
    stable: Stable
    vitals: Vitals
    reporter: Reporter
    workspace: Workspace
    shutdown: Shutdown
    wakeup: Wakeup
    next_claim: Callable[[], Claim | None]
    count: Callable[[Ending], None]
    pace: Pace
    misfits: int = 0  # claims in a row that this machine could not run

    def run(self, claimed: Claimed) -> None:
        """Run a task, and what was started with it, until Redis knows how each ended."""
        batch = self._batch(claimed)
        try:
            for member in batch:
                self._watch(member, batch)
            self._settle(batch)
            self.misfits = 0
        except Exception as error:
            # Whatever it was (a full disk, say), the handler must not run on unwatched.
            log.exception("task %s cannot be run here", claimed.held.task_id)
            self.stable.kill()
            self.misfits += 1
            batch.fail(not_run(self.vitals.name, error))
            tell(self.store, batch.ended, self.actor, give_up=lambda: True)
        finally:
            batch.close()
            self.reporter.release()

    def _batch(self, claimed: Claimed) -> Batch:
        horse = self.stable.horse
        if horse is None:
            raise RuntimeError("a worker runs tasks only with a horse")
        return Batch(claimed, horse, self.workspace.folder_for, self._tell, LEASE_SHARE * self.store.settings.lease)

    def _watch(self, claimed: Claimed, batch: Batch) -> None:
        self.vitals.begin(claimed)
        began_at = time.monotonic()
        supervisor = Supervisor(
            claimed, batch.horse, self.reporter, self.store.settings, self.shutdown, self.wakeup,
            batch.folder_of(claimed), batch.give if claimed is batch.claimed else None,
            batch.alone_by, batch.go_alone,
        )  # fmt: skip
        ending = supervisor.run()
        self.pace.note(claimed.task.type, time.monotonic() - began_at, goes_on=supervisor.goes_on)
        self.stable.review(claimed.task.type, ending)
        batch.end(ending, goes_on=supervisor.goes_on)
        if ending:
            self.count(ending)
        elif self.reporter.is_lost:
            log.warning("task %s was given away; its work here was stopped", claimed.held.task_id)

    def _settle(self, batch: Batch) -> None:
        batch.horse.hand_out()  # no handler runs now, and Redis may be away for long
        reply = None
        if batch.ended:
            # What is being given back may be all that there is to claim: then it is asked for when that is done.
            claim = None if batch.rest or batch.tells else self.next_claim()
            store = self.claims.store
            reply = settle(
                store, self.reporter, batch.ended, self.actor,
                next_claim=claim, give_up=self._give_up, note=self.vitals.note_unwritten,
            )  # fmt: skip
        if batch.rest:
            first, *followers = batch.rest
            reply = replace(first, followers=tuple(followers), answered_at=time.monotonic())
        self.claims.keep(reply)

    def _tell(self, ended: Sequence[Ended]) -> None:
        tell(self.store, ended, self.actor, give_up=self._give_up, note=self.vitals.note_unwritten)

    def _give_up(self) -> bool:
        # A handler that hears nothing is killed two graces after it was to stop; Redis then has one to answer. A
        # timeout or a cancel in that time gives the handler a grace more: then `tell` tells Redis once all the same.
        stop_at = self.shutdown.stop_at
        return stop_at is not None and time.monotonic() > stop_at + 3 * self.store.settings.grace

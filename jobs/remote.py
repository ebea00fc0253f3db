"""Workers over HTTP: what is known of each, kept for as long as it comes back.

They have no connection to Redis by which others could see them. What they serve is known from their claims, and that
they live from their claims and beats; all of it passes by itself. In rq's registry a name belongs to a process, so
they stand in a place of their own.
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter, ValidationError

from .errors import GhostlessError, StaleAttempt, TypeNotPublished, WorkerNameTaken
from .messages import Held
from .scripts import Call
from .store import Store

log = logging.getLogger("ghostless")

KNOWN_LEASES: Final = 3
"""Leases for which a worker that fell silent is still listed, as workers with a connection are."""

INDEX_KEPT_FOR: Final = 86_400
"""Seconds after the last write; longer than anything that the index names."""

MOST_REMEMBERED: Final = 10_000
"""Workers of which a process remembers when it wrote last; forgetting them costs a write each."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a worker claimed last from one queue: for these types, and listening until `until` (ms since 1970)."""

    until: int
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoteRecord:
    """One worker over HTTP, as of its last claim or beat. Times are ms since 1970 by Redis' clock."""

    since: int
    beat_at: int
    is_busy: bool = False
    wishes: Mapping[str, Wish] = field(default_factory=dict[str, Wish])  # by queue

    @property
    def until(self) -> int:
        """When it counts as silent, unless it comes back before."""
        return max((wish.until for wish in self.wishes.values()), default=self.beat_at)

    def listening(self, now: int) -> dict[str, Wish]:
        """Return its wishes that still hold."""
        return {queue: wish for queue, wish in self.wishes.items() if now <= wish.until}

    @classmethod
    def from_json(cls, text: str | None) -> "RemoteRecord | None":
        """Read what any version wrote; None when there is nothing, or nothing that can be understood."""
        try:
            return _JSON.validate_json(text) if text else None
        except ValidationError:
            return None


_JSON = TypeAdapter(RemoteRecord)


class RemoteWorkers:
    """Notes workers over HTTP, each at most once a beat. Safe to use from several threads.

    What cannot be noted keeps no worker from its work: it only is not listed for a while.
    """

    def __init__(self, store: Store) -> None:
        self._scripts, self._keys = store.scripts, store.keys
        self._beat, self._lease = store.settings.beat, round(1000 * store.settings.lease)
        self._told: dict[tuple[str, str], tuple[float, float]] = {}  # when it was noted, and until when that holds

    def listens(self, worker: str, queue: str, types: tuple[str, ...], seconds: float) -> None:
        """Note that a worker asks a queue for tasks of these types, and waits for so long.

        Raises WorkerNameTaken when a worker with a connection to Redis has the name, TypeNotPublished for types that
        Redis does not know: it may have been emptied, and only this worker can publish them again.
        """
        lasts = round(1000 * seconds) + self._lease
        if self._is_due(worker, queue, seconds, lasts / 1000):
            word, *unpublished = self._send(worker, self._note(worker, queue, lasts, types))
            if word in ("taken", "unpublished"):
                self.forget(worker, queue)  # so that its next claim is refused too
                raise TypeNotPublished(unpublished) if unpublished else WorkerNameTaken(worker)

    def forget(self, worker: str, queue: str) -> None:
        """Forget that a claim was noted: what is in Redis may be gone."""
        self._told.pop((worker, queue), None)

    def beats(self, worker: str) -> None:
        """Note that a worker is at work; one whose claims are not known stays unknown until its next claim."""
        for note in self.notes_of_beat(worker):
            self._send(worker, note)

    def notes_of_beat(self, worker: str) -> list[Call]:
        """Return the call that notes that a worker is at work, for who sends more than that; none while one holds."""
        return [self._note(worker, "", self._lease)] if self._is_due(worker, "", 0, self._lease / 1000) else []

    def could_not_note(self, worker: str, error: GhostlessError) -> None:
        """Log that a worker was not noted."""
        log.warning("the worker %s is not listed for now: %s", worker, error)

    def wrote_late(self, worker: str, held: Held) -> None:
        """Log that a worker writes for an attempt that no longer holds its task; each pair once a beat at most."""
        if self._is_due(worker, f"late {held.task_id}", 0, math.inf):
            log.warning("a stale write of worker %s was refused: %s", worker, StaleAttempt(held.task_id, held.attempt))

    def _is_due(self, worker: str, queue: str, needed: float, lasts: float) -> bool:
        now = time.monotonic()
        told_at, until = self._told.get((worker, queue), (-self._beat, 0.0))
        if now - told_at < self._beat and now + needed <= until:
            return False
        if len(self._told) >= MOST_REMEMBERED:
            self._told.clear()
        self._told[worker, queue] = (now, now + lasts)
        return True

    def _note(self, worker: str, queue: str, lasts: int, types: Sequence[str] = ()) -> Call:
        arguments = (queue, lasts, KNOWN_LEASES * self._lease, 1000 * INDEX_KEPT_FOR, *types)
        return "note_worker", [self._keys.http_worker(worker)], arguments

    def _send(self, worker: str, note: Call) -> list[str]:
        try:
            return self._scripts.call(*note)
        except GhostlessError as error:
            self.could_not_note(worker, error)
            return ["unknown"]

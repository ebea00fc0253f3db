"""Workers over HTTP: what is known of each, kept for as long as it comes back.

They have no connection to Redis by which others could see them. What they serve is known from their claims, and that
they live from their claims and beats; all of it passes by itself. In rq's registry a name belongs to a process, so
they stand in a place of their own.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

from pydantic import TypeAdapter, ValidationError
from redis.client import Pipeline

from .errors import GhostlessError, StaleAttempt, TypeNotPublished, WorkerNameTaken
from .messages import Held
from .scripts import milliseconds, translated
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

    def to_json(self) -> str:
        """Return the text that is kept in Redis."""
        return _JSON.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str | None) -> "RemoteRecord | None":
        """Read what any version wrote; None when there is nothing, or nothing that can be understood."""
        try:
            return _JSON.validate_json(text) if text else None
        except ValidationError:
            return None


_JSON = TypeAdapter(RemoteRecord)

Change = Callable[[RemoteRecord, int], RemoteRecord]


class RemoteWorkers:
    """Notes workers over HTTP, each at most once a beat. Safe to use from several threads.

    What cannot be noted keeps no worker from its work: it only is not listed for a while.
    """

    def __init__(self, store: Store) -> None:
        self._redis, self._keys = store.redis, store.keys
        self._beat, self._lease = store.settings.beat, round(1000 * store.settings.lease)
        self._told: dict[tuple[str, str], tuple[float, float]] = {}  # when it was noted, and until when that holds

    def listens(self, worker: str, queue: str, types: tuple[str, ...], seconds: float) -> None:
        """Note that a worker asks a queue for tasks of these types, and waits for so long.

        Raises WorkerNameTaken when a worker with a connection to Redis has the name, TypeNotPublished for types that
        Redis does not know: it may have been emptied, and only this worker can publish them again.
        """
        lasts = round(1000 * seconds) + self._lease

        def claimed(there: RemoteRecord, now: int) -> RemoteRecord:
            wishes = there.listening(now) | {queue: Wish(now + lasts, types)}
            return replace(there, beat_at=now, is_busy=False, wishes=wishes)

        if self._is_due(worker, queue, seconds, lasts / 1000):
            try:
                self._note(worker, claimed, types)
            except (WorkerNameTaken, TypeNotPublished):
                self.forget(worker, queue)  # so that its next claim is refused too
                raise

    def forget(self, worker: str, queue: str) -> None:
        """Forget that a claim was noted: what is in Redis may be gone."""
        self._told.pop((worker, queue), None)

    def beats(self, worker: str) -> None:
        """Note that a worker is at work; one whose claims are not known stays unknown until its next claim."""

        def beat(there: RemoteRecord, now: int) -> RemoteRecord:
            wishes = {queue: replace(wish, until=now + self._lease) for queue, wish in there.listening(now).items()}
            return replace(there, beat_at=now, is_busy=True, wishes=wishes or there.wishes)

        if self._is_due(worker, "", 0, self._lease / 1000):
            self._note(worker, beat)

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

    def _note(self, worker: str, change: Change, types: Sequence[str] = ()) -> None:
        """Note a worker, a new one only when it claims tasks of some types."""

        name = self._keys.http_worker(worker)
        try:
            with translated():
                now = self._look(worker, types)

                def noted(pipeline: Pipeline) -> None:
                    there = RemoteRecord.from_json(cast("str | None", pipeline.get(name)))
                    pipeline.multi()
                    if there or types:
                        self._write(pipeline, worker, change(there or RemoteRecord(now, now), now), now)

                # One record of all its claims: done anew when another process, or thread, notes the worker meanwhile.
                self._redis.transaction(noted, name)
        except (WorkerNameTaken, TypeNotPublished):
            raise
        except GhostlessError as error:
            log.warning("the worker %s is not listed for now: %s", worker, error)

    def _look(self, worker: str, types: Sequence[str]) -> int:
        """Return the time in ms. Raises WorkerNameTaken and TypeNotPublished for a claim that may not be."""
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.time()
            if types:
                pipeline.hmget(self._keys.rq_worker(worker), "birth", "death")
                pipeline.hmget(self._keys.types, types)
            time, *found = pipeline.execute()
        if found:
            _check(worker, types, *found)
        return milliseconds(time)

    def _write(self, pipeline: Pipeline, worker: str, record: RemoteRecord, now: int) -> None:
        forget_at = record.until + KNOWN_LEASES * self._lease
        pipeline.zremrangebyscore(self._keys.http_workers, 0, now)
        pipeline.zadd(self._keys.http_workers, {worker: forget_at})
        pipeline.expire(self._keys.http_workers, INDEX_KEPT_FOR)
        pipeline.set(self._keys.http_worker(worker), record.to_json(), px=max(1, forget_at - now))


def _check(worker: str, types: Sequence[str], life: Sequence[str | None], published: Sequence[str | None]) -> None:
    birth, death = life
    if birth and not death:
        raise WorkerNameTaken(worker)
    if unknown := [name for name, kind in zip(types, published, strict=True) if kind is None]:
        raise TypeNotPublished(unknown)

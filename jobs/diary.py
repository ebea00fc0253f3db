"""The last events of a worker: horses that started, died or were replaced, types set aside, tasks given away."""

import json
import logging
import secrets
import time
from collections import deque
from dataclasses import dataclass
from typing import Final, cast

from redis import Redis

from .keys import Keys
from .scripts import milliseconds, translated

log = logging.getLogger("rq.worker.ghostless")

MOST: Final = 100
"""Events of one worker that are kept."""

KEPT_FOR: Final = 86_400
"""Seconds after the last event; short, since a worker that is restarted again and again has a new name each time."""


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """Something that happened to a worker. `at` is ms since 1970, by Redis' clock."""

    at: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Note:
    kind: str
    text: str
    noted_at: float
    note_id: str  # tells an event that was stored twice, since the reply to the first time was lost


class Diary:
    """Keeps the events of one worker until they are sent, so that noting one never waits for Redis."""

    def __init__(self, redis: Redis, keys: Keys, worker: str) -> None:
        self._redis, self._key = redis, keys.events(worker)
        self._unsent = deque[_Note](maxlen=MOST)

    def note(self, kind: str, text: str, level: int = logging.INFO) -> None:
        """Log an event, and keep it until it is sent."""
        log.log(level, "%s: %s", kind, text)
        self._unsent.append(_Note(kind, text, time.monotonic(), secrets.token_hex(4)))

    @property
    def has_news(self) -> bool:
        """Whether something was noted that is not stored yet."""
        return bool(self._unsent)

    def send(self) -> None:
        """Store what was noted; what could not be stored is kept. Raises GhostlessError."""
        notes = [self._unsent.popleft() for _ in range(len(self._unsent))]
        if not notes:
            return
        try:
            with translated():
                self._store(notes)
        except BaseException:
            self._unsent.extendleft(reversed(notes))
            raise

    def _store(self, notes: list[_Note]) -> None:
        now, clock = milliseconds(self._redis.time()), time.monotonic()
        entries = [
            json.dumps([now - round(1000 * (clock - note.noted_at)), note.kind, note.text, note.note_id])
            for note in notes
        ]
        with self._redis.pipeline() as pipeline:  # whole, so that it never stands there without TTL
            pipeline.lpush(self._key, *entries)
            pipeline.ltrim(self._key, 0, MOST - 1)
            pipeline.expire(self._key, KEPT_FOR)
            pipeline.execute()


def worker_events(redis: Redis, keys: Keys, worker: str) -> list[WorkerEvent]:
    """Return the last events of a worker, the newest first; none for one that is not known. Raises RedisUnavailable."""
    with translated():
        entries = cast("list[str]", redis.lrange(keys.events(worker), 0, -1))
    by_id = {note_id: WorkerEvent(at, kind, text) for at, kind, text, note_id in map(json.loads, entries)}
    return list(by_id.values())

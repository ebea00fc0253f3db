"""The two threads of the hub: each reads Redis on its own connection and survives whatever happens to it."""

import json
import logging
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, cast

from redis import Redis
from redis.exceptions import RedisError

from ..jobs.connection import BLOCK, connect_like
from ..jobs.errors import GhostlessError
from ..jobs.keys import Keys
from .cursors import Cursor, EntryId, from_text, to_text
from .frames import Live, Moment
from .past import ends
from .rooms import PENDING_LIMIT

READ_AT_ONCE = PENDING_LIMIT // 2
"""Entries of the history that one read returns at most; two reads in a row overflow no room."""

BACKOFF = (0.1, 2.0)
"""Seconds between attempts to reach Redis again: the first, and the most."""

log = logging.getLogger(__name__)

Fields = Mapping[str, str]


class Listeners(Protocol):
    """What a feed knows of the hub."""

    @property
    def position(self) -> Cursor: ...
    @property
    def subscribers(self) -> int: ...
    def beat(self, name: str) -> None: ...
    def paused(self, seconds: float) -> bool: ...
    def publish(self, moments: list[Moment], position: EntryId, *, complete: bool = True) -> None: ...
    def tell(self, live: Live) -> None: ...
    def restart(self, reason: str) -> None: ...


class Feed(ABC):
    """A loop around one blocking read."""

    name = ""

    def __init__(self, redis: Redis, keys: Keys, hub: Listeners) -> None:
        # The socket's time-out (5 s) is longer than the read blocks (2 s), and shorter than a dead peer stays silent.
        self._redis = connect_like(redis)
        self._keys, self._hub = keys, hub

    def run(self) -> None:
        """Read until the hub stops; while Redis is away, try again ever more slowly."""
        failures = 0
        try:
            while self._hub.paused(self._delay(failures)):
                self._hub.beat(self.name)
                failures = failures + 1 if self._failed() else 0
        finally:
            self._redis.close()

    def _failed(self) -> bool:
        try:
            self.step()
        except (RedisError, GhostlessError, OSError) as error:
            log.warning("the %s feed lost Redis and goes on when it is back: %s", self.name, error)
            return True
        return False

    @staticmethod
    def _delay(failures: int) -> float:
        first, most = BACKOFF
        # Jittered: many processes lost the same Redis at the same moment.
        return random.uniform(0.5, 1) * min(most, first * 2 ** min(failures, 10)) if failures else 0.0

    @abstractmethod
    def step(self) -> None:
        """Wait for what comes next and hand it to the hub. Raises RedisError."""


class HistoryFeed(Feed):
    """Follows the stream of all transitions; goes on after an outage where it was."""

    name = "history"

    def step(self) -> None:
        """Hand out the next entries, unless the history is no longer the one that was followed."""
        position = self._hub.position
        here = to_text(position.at)
        # One pipeline, so one connection: the entry we stand on, the entries after it and the epoch are of the same
        # server, also when it was replaced a moment ago. What was deleted is asked last: so it is never told too low.
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.xrange(self._keys.history, here, here)
            pipeline.xread({self._keys.history: here}, count=READ_AT_ONCE, block=round(BLOCK * 1000))
            pipeline.get(self._keys.epoch)
            pipeline.xinfo_stream(self._keys.history)
            standing, read, epoch, stream = pipeline.execute(raise_on_error=False)
        if error := next((answer for answer in (standing, read, epoch) if isinstance(answer, Exception)), None):
            raise error
        if not self._hub.paused(0):
            return
        _, deleted = ends(stream)
        if epoch != position.epoch:
            self._hub.restart("epoch")
        elif not standing and deleted < position.at:  # Redis lost the entry: no purge took it
            self._hub.restart("rewound")
        else:
            self._publish(read[0][1] if read else [], position.at, deleted)

    def _publish(self, entries: list[tuple[str, Fields]], here: EntryId, deleted: EntryId) -> None:
        """Hand out what was read; where a purge was faster than this feed, with the news that something is missing."""
        is_complete = deleted <= here
        if entries or not is_complete:
            reached = from_text(entries[-1][0]) if entries else deleted
            self._hub.publish(Moment.readable(entries), reached, complete=is_complete)


class LiveFeed(Feed):
    """Hears progress and log lines while it is connected; what is said meanwhile is nobody's loss."""

    name = "live"

    def __init__(self, redis: Redis, keys: Keys, hub: Listeners) -> None:
        super().__init__(redis, keys, hub)
        self.listens = threading.Event()  # set once it has heard of Redis that it does

    def step(self) -> None:
        """Listen until the connection breaks or the hub stops."""
        with self._redis.pubsub(ignore_subscribe_messages=True) as pubsub:
            pubsub.subscribe(self._keys.live)
            while self._hub.paused(0):
                self._hub.beat(self.name)
                message = cast(Mapping[str, Any] | None, pubsub.get_message(timeout=BLOCK))
                self.listens.set()  # the first answer is the one to the subscription
                if message and self._hub.subscribers:
                    self._tell(message["data"])

    def _tell(self, text: str) -> None:
        try:
            live = Live(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            log.error("a message on %s is neither progress nor log: %s", self._keys.live, error)
            return
        self._hub.tell(live)

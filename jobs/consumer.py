"""One listener's place in a consumer group of the history: what it is handed, and what it says of that.

Whatever is handed out stays the consumer's until it is done with, or until it was not renewed for a lease.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.client import Pipeline
from redis.exceptions import ResponseError

from .connection import BLOCK
from .errors import CorruptRecord
from .groups import PARKED_FOR, PARKED_MOST, Groups, Parked
from .model import Entry
from .scripts import milliseconds, translated

log = logging.getLogger("ghostless.listener")

LOOKED_AT = 100
"""Entries of the history that are looked at in one call."""


@dataclass(frozen=True, slots=True)
class Handed:
    """An entry to handle, and how often its handler was begun before."""

    entry: Entry
    begun: int


@dataclass(frozen=True, slots=True)
class Heard:
    """What one call brought. `end` is the newest entry of the history when `is_all`: nothing more was there."""

    handed: tuple[Handed, ...]
    end: str
    is_all: bool


class Consumer:
    """The calls of one consumer of one group. Each raises RedisUnavailable, and is safe to repeat."""

    def __init__(self, groups: Groups, group: str, name: str, lease: float) -> None:
        """`lease` is seconds."""
        self.group, self.name = group, name
        self._groups, self._redis, self._keys, self._scripts = groups, groups.redis, groups.keys, groups.scripts
        self._lease = round(1000 * lease)

    def subscribe(self, start: str) -> bool:
        """Let the group begin after the entry `start`, if there is none; tell whether it is new. Raises RedisFull."""
        return self._groups.create(self.group, start)

    def listen(self, wanted: Sequence[str], limit: int, needed: str = "") -> Heard | None:
        """Return what there is to handle, at most `limit` entries; None when there is no such group.

        With `needed` only entries of tasks that have a value of this kind, of those of `lua.loader.VALUES`.
        """
        names = [self._keys.history, self._keys.listener(self.group)]
        most = min(limit, LOOKED_AT)
        word, *reply = self._scripts.call("listen", names, (self.group, self.name, most, self._lease, needed, *wanted))
        if word == "missing":
            return None
        end, *rows = reply
        return Heard(tuple(handed for row in rows if (handed := self._read(*row))), end, word == "caught_up")

    def _read(self, entry_id: str, deliveries: int, flat: Sequence[str]) -> Handed | None:
        try:
            entry = Entry.from_fields(entry_id, dict(zip(flat[::2], flat[1::2], strict=True)))
        except CorruptRecord as error:
            log.error("%s: passed over: %s", self.group, error)
            self.done([entry_id])
            return None
        return Handed(entry, deliveries - 1)

    def wait(self, after: str, seconds: float) -> None:
        """Return when the history has an entry after this one, or after `seconds`, at most `BLOCK`."""
        patience = max(1, round(1000 * min(seconds, BLOCK)))
        with translated():
            self._redis.xread({self._keys.history: after}, count=1, block=patience)

    def begin(self, entry_id: str, begun: int) -> None:
        """Note that a handler begins with an entry, or how often it did."""
        self._claim([entry_id], retrycount=begun + 1)

    def renew(self, entry_ids: Sequence[str]) -> None:
        """Keep what was handed out for another lease."""
        if entry_ids:
            self._claim(entry_ids)

    def give_back(self, entry_ids: Sequence[str]) -> None:
        """Let the next consumer that asks have these, and leave the group when nothing else is held."""
        if entry_ids:
            self._claim(entry_ids, idle=self._lease)
        self.dismiss(0, leaving=True)

    def _claim(self, entry_ids: Sequence[str], **options: Any) -> None:
        history = self._keys.history
        with translated():
            try:
                self._redis.xclaim(history, self.group, self.name, 0, list(entry_ids), justid=True, **options)
            except ResponseError as error:
                if not str(error).startswith("NOGROUP"):  # which `listen` tells
                    raise

    def done(self, entry_ids: Iterable[str]) -> None:
        """Be handed these no more."""
        with translated():
            self._redis.xack(self._keys.history, self.group, *entry_ids)

    def park(self, entry: Entry, begun: int, error: str) -> None:
        """Set an entry aside, with why its handler could not handle it. Raises RedisFull, CorruptRecord."""
        key = self._keys.parked_entries(self.group)

        def park(pipeline: Pipeline) -> None:
            parked = Parked(entry, begun, error, milliseconds(pipeline.time()))
            pipeline.llen(key)  # beside something else than a list it would be done with, and parked nowhere
            pipeline.multi()
            pipeline.lpush(key, parked.pack())
            pipeline.ltrim(key, 0, PARKED_MOST - 1)
            pipeline.expire(key, PARKED_FOR)
            pipeline.xack(self._keys.history, self.group, entry.id)

        with translated():
            self._redis.transaction(park, key)

    def dismiss(self, silence: int, *, leaving: bool = False) -> None:
        """Remove consumers that hold nothing and were silent for so many ms, and this one when it is leaving."""
        longest = silence or 2**53
        leaver = self.name if leaving else ""
        names = [self._keys.history, self._keys.listener(self.group)]
        self._scripts.call("dismiss", names, (self.group, longest, leaver))

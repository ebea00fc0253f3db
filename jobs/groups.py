"""The consumer groups in which listeners read the history: how they stand, and what is parked in them."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from redis import Redis
from redis.exceptions import ResponseError

from .errors import CorruptRecord, GroupNotFound
from .keys import BEAT, Keys
from .model import Entry
from .scripts import Scripts, milliseconds, translated
from .settings import Settings

END = "$"
"""Where a group begins to read: after all that is in the history when it is created."""

BEGINNING = "0-0"
"""Or with the oldest entry that there is."""

PARKED_MOST = 1000
"""Parked entries that are kept for a group, the newest."""

PARKED_FOR = 30 * 86_400
"""Seconds that parked entries are kept after the last one was parked."""


@dataclass(frozen=True, slots=True)
class Parked:
    """An entry whose handler failed for good: how often it was begun, the last error, and when it was parked (ms)."""

    entry: Entry
    begun: int
    error: str
    at: int

    def pack(self) -> str:
        """Return the stored form."""
        return _JSON.dump_json(self).decode()

    @classmethod
    def unpack(cls, text: str) -> "Parked":
        """Read the stored form. Raises CorruptRecord."""
        try:
            return _JSON.validate_json(text)
        except ValidationError as error:
            raise CorruptRecord(f"a parked entry: {' '.join(str(error).split())}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON."""
        return asdict(self) | {"entry": self.entry.to_dict()}


_JSON = TypeAdapter(Parked)


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """How one group stands. Times are ms."""

    name: str
    listeners: tuple[str, ...]  # the consumers that are alive, by name
    lag: int | None  # entries not looked at yet; None where Redis cannot tell, since some were purged
    behind: int  # since the oldest entry not looked at yet was written; 0 when there is none
    pending: int  # entries handed out and not done with
    oldest_pending: int  # since the oldest of these was written; 0 when there is none
    parked: int
    missed: int  # entries that were purged before they were handed out

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON."""
        return asdict(self)


class Groups:
    """The groups of one database. Every function raises RedisUnavailable when Redis does not answer."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self.redis, self.keys = redis, Keys(settings.prefix)
        # A listener asks at least every other second, and renews what it holds with each beat.
        self._silence = round(1000 * max(settings.lease, 6.0))

    @cached_property
    def scripts(self) -> Scripts:
        """What changes a group; not needed to look at one."""
        return Scripts(self.redis, self.keys)

    def create(self, name: str, start: str = END) -> bool:
        """Let a group begin to read at an entry's id; tell whether there was none of this name. Raises RedisFull."""
        names = [self.keys.history, self.keys.listener(name)]
        return bool(self.scripts.call("subscribe", names, (name, start)))

    def remove(self, name: str) -> None:
        """Forget a group and what is parked in it. Raises GroupNotFound."""
        with translated():
            if not self._destroyed(name):
                raise GroupNotFound(name)
            self.redis.delete(self.keys.listener(name), self.keys.parked_entries(name))

    def _destroyed(self, name: str) -> bool:
        with suppress(ResponseError):  # there is no history at all
            return bool(self.redis.xgroup_destroy(self.keys.history, name))
        return False

    def all(self) -> list[GroupStatus]:
        """Return how every group stands, by name."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.time()
            pipeline.xinfo_groups(self.keys.history)
            time, groups = pipeline.execute(raise_on_error=False)
            if isinstance(groups, ResponseError) and "no such key" in str(groups):
                return []
            if isinstance(groups, Exception):
                raise groups
            for group in groups:
                self._ask(pipeline, group)
            answers = iter(pipeline.execute(raise_on_error=False))
        rows = [(group, [next(answers) for _ in range(5)]) for group in groups]
        # One that was removed since it was listed is answered with errors.
        there = [(group, row) for group, row in rows if not any(isinstance(answer, Exception) for answer in row)]
        found = [self._status(group, row, milliseconds(time)) for group, row in there]
        return sorted(found, key=lambda status: status.name)

    def _ask(self, pipeline: Any, group: Mapping[str, Any]) -> None:
        name = group["name"]
        pipeline.xinfo_consumers(self.keys.history, name)
        pipeline.xrange(self.keys.history, f"({group['last-delivered-id']}", "+", count=1)
        pipeline.xpending(self.keys.history, name)
        pipeline.hgetall(self.keys.listener(name))
        pipeline.llen(self.keys.parked_entries(name))

    def _status(self, group: Mapping[str, Any], row: Sequence[Any], now: int) -> GroupStatus:
        consumers, unread, pending, account, parked = row
        return GroupStatus(
            name=group["name"],
            listeners=tuple(sorted(self._alive(consumers, account, now))),
            lag=group.get("lag"),
            behind=_age(unread[0][0], now) if unread else 0,
            pending=pending["pending"],
            oldest_pending=_age(pending["min"], now) if pending["min"] else 0,
            parked=parked,
            missed=int(account.get("missed", 0)),
        )

    def _alive(self, consumers: Sequence[Mapping[str, Any]], account: Mapping[str, str], now: int) -> set[str]:
        """Return the consumers that asked, or kept what they hold, a moment ago."""
        kept = {consumer["name"] for consumer in consumers if consumer["idle"] <= self._silence}
        beats = {field.removeprefix(BEAT): int(at) for field, at in account.items() if field.startswith(BEAT)}
        return kept | {name for name, at in beats.items() if now - at <= self._silence}

    def parked(self, name: str) -> list[Parked]:
        """Return what is parked in a group, the newest first. Raises CorruptRecord."""
        return list({parked.entry.id: parked for parked in map(Parked.unpack, self._texts(name))}.values())

    def _texts(self, name: str) -> list[str]:
        with translated():
            return cast("list[str]", self.redis.lrange(self.keys.parked_entries(name), 0, -1))

    def replay(self, name: str, entry_ids: Collection[str] | None = None) -> tuple[list[str], list[str]]:
        """Let a group's listeners try parked entries again, these or all.

        Returns the ids of those, and of those that are gone since their tasks were purged, which stay parked.
        Raises GroupNotFound, CorruptRecord.
        """
        texts = self._texts(name)
        again: list[str] = []
        gone: list[str] = []
        for text in reversed(texts):  # the oldest first, as they came
            entry_id = Parked.unpack(text).entry.id
            if entry_ids is None or entry_id in entry_ids:
                (again if self._replayed(name, entry_id, text) else gone).append(entry_id)
        return again, gone

    def _replayed(self, name: str, entry_id: str, text: str) -> bool:
        history = self.keys.history
        with translated():
            try:
                # As if it had been handed to a listener that died long ago: the next that asks takes it over.
                claimed = self.redis.xclaim(
                    history,
                    name,
                    "replay",
                    0,
                    [entry_id],
                    idle=PARKED_FOR * 1000,
                    retrycount=1,
                    force=True,
                    justid=True,
                )
            except ResponseError as error:
                if str(error).startswith("NOGROUP"):
                    raise GroupNotFound(name) from error
                raise
            if claimed:
                self.redis.lrem(self.keys.parked_entries(name), 0, text)
        return bool(claimed)


def _age(entry_id: str, now: int) -> int:
    return max(0, now - int(entry_id.partition("-")[0]))

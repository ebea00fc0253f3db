"""The consumer groups in which listeners read the history: how they stand, and what is parked in them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError
from redis import Redis
from redis.exceptions import ResponseError

from .errors import CorruptRecord, GroupNotFound
from .keys import BEAT, Keys
from .model import Entry
from .names import as_entry_id, is_whole
from .scripts import Scripts, milliseconds, translated
from .settings import Settings
from .values import cut_middle, shown

END = "$"
"""Where a group begins to read: after all that is in the history when it is created."""

BEGINNING = "0-0"
"""Or with the oldest entry that there is."""

PARKED_MOST = 1000
"""Parked entries that are kept for a group, the newest."""

PARKED_ERROR = 4096
"""Bytes of the error that are kept with a parked entry, its head and its tail."""

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
        return _JSON.dump_json(replace(self, error=cut_middle(self.error, PARKED_ERROR))).decode()

    @classmethod
    def unpack(cls, text: str) -> "Parked":
        """Read the stored form. Raises CorruptRecord."""
        try:
            parked = _JSON.validate_json(text)
        except ValidationError as error:
            raise CorruptRecord(f"a parked entry: {' '.join(str(error).split())}") from error
        if as_entry_id(parked.entry.id) is None:
            raise CorruptRecord(f"a parked entry: expected the id of an entry, got {shown(parked.entry.id)}")
        return parked

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON."""
        return asdict(self) | {"entry": self.entry.to_dict()}


_JSON = TypeAdapter(Parked)


class Replayed(NamedTuple):
    """What became of parked entries that were to be tried again, by id; `damaged` tells of records without any."""

    again: list[str]
    gone: list[str]  # their tasks were purged, so they stay parked
    damaged: list[str]


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
    problem: str = ""  # what is damaged of what Redis keeps beside the group

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
        """Forget a group, what is known of it, and what is parked in it. Raises GroupNotFound."""
        with translated(), self.redis.pipeline() as pipeline:
            pipeline.delete(self.keys.listener(name), self.keys.parked_entries(name))
            pipeline.xgroup_destroy(self.keys.history, name)
            deleted, destroyed = pipeline.execute(raise_on_error=False)
            if isinstance(destroyed, Exception) and "requires the key to exist" not in str(destroyed):
                raise destroyed
        if not deleted and destroyed != 1:
            raise self._not_found(name)

    def _not_found(self, name: str) -> GroupNotFound:
        return GroupNotFound(name, self._names())

    def _names(self) -> list[str]:
        with translated():
            try:
                groups = self.redis.xinfo_groups(self.keys.history)
            except ResponseError as error:
                if _has_no_history(error):
                    return []
                raise
        return sorted(group["name"] for group in groups)

    def all(self) -> list[GroupStatus]:
        """Return how every group stands, by name. Raises CorruptRecord when there is no history but something else."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.time()
            pipeline.xinfo_groups(self.keys.history)
            time, groups = pipeline.execute(raise_on_error=False)
            if _has_no_history(groups):
                return []
            if isinstance(groups, Exception):
                raise groups
            for group in groups:
                self._ask(pipeline, group)
            answers = iter(pipeline.execute(raise_on_error=False))
            rows = [(group, [next(answers) for _ in range(5)]) for group in groups]
            found = [self._status(group, row, milliseconds(time)) for group, row in rows if _is_there(row)]
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
        numbers, problems = self._numbers(group["name"], account)
        if isinstance(parked, Exception):
            problems.append(f"{self.keys.parked_entries(group['name'])}: expected a list")
            parked = 0
        return GroupStatus(
            name=group["name"],
            listeners=tuple(sorted(self._alive(consumers, numbers, now))),
            lag=group.get("lag"),
            behind=_age(unread[0][0], now) if unread else 0,
            pending=pending["pending"],
            oldest_pending=_age(pending["min"], now) if pending["min"] else 0,
            parked=parked,
            missed=numbers.get("missed", 0),
            problem="; ".join(problems),
        )

    def _numbers(self, name: str, account: Mapping[str, str] | Exception) -> tuple[dict[str, int], list[str]]:
        """Return what is known of a group by field, and what is wrong with the rest: that hides no group."""
        key = self.keys.listener(name)
        if isinstance(account, Exception):
            return {}, [f"{key}: expected a hash"]
        numbers = {field: int(text) for field, text in account.items() if is_whole(text)}
        damaged = sorted(account.keys() - numbers.keys())
        return numbers, [
            f"{key} field {field}: expected a whole number, got {shown(account[field])}" for field in damaged
        ]

    def _alive(self, consumers: Sequence[Mapping[str, Any]], numbers: Mapping[str, int], now: int) -> set[str]:
        """Return the consumers that asked, or kept what they hold, a moment ago."""
        kept = {consumer["name"] for consumer in consumers if consumer["idle"] <= self._silence}
        beats = {field.removeprefix(BEAT): at for field, at in numbers.items() if field.startswith(BEAT)}
        return kept | {name for name, at in beats.items() if now - at <= self._silence}

    def parked(self, name: str) -> tuple[list[Parked], list[str]]:
        """Return what is parked in a group, the newest first, and what is wrong with records that cannot be read.

        Raises GroupNotFound when there is no such group and nothing of one, CorruptRecord when nothing can be read.
        """
        records, damaged = self._parked(name)
        return list({parked.entry.id: parked for _, parked in records}.values()), damaged

    def _parked(self, name: str) -> tuple[list[tuple[str, Parked]], list[str]]:
        """Return the records with their stored forms, the newest first, and what is wrong with the others."""
        with translated():
            texts = cast("list[str]", self.redis.lrange(self.keys.parked_entries(name), 0, -1))
        if not texts and name not in (names := self._names()):
            raise GroupNotFound(name, names)
        records: list[tuple[str, Parked]] = []
        damaged: list[str] = []
        for text in texts:
            try:
                records.append((text, Parked.unpack(text)))
            except CorruptRecord as error:
                damaged.append(error.detail)
        return records, damaged

    def replay(self, name: str, entry_ids: Collection[str] | None = None) -> Replayed:
        """Let a group's listeners try parked entries again, these or all. What is damaged keeps none from it.

        Raises GroupNotFound, CorruptRecord when nothing can be read at all.
        """
        records, damaged = self._parked(name)
        done = Replayed([], [], damaged)
        for text, parked in reversed(records):  # the oldest first, as they came
            entry_id = parked.entry.id
            if entry_ids is None or entry_id in entry_ids:
                (done.again if self._replayed(name, entry_id, text) else done.gone).append(entry_id)
        return done

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
                    raise self._not_found(name) from error
                raise
            if claimed:
                self.redis.lrem(self.keys.parked_entries(name), 0, text)
        return bool(claimed)


def _has_no_history(answer: Any) -> bool:
    return isinstance(answer, ResponseError) and "no such key" in str(answer)


def _is_there(row: Sequence[Any]) -> bool:
    """Tell whether a group was not removed since it was listed. Raises any error but damage of what is kept of it."""
    of_group, kept = row[:3], row[3:]
    errors = [answer for answer in of_group if isinstance(answer, Exception)]
    errors += [answer for answer in kept if isinstance(answer, Exception) and "WRONGTYPE" not in str(answer)]
    for error in errors:
        if "NOGROUP" not in str(error) and "no such key" not in str(error):
            raise error
    return not errors


def _age(entry_id: str, now: int) -> int:
    return max(0, now - int(entry_id.partition("-")[0]))

"""The callbacks of ended tasks in Redis: which are due, who delivers them now, and what became of each.

A record is written by compare-and-set: of two who tried the same delivery, since the first was taken for dead, one
notes what came of it.
"""

import json
import logging
import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from redis import Redis, RedisError, WatchError

from .delivery import Delivery, DeliveryState
from .errors import CorruptRecord, DeliveryNotFound
from .keys import Keys
from .model import Entry
from .scripts import Scripts, milliseconds, moment, translated

LIFE: Final = 7 * 86_400_000
"""How long the records of a task are kept once none of them waits, in ms."""

LEASE: Final = 120_000
"""How long a delivery is his who took it, in ms. A try takes less; what a dead listener had is tried again then."""

SHARE: Final = 4
"""Deliveries to one host at a time, for one listener."""

KEPT: Final = 50
"""Deliveries of one task that are kept, the newest; beyond them only those that wait. An operator's retry adds one."""

OWNERS_SHARE: Final = 16
"""Deliveries of one owner at a time, for one listener; those of nobody's tasks count as one owner's."""

LATE: Final = 60_000
"""How long a host waits for its turn, in ms, when nobody seems to deliver."""

NONE: Final[Mapping[str, int]] = {}
"""Where nothing is under way."""

log = logging.getLogger("ghostless.listener")


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery that is to be tried now, by him who took it."""

    delivery: Delivery
    record: str  # as it stands in Redis
    at: int  # when it was taken, in ms by Redis' clock
    clock: float  # the same moment by the monotonic clock, or shortly before

    def now(self) -> int:
        """Return what Redis' clock says by now, in ms."""
        return self.at + self.age()

    def age(self) -> int:
        """Return for how many ms it is taken."""
        return round(1000 * (time.monotonic() - self.clock))


class Listed(NamedTuple):
    """A delivery, and when it is tried next, in ms; None for never."""

    delivery: Delivery
    next_at: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON."""
        return self.delivery.to_dict(self.next_at)


class Overview(NamedTuple):
    """For how many hosts deliveries wait, and for how many of these they are late, since nobody seems to make them."""

    hosts: int
    late: int

    def __str__(self) -> str:
        if not self.hosts:
            return ""
        late = f", late for {self.late}; does a listener with GHOSTLESS_CALLBACK_SECRET run?" if self.late else ""
        return f"deliveries wait for {self.hosts} hosts{late}"

    def to_dict(self) -> dict[str, int]:
        """Return the form for JSON."""
        return self._asdict()


class Deliveries:
    """The deliveries of one database. Every function raises RedisUnavailable when Redis does not answer."""

    def __init__(self, redis: Redis, keys: Keys, scripts: Scripts) -> None:
        self._redis, self._keys, self._scripts = redis, keys, scripts

    # Delivering

    def plan(self, entry: Entry) -> None:
        """Let the end of a task that an entry tells of be delivered, if it has a callback; once, however often called.

        Raises CorruptRecord when the URL cannot be read.
        """
        with translated():
            url = cast("str | None", self._redis.get(self._keys.callback(entry.task)))
        if url is not None:
            self._revise("", Delivery(entry, url), 0)

    def take(self, most: int, to_hosts: Mapping[str, int], of_owners: Mapping[str, int] = NONE) -> list[Taken]:
        """Return deliveries to try now; under way are so many to each host and of each owner by now."""
        under_way = json.dumps(to_hosts), json.dumps(of_owners)
        clock = time.monotonic()
        reply = self._scripts.call(
            "dispatch", [self._keys.due_receivers], (most, LEASE, SHARE, OWNERS_SHARE, *under_way)
        )
        now, problems, *rows = reply
        for problem in problems:
            log.error("%s", problem)
        return [Taken(delivery, row[-1], now, clock) for row in rows if (delivery := self._read(*row))]

    def rebuild(self, host: str, member: str) -> bool:
        """Plan a delivery anew of which only the place is left; tell whether its task still says what is to be told.

        If not, it is given up: that is logged, and noted in `quarantine`.
        """
        task_id, _, delivery_id = member.partition(" ")
        with translated():
            found = cast(list[Any], self._redis.xrange(self._keys.history, delivery_id, delivery_id))
            url = self._redis.get(self._keys.callback(task_id))
        if found and url is not None:
            self.plan(Entry.from_fields(*found[0]))
            return True
        self._give_up(host, member)
        return False

    def _give_up(self, host: str, member: str) -> None:
        due, wrong = self._keys.due_deliveries(host), "the record of its callback's delivery is gone"
        log.error("%s: passed over: %s", member, wrong)
        # What another one does to the host meanwhile goes first; then this place is met again.
        with translated(), suppress(WatchError), self._redis.pipeline() as pipeline:
            pipeline.watch(due)
            is_last = pipeline.zcard(due) == 1
            pipeline.multi()
            pipeline.zrem(due, member)
            if is_last:
                pipeline.zrem(self._keys.due_receivers, host)
            pipeline.hset(self._keys.quarantine, f"{due} {member.partition(' ')[0]}", wrong)
            pipeline.execute()

    def is_lost(self, host: str, member: str) -> bool:
        """Tell whether a delivery has a place among those to a host, and no record."""
        name, _, delivery_id = member.partition(" ")
        with translated():
            if self._redis.hexists(self._keys.deliveries(name), delivery_id):
                return False
            return self._redis.zscore(self._keys.due_deliveries(host), member) is not None

    def _read(self, host: str, member: str, text: str) -> Delivery | None:
        if not text:
            self.rebuild(host, member)
            return None
        try:
            return Delivery.unpack(text)
        except CorruptRecord as error:
            log.error("%s: passed over: %s", member, error)
            with translated():
                self._redis.zrem(self._keys.due_deliveries(host), member)
            return None

    def note(self, taken: Taken, after: Delivery, wait: int | None) -> bool:
        """Write down what came of a try, and in how many ms the next one is; tell whether it was still the taker's."""
        return self._revise(taken.record, after, wait)

    def _revise(self, before: str, after: Delivery, wait: int | None) -> bool:
        keys = self._keys
        names = [keys.deliveries(after.entry.task), keys.due_deliveries(after.receiver.host), keys.due_receivers]
        arguments = (after.id, before, after.pack(), "" if wait is None else wait, LIFE, KEPT)
        (word,) = self._scripts.call("revise", names, arguments)
        return word != "stale"

    # Looking on

    def of_task(self, task_id: str) -> list[Listed]:
        """Return the deliveries of a task, the oldest first. Raises CorruptRecord."""
        return self._listed(sorted(map(Delivery.unpack, self._records(task_id).values()), key=_order))

    def _records(self, task_id: str) -> dict[str, str]:
        name = self._keys.deliveries(task_id)
        with _reading(name, "hash"):
            return cast("dict[str, str]", self._redis.hgetall(name))

    def _listed(self, deliveries: Sequence[Delivery]) -> list[Listed]:
        """Return deliveries with the times of their next tries, in one round trip."""
        hosts = [delivery.receiver.host for delivery in deliveries]
        members = [f"{delivery.entry.task} {delivery.id}" for delivery in deliveries]
        places = zip(map(self._keys.due_deliveries, hosts), members, strict=True)
        scores = self._scores([*places, *((self._keys.due_receivers, host) for host in hosts)])
        pairs = zip(scores, scores[len(hosts) :], strict=False)
        times = (None if score is None or turn is None else moment(score) for score, turn in pairs)
        return list(map(Listed, deliveries, times))

    def _scores(self, places: Sequence[tuple[str, str]]) -> list[float | None]:
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for name, member in places:
                pipeline.zscore(name, member)
            scores = pipeline.execute(raise_on_error=False)
        for (name, _), score in zip(places, scores, strict=True):
            if isinstance(score, RedisError):
                with _reading(name, "zset"):
                    raise score
        return scores

    def overview(self) -> Overview:
        """Return for how many hosts there is something to do."""
        due = self._keys.due_receivers
        with _reading(due, "zset"):
            late = milliseconds(self._redis.time()) - LATE
            return Overview(self._redis.zcard(due), self._redis.zcount(due, "-inf", late))

    # Acting

    def redeliver(self, task_id: str, delivery_id: str) -> Listed:
        """Let a delivery be tried now, for another day, whatever became of it; one under way is left alone.

        Raises DeliveryNotFound, CorruptRecord.
        """
        with translated():
            now = milliseconds(self._redis.time())
        record = self._records(task_id).get(delivery_id)
        if record is None:
            raise DeliveryNotFound(task_id, delivery_id)
        delivery = Delivery.unpack(record)
        next_at = self._listed([delivery])[0].next_at
        # What is due so soon may be under way already, since that is what a lease looks like.
        if delivery.state is DeliveryState.WAITING and next_at is not None and next_at - now <= LEASE:
            return Listed(delivery, next_at)
        if not self._revise(record, delivery.anew(), 0):
            return self.redeliver(task_id, delivery_id)  # somebody else was faster
        return Listed(delivery.anew(), now)

    def waits(self, task_id: str) -> bool:
        """Tell whether any of a task's deliveries waits; one that cannot be read does not."""
        return any(_waits(record) for record in self._records(task_id).values())

    def stranded(self, task_id: str, *, repairs: bool) -> list[str]:
        """Return the ids of deliveries that wait without a place, so that nothing would hand them out any more.

        With `repairs` they get one. Raises CorruptRecord.
        """
        records = self._records(task_id)
        listed = self._listed(list(map(Delivery.unpack, records.values())))
        waiting = [
            each.delivery for each in listed if each.next_at is None and each.delivery.state is DeliveryState.WAITING
        ]
        # A record changes together with its place: unless it is another by now, it had none a moment ago.
        now = self._records(task_id) if waiting else {}
        found = [delivery for delivery in waiting if now.get(delivery.id) == records.get(delivery.id)]
        if repairs:
            for delivery in found:
                self._revise(records[delivery.id], delivery, 0)
        return [delivery.id for delivery in found]


@contextmanager
def _reading(name: str, kind: str) -> Generator[None]:
    try:
        with translated():
            yield
    except CorruptRecord:
        raise CorruptRecord(f"{name}: expected {kind}") from None


def _waits(record: str) -> bool:
    try:
        return Delivery.unpack(record).state is DeliveryState.WAITING
    except CorruptRecord:
        return False


def _order(delivery: Delivery) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", delivery.id))

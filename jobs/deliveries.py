"""The callbacks of ended tasks in Redis: which are due, who delivers them now, and what became of each.

A record is written by compare-and-set: of two who tried the same delivery, since the first was taken for dead, one
notes what came of it.
"""

import json
import logging
import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from redis import Redis

from .delivery import Delivery, DeliveryState
from .errors import CorruptRecord, DeliveryNotFound
from .keys import Keys
from .model import Entry
from .scripts import Scripts, milliseconds, moment, translated

LIFE: Final = 7 * 86_400_000
"""How long records are kept after the last change, in ms."""

LEASE: Final = 120_000
"""How long a delivery is his who took it, in ms. A try takes less; what a dead listener had is tried again then."""

SHARE: Final = 4
"""Deliveries to one host at a time, for one listener."""

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

    def _read(self, host: str, member: str, text: str) -> Delivery | None:
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
        arguments = (after.id, before, after.pack(), "" if wait is None else wait, LIFE)
        (word,) = self._scripts.call("revise", names, arguments)
        return word != "stale"

    # Looking on

    def of_task(self, task_id: str) -> list[Listed]:
        """Return the deliveries of a task, the oldest first. Raises CorruptRecord."""
        found = sorted(map(Delivery.unpack, self._records(task_id).values()), key=_order)
        return [Listed(delivery, self._next_at(delivery)) for delivery in found]

    def _records(self, task_id: str) -> dict[str, str]:
        name = self._keys.deliveries(task_id)
        with _reading(name, "hash"):
            return cast("dict[str, str]", self._redis.hgetall(name))

    def _next_at(self, delivery: Delivery) -> int | None:
        host = delivery.receiver.host
        name, receivers = self._keys.due_deliveries(host), self._keys.due_receivers
        with _reading(name, "zset"):
            score = self._redis.zscore(name, f"{delivery.entry.task} {delivery.id}")
        with _reading(receivers, "zset"):
            turn = self._redis.zscore(receivers, host)
        return None if score is None or turn is None else moment(score)

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
        next_at = self._next_at(delivery)
        # What is due so soon may be under way already, since that is what a lease looks like.
        if delivery.state is DeliveryState.WAITING and next_at is not None and next_at - now <= LEASE:
            return Listed(delivery, next_at)
        if not self._revise(record, delivery.anew(), 0):
            return self.redeliver(task_id, delivery_id)  # somebody else was faster
        return Listed(delivery.anew(), now)

    def stranded(self, task_id: str, *, repairs: bool) -> list[str]:
        """Return the ids of deliveries that wait without a place, so that nothing would hand them out any more.

        With `repairs` they get one. Raises CorruptRecord.
        """
        found: list[str] = []
        for delivery_id, record in self._records(task_id).items():
            delivery = Delivery.unpack(record)
            if delivery.state is not DeliveryState.WAITING or self._next_at(delivery) is not None:
                continue
            # A record changes together with its place: unless it is another by now, it had none a moment ago.
            if self._records(task_id).get(delivery_id) == record:
                found.append(delivery_id)
                if repairs:
                    self._revise(record, delivery, 0)
        return found


@contextmanager
def _reading(name: str, kind: str) -> Generator[None]:
    try:
        with translated():
            yield
    except CorruptRecord:
        raise CorruptRecord(f"{name}: expected {kind}") from None


def _order(delivery: Delivery) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", delivery.id))

"""The workers as rq's own registry has them, and those over HTTP, read without changing anything."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from redis import Redis
from rq.worker import BaseWorker, WorkerStatus
from rq.worker_registration import REDIS_WORKER_KEYS

from .keys import Keys
from .record import MOST_TYPES, WorkerRecord
from .remote import RemoteRecord
from .rq_keys import WORKER_RECORD
from .scripts import milliseconds, translated

SILENT = "silent"
"""The state of a worker that has not beaten for longer than its lease, whatever it last said of itself."""

LOADING, DRAINING = "loading", "draining"
"""States that rq does not know: no horse is ready yet; told to stop, and perhaps still with a task."""

MOST_REMOTE = 10_000
"""Workers over HTTP that are read at most, the latest heard of first."""


@dataclass(frozen=True, slots=True)
class Member:
    """One worker that is known. Times are ms since 1970."""

    name: str
    state: str
    queues: tuple[str, ...]
    host: str
    pid: int | None
    heartbeat_at: int | None
    started_at: int | None
    done: int | None
    failed: int | None
    version: str  # of rq
    silent_for: int | None = None  # ms, once that is longer than the worker's lease
    record: WorkerRecord | None = None  # None for workers of rq's own
    over_http: bool = False  # it has no connection to Redis: host, process, version and counts are not known
    types_by_queue: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])  # if over HTTP

    @classmethod
    def read(cls, name: str, stored: Mapping[str, str], now: int) -> "Member":
        """Read a worker from its hash as of `now` (ms by Redis' clock); what it did not write stays empty."""
        record = WorkerRecord.from_json(stored.get(WORKER_RECORD))
        silent_for = _silence(record, now)
        return cls(
            name=name,
            state=SILENT if silent_for is not None else _phase(record) or stored.get("state", "?"),
            queues=tuple(queue for queue in stored.get("queues", "").split(",") if queue),
            host=stored.get("hostname", ""),
            pid=_number(stored.get("pid")),
            heartbeat_at=(record and record.beat_at) or _moment(stored.get("last_heartbeat")),
            started_at=_moment(stored.get("birth")),
            done=_number(stored.get("successful_job_count")) or 0,
            failed=_number(stored.get("failed_job_count")) or 0,
            version=stored.get("version", ""),
            silent_for=silent_for,
            record=record,
        )

    @classmethod
    def remote(cls, name: str, told: RemoteRecord, now: int) -> "Member":
        """Read a worker over HTTP as of `now`; one that fell silent is shown with what it served last."""
        wishes = told.listening(now) or told.wishes
        types = tuple(dict.fromkeys(task_type for wish in wishes.values() for task_type in wish.types))
        record = WorkerRecord(beat_at=told.beat_at, lease=told.until - told.beat_at, types=types)
        silent_for = _silence(record, now)
        doing = WorkerStatus.BUSY if told.is_busy else WorkerStatus.IDLE
        return cls(
            name=name,
            state=doing.value if silent_for is None else SILENT,
            queues=tuple(wishes),
            host="",
            pid=None,
            heartbeat_at=told.beat_at,
            started_at=told.since,
            done=None,
            failed=None,
            version="",
            silent_for=silent_for,
            record=record,
            over_http=True,
            types_by_queue={queue: wish.types for queue, wish in wishes.items()},
        )

    def takes(self, task_type: str) -> bool:
        """Tell whether it runs tasks of a type; where that is not known, as of rq's own workers, it is assumed."""
        record = self.record
        if record is None:
            return True
        if record.drain_ends_at:
            return False
        is_named = task_type in record.types or len(record.types) == MOST_TYPES
        return is_named and task_type not in record.set_aside

    def in_queue(self, queue: str) -> "Member":
        """Return the worker as this queue sees it: over HTTP it may serve other types in others."""
        if self.record is None or queue not in self.types_by_queue:
            return self
        return replace(self, record=replace(self.record, types=tuple(self.types_by_queue[queue])))

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON."""
        return asdict(self)


def members(redis: Redis, keys: Keys) -> list[Member]:
    """Return every worker that is registered with rq or works over HTTP, by name. Raises RedisUnavailable."""
    prefix = BaseWorker.redis_worker_namespace_prefix
    with translated(), redis.pipeline(transaction=False) as pipeline:
        pipeline.smembers(REDIS_WORKER_KEYS)
        pipeline.zrevrangebyscore(keys.http_workers, "+inf", "-inf", start=0, num=MOST_REMOTE)
        registered, remote = cast("tuple[set[str], list[str]]", pipeline.execute())
        pipeline.time()
        for key in registered:
            pipeline.hgetall(key)
        for name in remote:
            pipeline.get(keys.http_worker(name))
        time, *found = pipeline.execute()
    now, hashes, texts = milliseconds(time), found[: len(registered)], found[len(registered) :]
    # A key without a hash is a worker that died without a word, and whose record has expired.
    ours = [
        Member.read(key.removeprefix(prefix), stored, now)
        for key, stored in zip(registered, hashes, strict=True)
        if stored
    ]
    told = {name: record for name, text in zip(remote, texts, strict=True) if (record := RemoteRecord.from_json(text))}
    others = [Member.remote(name, record, now) for name, record in told.items()]
    return sorted(ours + others, key=lambda member: member.name)


def serving(queue: str, fleet: list[Member]) -> list[Member]:
    """Return the workers that serve a queue, without those that fell silent."""
    return [member.in_queue(queue) for member in fleet if queue in member.queues and member.silent_for is None]


def silent(queue: str, fleet: list[Member]) -> list[Member]:
    """Return the workers of a queue that fell silent; nobody knows whether they come back."""
    return [member for member in fleet if queue in member.queues and member.silent_for is not None]


def _silence(record: WorkerRecord | None, now: int) -> int | None:
    if record is None or record.beat_at is None or now - record.beat_at <= record.lease:
        return None
    return now - record.beat_at


def _phase(record: WorkerRecord | None) -> str:
    if record and record.drain_ends_at:
        return DRAINING
    return LOADING if record and record.loading_since else ""


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _moment(text: str | None) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000) if text else None
    except ValueError:
        return None

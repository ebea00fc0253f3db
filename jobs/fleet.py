"""The workers as rq's own registry has them, read without changing it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, cast

from redis import Redis
from rq.worker import BaseWorker
from rq.worker_registration import REDIS_WORKER_KEYS

from .scripts import translated


@dataclass(frozen=True, slots=True)
class Member:
    """One registered worker. Times are ms since 1970."""

    name: str
    state: str
    queues: tuple[str, ...]
    host: str
    pid: int | None
    heartbeat_at: int | None
    started_at: int | None
    done: int
    failed: int
    version: str

    @classmethod
    def read(cls, name: str, stored: Mapping[str, str]) -> "Member":
        """Read a worker from its hash; what it did not write stays empty."""
        return cls(
            name=name,
            state=stored.get("state", "?"),
            queues=tuple(queue for queue in stored.get("queues", "").split(",") if queue),
            host=stored.get("hostname", ""),
            pid=_number(stored.get("pid")),
            heartbeat_at=_moment(stored.get("last_heartbeat")),
            started_at=_moment(stored.get("birth")),
            done=_number(stored.get("successful_job_count")) or 0,
            failed=_number(stored.get("failed_job_count")) or 0,
            version=stored.get("version", ""),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON."""
        return asdict(self)


def members(redis: Redis) -> list[Member]:
    """Return every worker that is registered, by name. Raises RedisUnavailable."""
    prefix = BaseWorker.redis_worker_namespace_prefix
    with translated():
        keys = sorted(cast(set[str], redis.smembers(REDIS_WORKER_KEYS)))
        with redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hgetall(key)
            found = cast(list[dict[str, str]], pipeline.execute())
    # A key without a hash is a worker that died without a word, and whose record has expired.
    return [Member.read(key.removeprefix(prefix), stored) for key, stored in zip(keys, found, strict=True) if stored]


def serving(queue: str, fleet: list[Member]) -> list[str]:
    """Return the names of the workers that serve a queue."""
    return [member.name for member in fleet if queue in member.queues]


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _moment(text: str | None) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000) if text else None
    except ValueError:
        return None

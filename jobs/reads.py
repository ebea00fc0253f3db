"""What is in Redis, read without changing it, in as few round trips as it takes."""

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis
from redis.exceptions import RedisError

from ..statemachine import FINAL, RUNNING, STORED, State
from .errors import CorruptRecord, TaskNotFound, TaskPurged
from .keys import COUNTERS, Keys, pair
from .model import Entry, Task
from .names import as_entry_id, is_whole
from .scripts import milliseconds, translate, translated

log = logging.getLogger("ghostless")

BULKY = ("params", "metadata", "depends_on", "result", "error")


@dataclass(frozen=True, slots=True)
class Damaged:
    """A listed id whose record cannot be shown, and why."""

    id: str
    detail: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The PENDING tasks of a queue: all of them, and those of them that are parked, by type."""

    pending: int
    parked: dict[str, int]


class Reads:
    """Reads of one database. Safe to use from several threads."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis, self.keys = redis, keys

    def task(self, task_id: str) -> Task:
        """Return a task with its bulky values. Raises TaskNotFound, CorruptRecord, RedisUnavailable."""
        return self._record(task_id)[0]

    def task_with_history(self, task_id: str) -> tuple[Task, list[Entry]]:
        """Return a task with its bulky values, and every move up to then. Raises what `task` raises."""
        task, stored = self._record(task_id)
        with translated():
            return task, self._entries(entry_ids(self.keys.task(task_id), stored))

    def _record(self, task_id: str) -> tuple[Task, dict[str, str]]:
        names = [getattr(self.keys, name)(task_id) for name in BULKY]
        # Not in a MULTI, which a full Redis refuses; the hash is read first, so a value is never older than its state.
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(self.keys.task(task_id))
            pipeline.mget([*names, self.keys.tombstone(task_id)])
            stored, values = cast(tuple[dict[str, str], list[str | None]], pipeline.execute())
        if not stored:
            raise _not_found(task_id, values[-1])
        return Task.from_fields(task_id, stored, dict(zip(BULKY, values, strict=False))), stored

    def not_found(self, task_id: str) -> TaskNotFound:
        """Return the error for a task that is not there; it tells what became of it."""
        with translated():
            return _not_found(task_id, cast(str | None, self.redis.get(self.keys.tombstone(task_id))))

    def demand(self, task_id: str) -> None:
        """Raise TaskNotFound when there is no such task."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.exists(self.keys.task(task_id))
            pipeline.get(self.keys.tombstone(task_id))
            is_there, tombstone = cast(tuple[int, str | None], pipeline.execute())
        if not is_there:
            raise _not_found(task_id, tombstone)

    def tasks(self, task_ids: Sequence[str]) -> list[Task | Damaged]:
        """Return tasks without their bulky values, in the order asked for."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                pipeline.hgetall(self.keys.task(task_id))
            records = pipeline.execute(raise_on_error=False)
        return [_readable(task_id, record) for task_id, record in zip(task_ids, records, strict=True)]

    def history(self, task_id: str) -> list[Entry]:
        """Return every move of a task, oldest first. Raises TaskNotFound, CorruptRecord."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(self.keys.task(task_id))
            pipeline.get(self.keys.tombstone(task_id))
            stored, tombstone = cast(tuple[dict[str, str], str | None], pipeline.execute())
            if not stored:
                raise _not_found(task_id, tombstone)
            return self._entries(entry_ids(self.keys.task(task_id), stored))

    def _entries(self, ids: Sequence[str]) -> list[Entry]:
        with self.redis.pipeline(transaction=False) as pipeline:
            for entry_id in ids:
                pipeline.xrange(self.keys.history, entry_id, entry_id)
            found = cast(list[list[tuple[str, dict[str, str]]]], pipeline.execute())
        missing = [entry_id for entry_id, entry in zip(ids, found, strict=True) if not entry]
        if missing:
            raise CorruptRecord(f"{self.keys.history}: entries {', '.join(missing)} are gone")
        return [Entry.from_fields(*entry[0]) for entry in found]

    def places(self) -> set[str]:
        """Return every "queue:type" of which there are tasks."""
        with translated():
            return cast(set[str], self.redis.smembers(self.keys.listed_places))

    def counts(self) -> dict[State, int]:
        """Return how many tasks are in each state."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for state in STORED:
                pipeline.zcard(self.keys.state(state))
            return dict(zip(STORED, cast(list[int], pipeline.execute()), strict=True))

    def ledger(self) -> dict[str, int]:
        """Return the counters of tasks: `submitted` = `live` + `final` + `purged` + `lost` + `missing`.

        `lost` were written off by the doctor; `missing` should be none; `archived` are among the purged; `stale_writes`
        are those of refused writers.
        """
        with translated(), self.redis.pipeline(transaction=False) as pipeline:  # in one go, so that they fit
            pipeline.hgetall(self.keys.ledger)
            for state in STORED:
                pipeline.zcard(self.keys.state(state))
            stored, *numbers = pipeline.execute()
        try:
            submitted, purged, lost, archived, stale = (int(stored.get(name, 0)) for name in COUNTERS)
        except ValueError as error:
            raise CorruptRecord(f"{self.keys.ledger}: {error}") from error
        final = sum(number for state, number in zip(STORED, numbers, strict=True) if state in FINAL)
        live = sum(numbers) - final
        missing = submitted - live - final - purged - lost
        return dict(
            submitted=submitted, live=live, final=final, purged=purged, lost=lost, missing=missing, archived=archived,
            stale_writes=stale,
        )  # fmt: skip

    def held_by(self, worker_id: str) -> dict[str, int]:
        """Return the running tasks of a worker, each with its attempt."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for state in RUNNING:
                pipeline.zrange(self.keys.state(state), 0, -1)
            ids = [task_id for members in pipeline.execute() for task_id in members]
            for task_id in ids:
                pipeline.hmget(self.keys.task(task_id), "worker_id", "attempt")
            found = pipeline.execute(raise_on_error=False)
        # What cannot be read is for the watchdog to set aside.
        rows = [(task_id, row) for task_id, row in zip(ids, found, strict=True) if not isinstance(row, Exception)]
        return {
            task_id: int(attempt)
            for task_id, (holder, attempt) in rows
            if holder == worker_id and attempt and attempt.isdecimal()
        }

    def queues(self) -> dict[str, str]:
        """Return every queue that ever held a task, with "running" or "paused"."""
        with translated():
            return cast(dict[str, str], self.redis.hgetall(self.keys.queues))

    def waiting(self, queues: Sequence[str]) -> dict[str, Waiting]:
        """Return what waits in each queue."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for queue in queues:
                pipeline.zcard(self.keys.pending(queue))
                pipeline.smembers(self.keys.parked_types(queue))
            answers = iter(pipeline.execute())
            ready = {queue: (next(answers), sorted(next(answers))) for queue in queues}
            for queue, (_, types) in ready.items():
                for name in types:
                    pipeline.zcard(self.keys.parked(pair(queue, name)))
            numbers = iter(pipeline.execute())
        parked = {queue: {name: next(numbers) for name in types} for queue, (_, types) in ready.items()}
        return {
            queue: Waiting(number + sum(parked[queue].values()), parked[queue]) for queue, (number, _) in ready.items()
        }

    def pending(self, queues: Sequence[str]) -> dict[str, int]:
        """Return how many PENDING tasks each queue holds, the parked ones included."""
        return {queue: waiting.pending for queue, waiting in self.waiting(queues).items()}

    def oldest_pending(self, waiting: Mapping[str, Waiting]) -> dict[str, int]:
        """Return since when (ms) the oldest PENDING task of each queue waits; a queue without any is left out.

        `waiting` is what `waiting` answered: it names the parked types.
        """
        places = [
            (queue, index)
            for queue, found in waiting.items()
            for index in (self.keys.pending(queue), *(self.keys.parked(pair(queue, name)) for name in found.parked))
        ]
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for _, index in places:
                pipeline.zrange(index, 0, 0, withscores=True)
            firsts = cast(list[list[tuple[str, float]]], pipeline.execute())
        since: dict[str, int] = {}
        for (queue, _), first in zip(places, firsts, strict=True):
            for _, entered_at in first:
                since[queue] = min(since.get(queue, int(entered_at)), int(entered_at))
        return since

    def types(self) -> dict[str, Mapping[str, Any]]:
        """Return what workers published of their task types: queue, policy, schema, description."""
        with translated():
            stored = cast(dict[str, str], self.redis.hgetall(self.keys.types))
        return {name: kind for name, text in stored.items() if (kind := _published(name, text))}

    def watchdog(self) -> dict[str, str | int] | None:
        """Return who swept last and when, and how long the last audit of all took (ms); None when nobody did lately."""
        return self._watch()[0]

    def is_watched(self) -> bool:
        """Tell whether a watchdog runs: its next sweep is not overdue."""
        trace, now = self._watch()
        return trace is not None and is_kept_up(trace, now)

    def _watch(self) -> tuple[dict[str, str | int] | None, int]:
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(self.keys.watchdog)
            pipeline.hget(self.keys.patrol, "took")
            pipeline.time()
            stored, took, time = cast("tuple[Any, Any, Any]", pipeline.execute(raise_on_error=False))
            for answer in (stored, time):
                if isinstance(answer, RedisError) and not isinstance(translate(answer), CorruptRecord):
                    raise answer
        return _trace(stored, took), milliseconds(time)

    def log(self, task_id: str) -> list[str]:
        """Return the last lines that the handler logged."""
        with translated():
            return cast(list[str], self.redis.lrange(self.keys.log(task_id), 0, -1))

    def unmet(self, task_id: str) -> list[str]:
        """Return the ids of the tasks that a BLOCKED task still waits for."""
        with translated():
            return sorted(cast(set[str], self.redis.smembers(self.keys.unmet(task_id))))

    def checkpoint(self, task_id: str) -> Any:
        """Return what the last attempt saved to go on from; None when it saved nothing. Raises CorruptRecord."""
        with translated():
            text = cast(str | None, self.redis.get(self.keys.checkpoint(task_id)))
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CorruptRecord(f"checkpoint of {task_id}: {error}") from error

    def epoch(self) -> str:
        """Return the id of this database, writing one when there is none yet."""
        with translated():
            # Looked for first: a replica and a full Redis take no write, and are still good to read from.
            there = cast(str | None, self.redis.get(self.keys.epoch))
            if there is None:
                self.redis.set(self.keys.epoch, secrets.token_hex(4), nx=True)
            return there or cast(str, self.redis.get(self.keys.epoch))

    def now(self) -> int:
        """Return Redis' time in ms."""
        with translated():
            return milliseconds(self.redis.time())

    def ping(self) -> None:
        """Raise RedisUnavailable when Redis does not answer."""
        with translated():
            self.redis.ping()


def _published(name: str, text: str) -> Mapping[str, Any] | None:
    try:
        kind = json.loads(text)
        return kind if {"queue", "policy", "schema", "description"} <= kind.keys() else None
    except (ValueError, AttributeError, RecursionError):
        log.error("what is published of the task type %r cannot be read", name)
        return None


def _not_found(task_id: str, tombstone: str | None) -> TaskNotFound:
    state, when, archive, *_ = [*(tombstone or "").split(" "), "", ""]
    return TaskPurged(task_id, int(when), state, archive) if when.isdecimal() else TaskNotFound(task_id)


def entry_ids(name: str, stored: Mapping[str, str]) -> list[str]:
    """Return the ids of a task's history entries from its hash. Raises CorruptRecord under this name."""
    try:
        ids = [stored[f"h{index}"] for index in range(1, int(stored.get("entries", 0)) + 1)]
    except (KeyError, ValueError) as error:
        raise CorruptRecord(f"{name}: {type(error).__name__} {error}") from error
    broken = [entry_id for entry_id in ids if as_entry_id(entry_id) is None]
    if broken:
        raise CorruptRecord(f"{name}: no ids of history entries: {', '.join(broken)}")
    return ids


def _readable(task_id: str, record: Any) -> Task | Damaged:
    if isinstance(record, Exception) or not record:
        return Damaged(task_id, str(record) if record else "the record is gone")
    try:
        return Task.from_fields(task_id, record)
    except CorruptRecord as error:
        return Damaged(task_id, error.detail)


def _trace(stored: Any, took: Any) -> dict[str, str | int] | None:
    """Return what a sweep left; of a damaged trace nothing, which is no more than if nobody had swept."""
    if not isinstance(stored, dict) or "actor" not in stored:
        return None
    texts = cast(dict[str, str], stored) | ({"audit_round": str(took)} if is_whole(str(took)) else {})
    trace = {name: int(text) if is_whole(text) else text for name, text in texts.items()}
    return trace if isinstance(trace.get("swept_at"), int) else None


def is_kept_up(trace: Mapping[str, str | int], now: int) -> bool:
    """Tell whether the next sweep after the one that left this trace is not overdue; `now` is ms."""
    late_from = trace.get("late_from")
    return not isinstance(late_from, int) or now <= late_from

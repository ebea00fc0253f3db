"""What a dead worker leaves behind: its task is told to be lost at once, and its entry leaves rq's registry."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

from redis.client import Pipeline

from .errors import CorruptRecord
from .reads import Reads
from .scripts import translated
from .store import Store

log = logging.getLogger("rq.worker.ghostless")


def entry_of(store: Store, worker: str) -> Mapping[str, str]:
    """Return what stands in rq's registry about a worker; empty when there is nothing. Raises RedisUnavailable."""
    with translated():
        return cast("Mapping[str, str]", store.redis.hgetall(store.keys.rq_worker(worker)))


def report_dead(store: Store, worker: str, incarnation: str, actor: str, message: str) -> None:
    """Take away what a worker held of which no process is left, and remove its entry.

    Then rq's next clean-up finds the plain job that it ran; else it would do so when nobody has renewed it for a
    minute or two. Raises RedisUnavailable, RedisFull.
    """
    executions = _executions_of(store, worker)
    queues = entry_of(store, worker).get("queues", "").split(",")
    if report_lost(store, worker, incarnation, actor, message, is_dead=True):
        _abandon(store, queues, executions)


def report_lost(store: Store, worker: str, incarnation: str, actor: str, message: str, *, is_dead: bool) -> bool:
    """Take away what a worker held that is gone, and remove its entry; tell whether the entry was still its own.

    A successor under the same name has done so before it registered, and what it holds is its own. The entry goes
    last, so that whoever finds it after a kill in the middle does the rest. Unless the worker's process `is_dead` for
    certain, its lease must be over before its task runs anew. Raises RedisUnavailable, RedisFull.
    """
    held = Reads(store.redis, store.keys).held_by(worker)
    if entry_of(store, worker).get("incarnation") != incarnation:
        return False
    for task_id, attempt in held.items():
        try:
            answer = store.lose(task_id, attempt, worker, actor, message, is_dead=is_dead)
            log.warning("task %s: %s; it is %s", task_id, message, answer.state)
        except CorruptRecord as error:  # which must not keep the others from their turn
            log.error("%s", error)
    _unregister(store, worker, incarnation)
    return True


def _executions_of(store: Store, worker: str) -> set[str]:
    with translated():
        return cast("set[str]", store.redis.smembers(store.keys.rq_worker_executions(worker)))


def _abandon(store: Store, queues: Iterable[str], executions: Iterable[str]) -> None:
    with translated(), store.redis.pipeline(transaction=False) as pipeline:
        for execution in executions:
            for queue in queues:
                pipeline.zadd(store.keys.rq_started(queue), {execution: 1}, xx=True)
        pipeline.execute()


def _unregister(store: Store, worker: str, incarnation: str) -> None:
    """Remove an entry as rq's `register_death` does, unless a successor has made it its own meanwhile."""
    key = store.keys.rq_worker(worker)

    def remove(pipeline: Pipeline) -> None:
        entry = cast("dict[str, str]", pipeline.hgetall(key))
        pipeline.multi()
        if entry.get("incarnation") == incarnation:
            pipeline.srem(store.keys.rq_workers, key)
            for queue in entry.get("queues", "").split(","):
                pipeline.srem(store.keys.rq_workers_of(queue), key)
            pipeline.delete(key, store.keys.rq_worker_executions(worker))

    with translated():
        cast("Any", store.redis).transaction(remove, key)

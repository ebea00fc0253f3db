"""What a dead worker leaves behind: its task is told to be lost at once, and its entry leaves rq's registry."""

import logging
from collections.abc import Mapping
from typing import Any, cast

from redis.client import Pipeline
from rq.executions import WORKER_EXECUTIONS_KEY_TEMPLATE
from rq.registry import StartedJobRegistry
from rq.worker import BaseWorker
from rq.worker_registration import REDIS_WORKER_KEYS, WORKERS_BY_QUEUE_KEY

from .errors import CorruptRecord
from .reads import Reads
from .scripts import translated
from .store import Store

log = logging.getLogger("rq.worker.ghostless")


def entry_of(store: Store, worker: str) -> Mapping[str, str]:
    """Return what stands in rq's registry about a worker; empty when there is nothing. Raises RedisUnavailable."""
    with translated():
        return cast("Mapping[str, str]", store.redis.hgetall(_key(worker)))


def report_lost(store: Store, worker: str, incarnation: str, actor: str, message: str) -> None:
    """Take away what a worker held that is known to be dead, and remove its entry.

    A successor under the same name has done so before it registered, and what it holds is its own. The entry goes
    last, so that whoever finds it after a kill in the middle does the rest. Raises RedisUnavailable, RedisFull.
    """
    held = Reads(store.redis, store.keys).held_by(worker)
    if entry_of(store, worker).get("incarnation") != incarnation:
        return
    for task_id, attempt in held.items():
        try:
            answer = store.lose(task_id, attempt, worker, actor, message)
            log.warning("task %s: %s; it is %s", task_id, message, answer.state)
        except CorruptRecord as error:  # which must not keep the others from their turn
            log.error("%s", error)
    _unregister(store, worker, incarnation)


def abandon_plain_jobs(store: Store, worker: str) -> None:
    """Let rq's next clean-up find the plain jobs of a worker of which no process is left. Raises RedisUnavailable.

    Else it finds them when nobody has renewed them for a minute or two.
    """
    queues = entry_of(store, worker).get("queues", "").split(",")
    with translated(), store.redis.pipeline(transaction=False) as pipeline:
        for execution in cast("set[str]", store.redis.smembers(WORKER_EXECUTIONS_KEY_TEMPLATE.format(worker))):
            for queue in queues:
                pipeline.zadd(StartedJobRegistry.key_template.format(queue), {execution: 1}, xx=True)
        pipeline.execute()


def _unregister(store: Store, worker: str, incarnation: str) -> None:
    """Remove an entry as rq's `register_death` does, unless a successor has made it its own meanwhile."""
    key = _key(worker)

    def remove(pipeline: Pipeline) -> None:
        entry = cast("dict[str, str]", pipeline.hgetall(key))
        pipeline.multi()
        if entry.get("incarnation") == incarnation:
            pipeline.srem(REDIS_WORKER_KEYS, key)
            for queue in entry.get("queues", "").split(","):
                pipeline.srem(WORKERS_BY_QUEUE_KEY % queue, key)
            pipeline.delete(key, WORKER_EXECUTIONS_KEY_TEMPLATE.format(worker))

    with translated():
        cast("Any", store.redis).transaction(remove, key)


def _key(worker: str) -> str:
    return f"{BaseWorker.redis_worker_namespace_prefix}{worker}"

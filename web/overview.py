"""Routes that tell how the whole stands: counts, queues, task types, workers."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue
from rq.worker_registration import REDIS_WORKER_KEYS

from ..jobs.reads import Reads
from ..jobs.scripts import translated
from .desk import desk
from .models import NoBody, NoQuery, read_body, read_query
from .names import queue_name
from .problems import Refusal

WORKER_FIELDS = ("state", "queues", "birth", "last_heartbeat", "current_job", "hostname", "pid", "version")
"""What rq keeps of each worker and a reader may see."""

routes = Blueprint("overview", __name__, url_prefix="/api")


@routes.get("/stats")
def stats() -> ResponseReturnValue:
    """Return how many tasks are in each state and queue, the ledger, and when the watchdog last swept."""
    read_query(NoQuery)
    reads = desk().client.reads
    return jsonify(
        states=reads.counts(), ledger=reads.ledger(), pending=reads.pending(sorted(reads.queues())),
        watchdog=_watchdog(reads.watchdog()),
    )  # fmt: skip


def _watchdog(trace: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the trace with its times as numbers (ms); None when no watchdog swept for a while."""
    return {name: int(value) if value.isdigit() else value for name, value in trace.items()} or None


@routes.get("/queues")
def queues() -> ResponseReturnValue:
    """Return every queue with its state and how many tasks wait in it."""
    read_query(NoQuery)
    return jsonify(queues=_queues(desk().client.reads))


def _queues(reads: Reads) -> list[dict[str, Any]]:
    states = reads.queues()
    pending = reads.pending(sorted(states))
    return [{"name": name, "state": states[name], "pending": pending[name]} for name in sorted(states)]


@routes.post("/queues/<given_name>/<any(pause, resume):action>")
def act(given_name: str, action: str) -> ResponseReturnValue:
    """Let no task of a queue start, or let them start again; running ones go on."""
    read_query(NoQuery)
    read_body(NoBody)
    client, name = desk().client, queue_name(given_name)
    if name not in client.reads.queues() and all(name != kind.queue for kind in client.types().values()):
        raise Refusal(404, "queue-not-found", "No such queue", f"no task and no task type names the queue {name!r}")
    if action == "pause":
        client.store.pause_queue(name)
    else:
        client.store.resume_queue(name)
    return jsonify(next(queue for queue in _queues(client.reads) if queue["name"] == name))


@routes.get("/types")
def types() -> ResponseReturnValue:
    """Return every task type that workers published: its queue, its policy (times in ms), its schema."""
    read_query(NoQuery)
    return jsonify(types=[asdict(kind) for _, kind in sorted(desk().client.types().items())])


@routes.get("/workers")
def workers() -> ResponseReturnValue:
    """Return every worker that is registered with rq, ours and others."""
    read_query(NoQuery)
    return jsonify(workers=_workers(desk().client.reads))


def _workers(reads: Reads) -> list[dict[str, Any]]:
    with translated():
        keys = sorted(cast(set[str], reads.redis.smembers(REDIS_WORKER_KEYS)))
        with reads.redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hmget(key, WORKER_FIELDS)
            records = cast(list[list[str | None]], pipeline.execute())
    views = [dict(zip(WORKER_FIELDS, record, strict=True)) for record in records]
    # A worker that died without a word stays in the set until rq cleans up; its record is gone by then.
    return [
        view | {"name": key.removeprefix("rq:worker:"), "queues": (view["queues"] or "").split(",")}
        for key, view in zip(keys, views, strict=True)
        if view["birth"]
    ]

"""Routes that tell how the whole stands: counts, queues, task types, workers."""

from dataclasses import asdict

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from ..jobs.overview import overview
from ..jobs.schedules import as_dict
from .access import Scope
from .desk import desk
from .names import queue_name
from .operations import operation
from .overview_views import QueueList, QueueView, ScheduleList, StatsView, TypeList, WorkerList

routes = Blueprint("overview", __name__, url_prefix="/api")


@routes.get("/stats")
@operation(Scope.READ, whole=True, answers={200: StatsView})
def stats() -> ResponseReturnValue:
    """Return how many tasks are in each state and queue, the ledger, the last sweep, and how far listeners are."""
    return jsonify(overview(desk().client).to_dict())


@routes.get("/queues")
@operation(Scope.READ, whole=True, answers={200: QueueList})
def queues() -> ResponseReturnValue:
    """Return every queue with its state, how many tasks wait in it, and how many of them are parked, by type."""
    return jsonify(queues=desk().client.queue_overview())


@routes.post("/queues/<given_name>/<any(pause, resume):action>")
@operation(Scope.OPERATE, whole=True, answers={200: QueueView})
def act(given_name: str, action: str) -> ResponseReturnValue:
    """Let no task of a queue start, or let them start again; running ones go on."""
    client, name = desk().client, queue_name(given_name)
    if action == "pause":
        client.pause_queue(name)
    else:
        client.resume_queue(name)
    return jsonify(next(queue for queue in client.queue_overview() if queue["name"] == name))


@routes.get("/types")
@operation(Scope.READ, answers={200: TypeList})
def types() -> ResponseReturnValue:
    """Return every task type that workers published: its queue, its policy (times in ms), its schema."""
    return jsonify(types=[asdict(kind) for _, kind in sorted(desk().client.types().items())])


@routes.get("/schedules")
@operation(Scope.READ, whole=True, answers={200: ScheduleList})
def schedules() -> ResponseReturnValue:
    """Return every schedule, by name: what it submits, when it is due next, and what became of its last run."""
    found, _ = desk().client.schedules.all()
    return jsonify(schedules=[as_dict(name, schedule) for name, schedule in found.items()])


@routes.get("/workers")
@operation(Scope.READ, whole=True, answers={200: WorkerList})
def workers() -> ResponseReturnValue:
    """Return every worker that is registered with rq, ours and others."""
    return jsonify(workers=[worker.to_dict() for worker in desk().client.workers()])

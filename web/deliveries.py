"""Routes of callbacks: what was told of a task, and telling it again."""

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from ..jobs.deliveries import Listed
from ..jobs.errors import DeliveryNotFound
from .access import Scope, caller
from .confinement import task_seen
from .delivery_views import DeliveryList, DeliveryView
from .desk import desk
from .names import task_id
from .operations import operation

routes = Blueprint("deliveries", __name__, url_prefix="/api/tasks/<given_id>/deliveries")


@routes.get("")
@operation(Scope.READ, answers={200: DeliveryList})
def listing(given_id: str) -> ResponseReturnValue:
    """Return what is told to a task's callback: its deliveries, the oldest first, with each try.

    They are kept for 7 days, also when the task is purged before.
    """
    return jsonify(task=given_id, deliveries=[each.to_dict() for each in _seen(given_id)])


@routes.post("/<delivery_id>/redeliver")
@operation(Scope.OPERATE, answers={202: DeliveryView})
def redeliver(given_id: str, delivery_id: str) -> ResponseReturnValue:
    """Let a delivery be tried now, for another day, whatever became of it: 202. One under way is left alone."""
    if delivery_id not in (each.delivery.id for each in _seen(given_id)):
        raise DeliveryNotFound(given_id, delivery_id)
    return jsonify(desk().client.deliveries.redeliver(given_id, delivery_id).to_dict()), 202


def _seen(given_id: str) -> list[Listed]:
    """Return the deliveries of a task that the caller may see. Raises TaskNotFound.

    They may be of several tasks, one after the other: an id is free again once its task is purged for long enough.
    """
    found = desk().client.deliveries_of(task_id(given_id))
    seen = [each for each in found if caller().may_see(each.delivery.entry.owner or None)]
    if not seen:
        task_seen(given_id)
    return seen

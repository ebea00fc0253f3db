"""Routes of bulk actions: what is done to many tasks at once, found by a filter, and how far it is."""

from dataclasses import asdict
from typing import Any

from flask import Blueprint, Response, jsonify, request, url_for
from flask.typing import ResponseReturnValue

from ..jobs.bulk import BulkAction
from ..jobs.reads import Damaged
from .access import Scope, caller
from .desk import desk
from .models import BulkBody, BulkListQuery
from .names import bulk_id
from .operations import operation

LOOK_AGAIN = 1
"""Seconds after which it is worth while to look again how far a bulk action is."""

routes = Blueprint("bulk", __name__, url_prefix="/api")


@routes.post("/tasks/bulk/<any(cancel, pause, resume, retry):action>")
@operation(Scope.OPERATE, body=BulkBody)
def begin(action: str, body: BulkBody) -> ResponseReturnValue:
    """Cancel, pause, resume or retry all tasks that a filter accepts: 202 with the place that tells how far it is.

    200 when the same Idempotency-Key began it before. With `dry_run` the tasks are counted, and nothing is changed.
    """
    wish = body.request(action, request.headers.get("Idempotency-Key"), caller().owner)
    bulk = desk().client.bulk
    if body.dry_run:
        return jsonify(asdict(bulk.count(wish)) | {"dry_run": True})
    # Answered from the script's own reply, as a submit is.
    begun = bulk.begin(wish, caller().actor)
    answer = jsonify(id=begun.bulk_id, created=begun.created)
    answer.headers["Location"] = url_for("bulk.show", given_id=begun.bulk_id)
    return _to_poll(answer), 202 if begun.created else 200


@routes.get("/bulk")
@operation(Scope.READ, query=BulkListQuery)
def listing(query: BulkListQuery) -> ResponseReturnValue:
    """Return the last bulk actions, the newest first."""
    found = desk().client.bulk.newest(query.limit, caller().owner)
    return jsonify(bulk_actions=[_view(one) for one in found])


def _view(found: BulkAction | Damaged) -> dict[str, Any]:
    return {"id": found.id, "damaged": True} if isinstance(found, Damaged) else found.to_dict()


@routes.get("/bulk/<given_id>")
@operation(Scope.READ)
def show(given_id: str) -> ResponseReturnValue:
    """Return a bulk action: how far it is, what it did, and the first tasks that it could not move, with the reason."""
    found = desk().client.bulk.get(bulk_id(given_id), caller().owner)
    answer = jsonify(found.to_dict())
    return answer if found.ended_at else _to_poll(answer)


def _to_poll(answer: Response) -> Response:
    answer.headers["Retry-After"] = str(LOOK_AGAIN)
    return answer


@routes.post("/bulk/<given_id>/cancel")
@operation(Scope.OPERATE)
def stop(given_id: str) -> ResponseReturnValue:
    """End a bulk action that still runs, and return it; what it has done stays done."""
    bulk = desk().client.bulk
    bulk.get(bulk_id(given_id), caller().owner)
    bulk.stop(given_id, caller().actor)
    return jsonify(bulk.get(given_id, caller().owner).to_dict())

"""Routes of bulk actions: what is done to many tasks at once, found by a filter, and how far it is."""

from dataclasses import asdict
from typing import Any

from flask import Blueprint, Response, jsonify, request, url_for
from flask.typing import ResponseReturnValue

from ..jobs.bulk import BulkAction
from ..jobs.model import damaged_view
from ..jobs.reads import Damaged
from ..statemachine import ACTIONS
from .access import Scope, caller
from .bulk_models import BulkBody, BulkListQuery
from .bulk_views import BegunOrCount, BegunView, BulkList, BulkView
from .desk import desk
from .idempotency import idempotency_key
from .names import bulk_id
from .operations import Reply, operation

LOOK_AGAIN = 1
"""Seconds after which it is worth while to look again how far a bulk action is."""

routes = Blueprint("bulk", __name__, url_prefix="/api")


@routes.post(f"/tasks/bulk/<any({', '.join(ACTIONS)}):action>")
@operation(
    Scope.OPERATE,
    body=BulkBody,
    headers=("Idempotency-Key",),
    answers={
        202: Reply(BegunView, ("Location", "Retry-After"), "It was accepted."),
        200: Reply(
            BegunOrCount,
            ("Location", "Retry-After"),
            "It was begun before, with the same Idempotency-Key; or it was a dry run.",
        ),
    },
    problems=(429,),
)
def begin(action: str, body: BulkBody) -> ResponseReturnValue:
    """Cancel, pause, resume or retry all tasks that a filter accepts: 202 with the place that tells how far it is.

    200 when the same Idempotency-Key began it before. With `dry_run` the tasks are counted, and nothing is changed.
    """
    wish = body.request(action, idempotency_key(request.headers.get("Idempotency-Key")), caller().owner)
    bulk = desk().client.bulk
    if body.dry_run:
        return jsonify(asdict(bulk.count(wish)) | {"dry_run": True})
    # Answered from the script's own reply, as a submit is.
    begun = bulk.begin(wish, caller().actor)
    answer = jsonify(id=begun.bulk_id, created=begun.created)
    answer.headers["Location"] = url_for("bulk.show", given_bulk=begun.bulk_id)
    return _to_poll(answer), 202 if begun.created else 200


@routes.get("/bulk")
@operation(Scope.READ, query=BulkListQuery, answers={200: BulkList})
def listing(query: BulkListQuery) -> ResponseReturnValue:
    """Return the last bulk actions, the newest first."""
    found = desk().client.bulk.newest(query.limit, caller().owner)
    return jsonify(bulk_actions=[_view(one) for one in found])


def _view(found: BulkAction | Damaged) -> dict[str, Any]:
    return damaged_view(id=found.id) if isinstance(found, Damaged) else found.to_dict()


@routes.get("/bulk/<given_bulk>")
@operation(Scope.READ, answers={200: Reply(BulkView, ("Retry-After",))})
def show(given_bulk: str) -> ResponseReturnValue:
    """Return a bulk action: how far it is, what it did, and the first tasks that it could not move, with the reason."""
    found = desk().client.bulk.get(bulk_id(given_bulk), caller().owner)
    answer = jsonify(found.to_dict())
    return answer if found.ended_at else _to_poll(answer)


def _to_poll(answer: Response) -> Response:
    answer.headers["Retry-After"] = str(LOOK_AGAIN)
    return answer


@routes.post("/bulk/<given_bulk>/stop")
@operation(Scope.OPERATE, answers={200: BulkView})
def stop(given_bulk: str) -> ResponseReturnValue:
    """End a bulk action that still runs, and return it; what it has done stays done."""
    bulk = desk().client.bulk
    bulk.get(bulk_id(given_bulk), caller().owner)
    bulk.stop(given_bulk, caller().actor)
    return jsonify(bulk.get(given_bulk, caller().owner).to_dict())

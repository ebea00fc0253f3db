"""Routes of tasks: submit, list, follow, act."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, jsonify, request, url_for
from flask.typing import ResponseReturnValue

from ..jobs.client import Filter, Page
from ..jobs.errors import InvalidTask
from ..jobs.messages import Answer
from ..jobs.model import Task
from ..jobs.reads import Damaged
from ..jobs.submission import Request
from ..statemachine import State
from .access import Scope, caller
from .confinement import cursor_read, cursor_shown, task_seen
from .cursors import ORIGIN, to_text
from .desk import Desk, desk
from .models import ActionBody, ListQuery, SubmitBody, WaitQuery
from .operations import operation
from .problems import Refusal, wrong_parameter
from .waiting import applied_wait, wait_for_change

UNCONFIRMED = frozenset({State.CANCELLING, State.PAUSING})
"""States in which a worker has still to confirm what was asked."""

routes = Blueprint("tasks", __name__, url_prefix="/api/tasks")


@routes.post("")
@operation(Scope.SUBMIT, body=SubmitBody)
def submit(body: SubmitBody) -> ResponseReturnValue:
    """Accept a task: 202 with its place, or 200 when it existed already."""
    wish = body.request(request.headers.get("Idempotency-Key"))
    # Answered from the submit's own reply: a further read could fail, and a client that is told of a failure submits
    # once more.
    accepted = desk().client.submit_request(_of_caller(wish), caller().actor)
    answer = jsonify(id=accepted.task_id, state=accepted.state, created=accepted.created)
    answer.headers["Location"] = url_for("tasks.show", given_id=accepted.task_id)
    return answer, 202 if accepted.created else 200


def _of_caller(wish: Request) -> Request:
    """Return the wish of a caller who is bound to an owner as one that concerns that owner's tasks only."""
    owner = caller().owner
    if owner is None:
        return wish
    if wish.owner not in (None, owner):
        raise Refusal(403, "bound-token", "Not allowed", "owner: this token submits for its own owner only")
    return replace(wish, owner=owner, confined=True)


@routes.get("")
@operation(Scope.READ, query=ListQuery)
def listing(query: ListQuery) -> ResponseReturnValue:
    """Return one page of tasks, the latest change first, with the cursor of the next page and of a stream."""
    here = desk()
    # The place in the history comes first: a move between the two reads is then told again, not missed.
    newest = here.past.newest()
    try:
        owner, cursor = caller().owner_wanted(query.owner), cursor_read(query.cursor)
        page = here.client.list(Filter(query.state, query.type, query.queue, owner), limit=query.limit, cursor=cursor)
    except InvalidTask as error:
        raise wrong_parameter(error.faults) from error
    return jsonify(_page_view(here, page, newest.epoch) | {"last_event_id": str(newest)})


def _page_view(here: Desk, page: Page, epoch: str) -> dict[str, Any]:
    tasks = [
        {"id": task.id, "damaged": True} if isinstance(task, Damaged) else here.shown(task, epoch)
        for task in page.tasks
    ]
    return {"tasks": tasks, "next": cursor_shown(page.cursor)}


@routes.get("/<given_id>")
@operation(Scope.READ, query=WaitQuery, streams=True)
def show(given_id: str, query: WaitQuery) -> ResponseReturnValue:
    """Return a task; 304 when the client has this version, and held for as long as it asks to wait."""
    wait = applied_wait(query.wait, request.headers.get("Prefer", ""))
    here = desk()
    epoch = here.epoch()
    task = wait_for_change(here, task_seen(given_id), _knows_version(), wait or 0)
    caller().confirm()
    caller().check(task)
    answer = _task_answer(here, task, epoch)
    answer.make_conditional(request)
    if wait is not None:
        answer.headers["Preference-Applied"] = f"wait={wait}"
    return answer


def _knows_version() -> Callable[[Task], bool] | None:
    """Return what tells whether the client has a version already; None when it did not say what it has."""
    known = request.if_none_match
    return (lambda task: known.contains_weak(task.version)) if known else None


def _task_answer(here: Desk, task: Task, epoch: str) -> Response:
    answer = jsonify(here.shown(task, epoch))
    answer.set_etag(task.version)
    return answer


@routes.get("/<given_id>/history")
@operation(Scope.READ)
def history(given_id: str) -> ResponseReturnValue:
    """Return every move of a task, oldest first."""
    epoch = desk().epoch()
    entries = desk().client.history(task_seen(given_id))
    newest = entries[-1].id if entries else to_text(ORIGIN)
    return jsonify(task=given_id, entries=[entry.to_dict() for entry in entries], cursor=f"{epoch}.{newest}")


@routes.get("/<given_id>/explain")
@operation(Scope.READ)
def explain(given_id: str) -> ResponseReturnValue:
    """Say why a task is where it is, what happens next and when, and what a person can do."""
    return jsonify(desk().client.explain(task_seen(given_id)).to_dict())


@routes.post("/<given_id>/<any(cancel, pause, resume, retry):action>")
@operation(Scope.OPERATE, body=ActionBody)
def act(given_id: str, action: str, body: ActionBody) -> ResponseReturnValue:
    """Cancel, pause, resume or retry: 200 when that is done or was so already, 202 when the worker has to confirm."""
    here = desk()
    _ask(here, action)(task_seen(given_id), actor=caller().actor, message=body.message)
    epoch = here.epoch()
    task = here.client.get(given_id)
    return _task_answer(here, task, epoch), 202 if task.state in UNCONFIRMED else 200


def _ask(here: Desk, action: str) -> Callable[..., Answer]:
    client = here.client
    return {"cancel": client.cancel, "pause": client.pause, "resume": client.resume, "retry": client.retry}[action]

"""Routes of tasks: submit, list, follow, act."""

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, jsonify, request, url_for
from flask.typing import ResponseReturnValue

from ..jobs.client import Filter, Page
from ..jobs.errors import InvalidTask
from ..jobs.messages import Answer
from ..jobs.model import Task
from ..jobs.reads import Damaged
from ..statemachine import State
from .cursors import ORIGIN, to_text
from .desk import Desk, desk
from .models import ActionBody, ListQuery, NoQuery, SubmitBody, WaitQuery, read_body, read_query
from .names import task_id
from .problems import Refusal, wrong_parameter
from .waiting import applied_wait, wait_for_change

ACTOR = "api"
"""Who the history says did it."""

UNCONFIRMED = frozenset({State.CANCELLING, State.PAUSING})
"""States in which a worker has still to confirm what was asked."""

routes = Blueprint("tasks", __name__, url_prefix="/api/tasks")


@routes.post("")
def submit() -> ResponseReturnValue:
    """Accept a task: 202 with its place, or 200 when it existed already."""
    read_query(NoQuery)
    if request.mimetype != "application/json":
        raise Refusal(415, "not-json", "Only JSON is taken", "Content-Type: expected application/json")
    wish = read_body(SubmitBody).request(request.headers.get("Idempotency-Key"))
    # Answered from the submit's own reply: a further read could fail, and a client that is told of a failure submits
    # once more.
    accepted = desk().client.submit_request(wish, ACTOR)
    answer = jsonify(id=accepted.task_id, state=accepted.state, created=accepted.created)
    answer.headers["Location"] = url_for("tasks.show", given_id=accepted.task_id)
    return answer, 202 if accepted.created else 200


@routes.get("")
def listing() -> ResponseReturnValue:
    """Return one page of tasks, the latest change first, with the cursor of the next page and of a stream."""
    wanted = read_query(ListQuery)
    here = desk()
    # The place in the history comes first: a move between the two reads is then told again, not missed.
    newest = here.past.newest()
    try:
        page = here.client.list(
            Filter(wanted.state, wanted.type, wanted.queue, wanted.owner), limit=wanted.limit, cursor=wanted.cursor
        )
    except InvalidTask as error:
        raise wrong_parameter(error.faults) from error
    return jsonify(_page_view(here, page, newest.epoch) | {"last_event_id": str(newest)})


def _page_view(here: Desk, page: Page, epoch: str) -> dict[str, Any]:
    tasks = [
        {"id": task.id, "damaged": True} if isinstance(task, Damaged) else here.shown(task, epoch)
        for task in page.tasks
    ]
    return {"tasks": tasks, "next": page.cursor}


@routes.get("/<given_id>")
def show(given_id: str) -> ResponseReturnValue:
    """Return a task; 304 when the client has this version, and held for as long as it asks to wait."""
    wait = applied_wait(read_query(WaitQuery).wait, request.headers.get("Prefer", ""))
    here = desk()
    epoch = here.epoch()
    task = wait_for_change(here, task_id(given_id), _knows_version(), wait or 0)
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
def history(given_id: str) -> ResponseReturnValue:
    """Return every move of a task, oldest first."""
    read_query(NoQuery)
    epoch = desk().epoch()
    entries = desk().client.history(task_id(given_id))
    newest = entries[-1].id if entries else to_text(ORIGIN)
    return jsonify(task=given_id, entries=[entry.to_dict() for entry in entries], cursor=f"{epoch}.{newest}")


@routes.get("/<given_id>/explain")
def explain(given_id: str) -> ResponseReturnValue:
    """Say why a task is where it is, what happens next and when, and what a person can do."""
    read_query(NoQuery)
    return jsonify(desk().client.explain(task_id(given_id)).to_dict())


@routes.post("/<given_id>/<any(cancel, pause, resume, retry):action>")
def act(given_id: str, action: str) -> ResponseReturnValue:
    """Cancel, pause, resume or retry: 200 when that is done or was so already, 202 when the worker has to confirm."""
    read_query(NoQuery)
    here = desk()
    message = read_body(ActionBody).message
    _ask(here, action)(task_id(given_id), actor=ACTOR, message=message)
    epoch = here.epoch()
    task = here.client.get(given_id)
    return _task_answer(here, task, epoch), 202 if task.state in UNCONFIRMED else 200


def _ask(here: Desk, action: str) -> Callable[..., Answer]:
    client = here.client
    return {"cancel": client.cancel, "pause": client.pause, "resume": client.resume, "retry": client.retry}[action]

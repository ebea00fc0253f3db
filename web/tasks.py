"""Routes of tasks: submit, list, follow, act."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, jsonify, request, url_for
from flask.typing import ResponseReturnValue

from ..jobs.errors import InvalidTask
from ..jobs.listing import Filter, Page
from ..jobs.model import Task, damaged_view
from ..jobs.reads import Damaged
from ..jobs.submission import Request
from ..statemachine import ACTIONS, State
from .access import Scope, caller
from .confinement import cursor_read, cursor_shown, places, task_seen
from .cursors import ORIGIN, to_text
from .desk import desk, shown
from .idempotency import idempotency_key
from .kinds import Kind
from .models import ActionBody, ListQuery, SubmitBody, WaitQuery
from .operations import UNCHANGED, Reply, operation
from .problems import Refusal, wrong_parameter
from .views import ExplanationView, HistoryView, SubmittedView, TaskList, TaskView
from .waiting import POLL_AFTER, applied_wait, tell_wait, wait_for_change

UNCONFIRMED = frozenset({State.CANCELLING, State.PAUSING})
"""States in which a worker has still to confirm what was asked."""

routes = Blueprint("tasks", __name__, url_prefix="/api/tasks")


@routes.post("")
@operation(
    Scope.SUBMIT,
    body=SubmitBody,
    headers=("Idempotency-Key",),
    answers={
        202: Reply(SubmittedView, ("Location", "Retry-After"), "The task was accepted."),
        200: Reply(SubmittedView, ("Location",), "It existed already: the same request was sent before."),
    },
    problems=(409,),
)
def submit(body: SubmitBody) -> ResponseReturnValue:
    """Accept a task: 202 with its place, or 200 when it existed already."""
    wish = body.request(idempotency_key(request.headers.get("Idempotency-Key")))
    # Answered from the submit's own reply: a further read could fail, and a client that is told of a failure submits
    # once more.
    accepted = desk().client.submit_request(_of_caller(wish), caller().actor)
    answer = jsonify(id=accepted.task_id, state=accepted.state, created=accepted.created)
    answer.headers["Location"] = url_for("tasks.show", given_id=accepted.task_id)
    if not accepted.created:
        return answer, 200
    answer.headers["Retry-After"] = str(POLL_AFTER)
    return answer, 202


def _of_caller(wish: Request) -> Request:
    """Return the wish of a caller who is bound to an owner as one that concerns that owner's tasks only."""
    owner = caller().owner
    if owner is None:
        return wish
    if wish.owner not in (None, owner):
        raise Refusal(Kind.BOUND_TOKEN, "owner: this token submits for its own owner only")
    return replace(wish, owner=owner, confined=True)


@routes.get("")
@operation(
    Scope.READ,
    query=ListQuery,
    headers=("If-None-Match",),
    answers={200: Reply(TaskList, ("ETag", "Link")), 304: UNCHANGED},
    problems=(404,),
)
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
    following = cursor_shown(page.cursor)
    answer = jsonify(tasks=_tasks_view(page, newest.epoch), next=following, last_event_id=places().shown(newest))
    # Weak: a later place in the history alone is no other page.
    answer.set_etag(_page_version(page, newest.epoch), weak=True)
    if following:
        wanted: dict[str, Any] = query.model_dump(mode="json", exclude_unset=True) | {"cursor": following}
        answer.headers["Link"] = f'<{url_for("tasks.listing", **wanted)}>; rel="next"'
    return answer.make_conditional(request)


def _tasks_view(page: Page, epoch: str) -> list[dict[str, Any]]:
    return [damaged_view(id=task.id) if isinstance(task, Damaged) else shown(task, epoch) for task in page.tasks]


def _page_version(page: Page, epoch: str) -> str:
    # Where the look ended may be at another owner's task: its moves make no other page.
    end = bool(page.cursor) if caller().is_confined else page.cursor or ""
    versions = [task.id if isinstance(task, Damaged) else f"{task.id}.{task.version}" for task in page.tasks]
    return hashlib.blake2b(" ".join([epoch, *versions, str(end)]).encode(), digest_size=12).hexdigest()


@routes.get("/<given_id>")
@operation(
    Scope.READ,
    query=WaitQuery,
    streams=True,
    headers=("If-None-Match", "Prefer"),
    answers={
        200: Reply(TaskView, ("ETag", "Retry-After", "Preference-Applied")),
        304: Reply(None, ("ETag", "Retry-After", "Preference-Applied"), "The client has this version."),
    },
    problems=(429,),
)
def show(given_id: str, query: WaitQuery) -> ResponseReturnValue:
    """Return a task; 304 when the client has this version, and held for as long as it asks to wait."""
    wait = applied_wait(query.wait, request.headers.get("Prefer", ""))
    here = desk()
    epoch = here.epoch()
    task = wait_for_change(here, task_seen(given_id), _knows_version(), wait or 0)
    caller().confirm()
    caller().check(task)
    answer = _task_answer(task, epoch)
    tell_wait(answer, wait)
    if wait is None and not task.is_final:
        answer.headers["Retry-After"] = str(POLL_AFTER)
    return answer.make_conditional(request)


def _knows_version() -> Callable[[Task], bool] | None:
    """Return what tells whether the client has a version already; None when it did not say what it has."""
    known = request.if_none_match
    return (lambda task: known.contains_weak(task.version)) if known else None


def _task_answer(task: Task, epoch: str) -> Response:
    answer = jsonify(shown(task, epoch))
    answer.set_etag(task.version)
    return answer


@routes.get("/<given_id>/history")
@operation(
    Scope.READ,
    streams=True,
    headers=("If-None-Match",),
    answers={200: Reply(HistoryView, ("ETag",)), 304: UNCHANGED},
)
def history(given_id: str) -> ResponseReturnValue:
    """Return every move of a task, oldest first."""
    epoch = desk().epoch()
    entries = desk().client.history(task_seen(given_id))
    newest = entries[-1].id if entries else to_text(ORIGIN)
    cursor = f"{epoch}.{newest}"
    answer = jsonify(task=given_id, entries=[entry.to_dict() for entry in entries], cursor=cursor)
    answer.set_etag(cursor)  # moves are added, and never change
    return answer.make_conditional(request)


@routes.get("/<given_id>/explain")
@operation(Scope.READ, answers={200: ExplanationView})
def explain(given_id: str) -> ResponseReturnValue:
    """Say why a task is where it is, what happens next and when, and what a person can do."""
    return jsonify(desk().client.explain(task_seen(given_id)).to_dict())


@routes.post(f"/<given_id>/<any({', '.join(ACTIONS)}):action>")
@operation(
    Scope.OPERATE,
    body=ActionBody,
    answers={
        200: Reply(TaskView, ("ETag",), "It is done, or was so already."),
        202: Reply(TaskView, ("ETag", "Retry-After"), "The task's worker was asked, and has to confirm."),
    },
    problems=(409,),
)
def act(given_id: str, action: str, body: ActionBody) -> ResponseReturnValue:
    """Cancel, pause, resume or retry: 200 when that is done or was so already, 202 when the worker has to confirm."""
    here = desk()
    ask: Callable[..., object] = getattr(here.client, action)  # each action is one of its methods
    ask(task_seen(given_id), actor=caller().actor, message=body.message)
    epoch = here.epoch()
    task = here.client.get(given_id)
    answer = _task_answer(task, epoch)
    if task.state not in UNCONFIRMED:
        return answer, 200
    answer.headers["Retry-After"] = str(POLL_AFTER)
    return answer, 202

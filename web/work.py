"""Routes of workers that have HTTP and no access to Redis: any language can do a task, under the same fence."""

import secrets
from collections.abc import Callable, Mapping
from typing import Final

from flask import Blueprint, Response, jsonify, request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel

from ..jobs.beats import heartbeat_many
from ..jobs.context import LINE_LIMIT
from ..jobs.context import MESSAGE_LIMIT as PROGRESS_LIMIT
from ..jobs.errors import CorruptRecord, IllegalMove, StaleAttempt, TaskNotFound
from ..jobs.failure import ERROR_LIMIT
from ..jobs.messages import Answer, Claim, Claimed, Ending, Held
from ..jobs.names import MESSAGE_LIMIT
from ..jobs.settings import Settings
from ..jobs.store import Store
from ..jobs.values import InvalidValue, cut, cut_middle, to_json
from ..statemachine import Event, Reason, State
from .access import Scope, caller
from .desk import desk
from .listening import Place
from .models import WaitQuery
from .names import queue_name, task_id
from .operations import Reply, operation
from .peers import Peer
from .problems import pointer, wrong_body
from .waiting import applied_wait, tell_wait
from .work_models import (
    AttemptBody,
    BeatOfOne,
    BeatsBody,
    CheckpointBody,
    ClaimBody,
    CompleteBody,
    FailBody,
    LogBody,
    ProgressBody,
    StoppedBody,
    SuspendBody,
)
from .work_views import Action, AttemptView, BeatsView, BeatView, ClaimView, EndView

_ACTIONS: Final[Mapping[State, Action]] = {
    State.PROCESSING: "continue",
    State.CANCELLING: "cancel",
    State.PAUSING: "pause",
}
"""What the worker is to do with its attempt, by the state of the task."""

_TIMEOUTS: Final = frozenset({"deadline", "stalled"})

routes = Blueprint("work", __name__, url_prefix="/api")

# Claims


@routes.post("/queues/<given_name>/claim")
@operation(
    Scope.WORK, query=WaitQuery, body=ClaimBody, headers=("Prefer",), problems=(409, 429),
    answers={
        200: Reply(ClaimView, ("Preference-Applied",)),
        204: Reply(None, ("Preference-Applied",), "No task came."),
    },
)  # fmt: skip
def claim(given_name: str, query: WaitQuery, body: ClaimBody) -> ResponseReturnValue:
    """Start the next task of a queue for a worker: 200 with the task, 204 when none came within the wait.

    The worker renews the lease every `heartbeat` seconds, or somebody else gets the task after `lease` seconds. When
    the answer is lost, a claim repeated within a minute with the same `token` gets the same task.
    """
    here, peer = desk(), Peer(request.environ)
    wait = applied_wait(query.wait, request.headers.get("Prefer", ""))
    token = body.token or secrets.token_hex(8)
    wish = Claim(body.worker, (queue_name(given_name),), token, tuple(body.types), tasks_only=True)

    def is_there() -> bool:
        caller().confirm()  # he was let in before the wait
        return not peer.has_hung_up()

    claimed = here.claiming.take(wish, wait or 0, Place(here), is_there)
    answer = _json_of(_shown(claimed, here.work.settings)) if claimed else Response(status=204)
    tell_wait(answer, wait)
    return answer


def _shown(claimed: Claimed, settings: Settings) -> ClaimView:
    task, held = claimed.task, claimed.held
    return ClaimView(
        id=task.id,
        type=task.type,
        queue=task.queue,
        owner=task.owner,
        worker=task.worker_id or "",
        attempt=held.attempt,
        token=held.token,
        params=claimed.params,
        checkpoint=claimed.checkpoint,
        results=None if isinstance(claimed.results, int) else claimed.results,
        timeout=task.policy.timeout / 1000,
        stall_timeout=task.policy.stall_timeout / 1000 or None,
        lease=settings.lease,
        heartbeat=settings.beat,
    )


def _json_of(view: BaseModel) -> Response:
    return jsonify(view.model_dump())


# While an attempt runs


@routes.put("/tasks/<given_id>/heartbeat")
@operation(Scope.WORK, body=AttemptBody, answers={200: AttemptView}, problems=(409,))
def heartbeat(given_id: str, body: AttemptBody) -> ResponseReturnValue:
    """Renew the lease of an attempt; the answer tells what is to become of it.

    `action` is `continue`, `cancel` (stop, then call `stopped`) or `pause` (stop at the next checkpoint, then call
    `suspend`). 409 means that the attempt no longer holds the task, and its work must stop.
    """
    return _written(given_id, body, lambda store, held: store.heartbeat(held))


@routes.post("/tasks/<given_id>/progress")
@operation(Scope.WORK, body=ProgressBody, answers={200: AttemptView}, problems=(409,))
def progress(given_id: str, body: ProgressBody) -> ResponseReturnValue:
    """Note how far an attempt is; also renews its lease, and answers as `heartbeat` does."""
    message = cut(body.message, PROGRESS_LIMIT)
    return _written(given_id, body, lambda store, held: store.progress(held, body.fraction, message))


@routes.post("/tasks/<given_id>/checkpoint")
@operation(Scope.WORK, body=CheckpointBody, answers={200: AttemptView}, problems=(409,))
def checkpoint(given_id: str, body: CheckpointBody) -> ResponseReturnValue:
    """Keep what a later attempt goes on from; also renews the lease, and answers as `heartbeat` does."""
    value = _json("value", body.value)
    return _written(given_id, body, lambda store, held: store.checkpoint(held, value))


@routes.post("/tasks/<given_id>/log")
@operation(Scope.WORK, body=LogBody, answers={200: AttemptView}, problems=(409,))
def log(given_id: str, body: LogBody) -> ResponseReturnValue:
    """Append lines to a task's log; also renews the lease, and answers as `heartbeat` does."""
    lines = [cut(line, LINE_LIMIT) for line in body.lines]
    return _written(given_id, body, lambda store, held: store.log(held, lines, body.call or ""))


def _written(given_id: str, body: AttemptBody, write: Callable[[Store, Held], Answer]) -> ResponseReturnValue:
    here = desk()
    held = body.held(task_id(given_id))
    try:
        answer = write(here.work, held)
    except TaskNotFound as error:
        raise here.client.reads.not_found(held.task_id) from error
    except StaleAttempt:
        here.workers.wrote_late(body.worker, held)
        raise
    here.workers.beats(body.worker)
    state, settings = State(answer.state), here.work.settings
    return _json_of(
        AttemptView(
            id=answer.task_id, state=state, attempt=answer.attempt, action=_ACTIONS[state],
            lease=settings.lease, heartbeat=settings.beat,
        )
    )  # fmt: skip


@routes.post("/heartbeats")
@operation(Scope.WORK, body=BeatsBody, answers={200: BeatsView})
def heartbeats(body: BeatsBody) -> ResponseReturnValue:
    """Renew the leases of many attempts of one worker in one round trip to Redis, each with its own answer.

    `outcome` is `ok`, `stale` or `missing` (its work must stop), `damaged` (its record cannot be read) or `unknown`
    (try again); `action` is that of `heartbeat`, or `stop`.
    """
    here = desk()
    attempts = [beat.held(beat.id) for beat in body.tasks]
    answers = heartbeat_many(here.work, here.workers, body.worker, attempts)
    for held, answer in zip(attempts, answers, strict=True):
        if isinstance(answer, Answer) and answer.word == "stale":
            here.workers.wrote_late(body.worker, held)
    tasks = [_beat(beat, answer) for beat, answer in zip(body.tasks, answers, strict=True)]
    settings = here.work.settings
    return _json_of(BeatsView(tasks=tasks, lease=settings.lease, heartbeat=settings.beat))


def _beat(beat: BeatOfOne, answer: Answer | Exception) -> BeatView:
    if isinstance(answer, Exception):
        outcome = "damaged" if isinstance(answer, CorruptRecord) else "unknown"
        return BeatView(id=beat.id, attempt=beat.attempt, outcome=outcome, state=None, action="continue")
    state = State(answer.state) if answer.state else None
    if answer.word == "moved" and state:
        return BeatView(id=beat.id, attempt=beat.attempt, outcome="ok", state=state, action=_ACTIONS[state])
    outcome = "missing" if answer.word == "missing" else "stale"
    return BeatView(id=beat.id, attempt=beat.attempt, outcome=outcome, state=state, action="stop")


# The end of an attempt


@routes.post("/tasks/<given_id>/complete")
@operation(Scope.WORK, body=CompleteBody, answers={200: EndView}, problems=(409,))
def complete(given_id: str, body: CompleteBody) -> ResponseReturnValue:
    """End an attempt with its result. The task is CANCELLED instead when that was asked for before."""
    return _ended(given_id, body, Ending(Event.COMPLETE, Reason.POLICY, text=_json("result", body.result)))


@routes.post("/tasks/<given_id>/fail")
@operation(Scope.WORK, body=FailBody, answers={200: EndView}, problems=(409,))
def fail(given_id: str, body: FailBody) -> ResponseReturnValue:
    """End an attempt that failed, or ran into its timeout; the answer tells whether another one follows."""
    event = Event.TIMEOUT if body.reason in _TIMEOUTS else Event.FAIL
    message = cut(body.message or body.error.strip().rpartition("\n")[2], MESSAGE_LIMIT)
    text = cut_middle(body.error or message, ERROR_LIMIT)
    asked = round(1000 * body.retry_after)
    return _ended(given_id, body, Ending(event, Reason(body.reason), message, text, body.retryable, asked))


@routes.post("/tasks/<given_id>/suspend")
@operation(Scope.WORK, body=SuspendBody, answers={200: EndView}, problems=(409,))
def suspend(given_id: str, body: SuspendBody) -> ResponseReturnValue:
    """Hand a task back, to go on from its last checkpoint: PAUSED if that was asked for, else to its queue's head."""
    ending = Ending(Event.SUSPEND, Reason(body.reason), cut(body.message, MESSAGE_LIMIT))
    return _ended(given_id, body, ending)


@routes.post("/tasks/<given_id>/stopped")
@operation(Scope.WORK, body=StoppedBody, answers={200: EndView}, problems=(409,))
def stopped(given_id: str, body: StoppedBody) -> ResponseReturnValue:
    """Confirm that an attempt was stopped since its task was cancelled."""
    return _ended(given_id, body, Ending(Event.STOPPED, Reason.USER, cut(body.message, MESSAGE_LIMIT)))


def _ended(given_id: str, body: AttemptBody, ending: Ending) -> ResponseReturnValue:
    here, held = desk(), body.held(task_id(given_id))
    answer, _ = here.work.finish(held, ending, f"worker:{body.worker}")
    if answer.word == "missing":
        raise here.client.reads.not_found(held.task_id)
    if answer.word == "refused":
        raise IllegalMove(held.task_id, ending.event, answer.state)
    if answer.word == "stale" or not _holds(ending.event, State(answer.state)):
        here.workers.wrote_late(body.worker, held)
        raise StaleAttempt(held.task_id, held.attempt)
    return _json_of(EndView(id=answer.task_id, state=State(answer.state), attempt=answer.attempt))


def _holds(event: Event, state: State) -> bool:
    """Tell whether a task in this state may have got there by the event; a repeated call finds it so."""
    if event is Event.COMPLETE:
        return state in (State.SUCCESS, State.CANCELLED)
    return state is State.CANCELLED if event is Event.STOPPED else state is not State.SUCCESS


def _json(name: str, value: object) -> str:
    try:
        return to_json(name, value)
    except InvalidValue as error:
        raise wrong_body([(pointer(name), f"{error.name}: expected {error.expected}, got {error.got}")]) from error

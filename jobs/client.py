"""The core that everything above uses: submit a task, follow it, act on it."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redis import Redis

from ..statemachine import Event, Reason, State
from .bulk_actions import BulkActions
from .catalog import Catalog, PublishedType
from .circumstances import Circumstances, circumstances
from .connection import connect
from .deliveries import Deliveries, Listed
from .diary import WorkerEvent, worker_events
from .errors import (
    Fault,
    GhostlessError,
    IdempotencyKeyReused,
    IllegalMove,
    InvalidTask,
    QueueNotFound,
    TaskConflict,
)
from .explanation import Explanation, explain
from .fleet import Member, members
from .groups import Groups
from .listing import Filter, Page, page_of
from .messages import Answer, Submission
from .model import Entry, Task
from .names import MESSAGE_LIMIT
from .reads import Reads
from .schedules import Schedules
from .settings import Settings
from .store import Store
from .submission import Request
from .tokens import Tokens
from .values import cut

SUBMIT_TOGETHER = 100
"""Tasks that a bulk submit sends in one round trip."""


UNSERVED = "nobody delivers callbacks; start a listener with GHOSTLESS_CALLBACK_SECRET first: ghostless listener"
"""Said of a task whose ends are to be told while no listener has ever told any."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """An accepted task; `created` is False when it existed already."""

    task_id: str
    state: State
    created: bool


class Client:
    """Submit tasks, follow them and act on them, from any process.

    Every call raises RedisUnavailable when Redis does not answer, and is safe to repeat then.
    """

    def __init__(self, settings: Settings | None = None, redis: Redis | None = None) -> None:
        self.settings = settings or Settings.from_environment()
        self.store = Store(redis or connect(self.settings), self.settings)
        self.reads = Reads(self.store.redis, self.store.keys)
        self._catalog = Catalog(self.reads)

    # Submitting

    def submit(
        self, task_type: str, params: Mapping[str, Any] | None = None, *, actor: str = "client", **wishes: Any
    ) -> Submitted:
        """Accept a task and return its id at once. `wishes` are the fields of `Request`; times are seconds.

        Raises InvalidTask (every fault named), UnknownTaskType, TooLarge, TaskConflict, RedisFull.
        """
        return self.submit_request(Request(task_type, {} if params is None else params, **wishes), actor)

    def submit_request(self, request: Request, actor: str = "client") -> Submitted:
        """Accept a task that is described by a request; see `submit`."""
        submission = self._checked(request, actor)
        return _accepted(submission, self.store.submit(submission))

    def submit_many(self, requests: Sequence[Request], actor: str = "client") -> list[Submitted | GhostlessError]:
        """Accept many tasks, a hundred a round trip. All are checked before the first is stored.

        Raises InvalidTask and the like for the first request that is wrong; what Redis says of each is in its place.
        """
        submissions = [self._checked(request, actor) for request in requests]
        accepted: list[Submitted | GhostlessError] = []
        for start in range(0, len(submissions), SUBMIT_TOGETHER):
            accepted += self._submit_together(submissions[start : start + SUBMIT_TOGETHER])
        return accepted

    def _submit_together(self, submissions: Sequence[Submission]) -> list[Submitted | GhostlessError]:
        answers = self.store.submit_many(submissions)
        return [_outcome(submission, answer) for submission, answer in zip(submissions, answers, strict=True)]

    def check(self, request: Request) -> Submission:
        """Check a request as a submit does, and store nothing: return the task that would be submitted.

        Raises InvalidTask, UnknownTaskType, TooLarge.
        """
        return self._checked(request, "")

    def _checked(self, request: Request, actor: str) -> Submission:
        return request.checked(actor, self._catalog.check, self.settings.callback_networks)

    def types(self) -> dict[str, PublishedType]:
        """Return every task type that workers published."""
        return self._catalog.all()

    # Queues and workers

    def queues(self) -> dict[str, str]:
        """Return every queue that a task, a task type or a worker names, with "running" or "paused"."""
        named = [kind.queue for kind in self.types().values()]
        named += [queue for worker in self.workers() for queue in worker.queues]
        return dict.fromkeys(sorted(named), "running") | self.reads.queues()

    def queue_overview(self) -> list[dict[str, Any]]:
        """Return each queue with its state, how many tasks are PENDING in it, and which of them are parked, by type."""
        states = self.queues()
        waiting = self.reads.waiting(sorted(states))
        return [{"name": name, "state": states[name], **asdict(found)} for name, found in waiting.items()]

    def pause_queue(self, queue: str) -> None:
        """Let no task of a queue start until it is resumed; running ones go on. Raises QueueNotFound."""
        self._check_queue(queue)
        self.store.pause_queue(queue)

    def resume_queue(self, queue: str) -> None:
        """Let the tasks of a paused queue start again. Raises QueueNotFound."""
        self._check_queue(queue)
        self.store.resume_queue(queue)

    def _check_queue(self, queue: str) -> None:
        known = self.queues()
        if queue not in known:
            raise QueueNotFound(queue, difflib.get_close_matches(queue, known, n=3))

    def workers(self) -> list[Member]:
        """Return every worker: those in rq's registry, ours and others, and those over HTTP."""
        return members(self.store.redis, self.store.keys)

    def worker_events(self, name: str) -> list[WorkerEvent]:
        """Return what happened to a worker and its horses, the newest first."""
        return worker_events(self.store.redis, self.store.keys, name)

    @property
    def schedules(self) -> Schedules:
        """What is submitted again and again."""
        return Schedules(self.store.redis, self.store.keys)

    @property
    def bulk(self) -> BulkActions:
        """What is done to many tasks at once, found by a filter."""
        return BulkActions(self.store)

    @property
    def tokens(self) -> Tokens:
        """Who may do what over HTTP."""
        return Tokens(self.store.redis, self.store.keys)

    @property
    def listeners(self) -> Groups:
        """The groups in which listeners read the history."""
        return Groups(self.store.redis, self.settings)

    @property
    def deliveries(self) -> Deliveries:
        """What is told to the callbacks of ended tasks, and what became of it."""
        return Deliveries(self.store.redis, self.store.keys, self.store.scripts)

    # Following

    def get(self, task_id: str) -> Task:
        """Return a task whole. Raises TaskNotFound, CorruptRecord."""
        return self.reads.task(task_id)

    def history(self, task_id: str) -> list[Entry]:
        """Return every move of a task, oldest first. Raises TaskNotFound, CorruptRecord."""
        return self.reads.history(task_id)

    def look_around(self, task_id: str) -> Circumstances:
        """Return a task whole, with all that surrounds it now. Raises TaskNotFound, CorruptRecord."""
        return circumstances(self.reads, task_id)

    def explain(self, task_id: str) -> Explanation:
        """Say why a task is where it is, what happens next and when. Raises TaskNotFound, CorruptRecord."""
        return explain(self.look_around(task_id))

    def deliveries_of(self, task_id: str) -> list[Listed]:
        """Return what is told to a task's callback, the oldest first. Raises TaskNotFound, CorruptRecord."""
        found = self.deliveries.of_task(task_id)
        if not found:
            self.reads.demand(task_id)
        return found

    def log(self, task_id: str) -> list[str]:
        """Return the last lines that a task's handler printed or logged, oldest first. Raises TaskNotFound."""
        lines = self.reads.log(task_id)
        if not lines:
            self.reads.demand(task_id)
        return lines

    def counts(self) -> dict[State, int]:
        """Return how many tasks are in each state."""
        return self.reads.counts()

    def list(self, wanted: Filter = Filter(), *, limit: int = 50, cursor: str | None = None) -> Page:  # noqa: B008
        """Return one page of tasks, the latest change first.

        A filtered page may hold fewer than `limit` tasks, even none, and still have a next one. Raises InvalidTask for
        a bad limit, owner or cursor.
        """
        return page_of(self.reads, wanted, limit, cursor)

    # Acting

    def cancel(self, task_id: str, *, actor: str = "client", reason: Reason = Reason.USER, message: str = "") -> Answer:
        """Cancel a task. Answers `moved` or, when it is cancelled or final already, `already` with its state."""
        return self._act(self.store.cancel, Event.CANCEL, task_id, actor, reason, message)

    def pause(self, task_id: str, *, actor: str = "client", reason: Reason = Reason.USER, message: str = "") -> Answer:
        """Pause a task; a running one stops at its next checkpoint. Raises IllegalMove with the state it is in."""
        return self._act(self.store.pause, Event.PAUSE, task_id, actor, reason, message)

    def resume(self, task_id: str, *, actor: str = "client", reason: Reason = Reason.USER, message: str = "") -> Answer:
        """Resume a paused task. Raises IllegalMove with the state it is in."""
        return self._act(self.store.resume, Event.RESUME, task_id, actor, reason, message)

    def retry(
        self, task_id: str, *, actor: str = "client", reason: Reason = Reason.OPERATOR, message: str = ""
    ) -> Answer:
        """Give a failed or given-up task another life, due at once. Raises IllegalMove with the state it is in."""
        return self._act(self.store.retry, Event.RETRY, task_id, actor, reason, message)

    def _act(
        self,
        ask: Callable[[str, str, Reason, str], Answer],
        event: Event,
        task_id: str,
        actor: str,
        reason: Reason,
        message: str,
    ) -> Answer:
        answer = ask(task_id, actor, reason, cut(message, MESSAGE_LIMIT))
        if answer.word == "missing":
            raise self.reads.not_found(task_id)
        if answer.word == "refused":
            raise IllegalMove(task_id, event, answer.state)
        return answer


def _accepted(submission: Submission, answer: Answer) -> Submitted:
    if answer.word == "unknown":
        whom = "" if submission.confined or not submission.owner else ", or it is another owner's"
        raise InvalidTask([Fault("depends_on", f"no task has the id {one!r}{whom}") for one in answer.unknown])
    if answer.word == "unserved":
        raise InvalidTask([Fault("callback_url", UNSERVED)])
    if answer.word in ("conflict", "purged"):
        by_key, is_purged = answer.task_id != submission.task_id, answer.word == "purged"
        kind = IdempotencyKeyReused if by_key and not is_purged else TaskConflict
        raise kind(answer.task_id, submission.idempotency_key if by_key else None, is_purged=is_purged)
    return Submitted(answer.task_id, State(answer.state), answer.word == "moved")


def _outcome(submission: Submission, answer: Answer | Exception) -> Submitted | GhostlessError:
    if isinstance(answer, GhostlessError):
        return answer
    if isinstance(answer, Exception):
        raise answer
    try:
        return _accepted(submission, answer)
    except (TaskConflict, InvalidTask) as error:
        return error

"""The core that everything above uses: submit a task, follow it, act on it."""

import base64
import binascii
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redis import Redis

from ..statemachine import STORED, Event, Reason, State
from .catalog import Catalog, PublishedType
from .circumstances import Circumstances, circumstances
from .connection import connect
from .diary import WorkerEvent, worker_events
from .errors import Fault, GhostlessError, IllegalMove, InvalidTask, QueueNotFound, TaskConflict
from .explanation import Explanation, explain
from .fleet import Member, members
from .groups import Groups
from .messages import Answer, Submission
from .model import Entry, Task
from .reads import Damaged, Position, Reads
from .schedules import Schedules
from .settings import Settings
from .store import Store
from .submission import Request
from .tokens import Tokens
from .values import cut

PAGE_LIMIT = 500
"""Most tasks on one page of a listing."""

MESSAGE_LIMIT = 2048
"""Most bytes of a message in the history; a longer one is cut."""

SUBMIT_TOGETHER = 100
"""Tasks that a bulk submit sends in one round trip."""

SCAN_PAGES = 10
"""Pages that a filtered listing looks through before it answers with what it found."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """An accepted task; `created` is False when it existed already."""

    task_id: str
    state: State
    created: bool


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing; `cursor` asks for the next one, None when this is the last."""

    tasks: tuple[Task | Damaged, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks a listing shows; None means any."""

    state: State | None = None
    type: str | None = None
    queue: str | None = None
    owner: str | None = None

    @property
    def needs_records(self) -> bool:
        """Whether the index alone cannot answer it."""
        return bool(self.type or self.owner or (self.queue and self.state is not State.PENDING))

    def accepts(self, task: Task | Damaged) -> bool:
        """Tell whether the listing shows this task; a damaged one cannot be told and is shown only unfiltered."""
        if isinstance(task, Damaged):
            return not self.needs_records
        # A task can have left the state since its place in the index was read.
        pairs = ((self.state, task.state), (self.type, task.type), (self.queue, task.queue), (self.owner, task.owner))
        return all(value is None or value == actual for value, actual in pairs)


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
        submission = request.checked(actor, self._catalog.check)
        return _accepted(submission, self.store.submit(submission))

    def submit_many(self, requests: Sequence[Request], actor: str = "client") -> list[Submitted | GhostlessError]:
        """Accept many tasks, a hundred a round trip. All are checked before the first is stored.

        Raises InvalidTask and the like for the first request that is wrong; what Redis says of each is in its place.
        """
        submissions = [request.checked(actor, self._catalog.check) for request in requests]
        accepted: list[Submitted | GhostlessError] = []
        for start in range(0, len(submissions), SUBMIT_TOGETHER):
            accepted += self._submit_together(submissions[start : start + SUBMIT_TOGETHER])
        return accepted

    def _submit_together(self, submissions: Sequence[Submission]) -> list[Submitted | GhostlessError]:
        answers = self.store.submit_many(submissions)
        return [_outcome(submission, answer) for submission, answer in zip(submissions, answers, strict=True)]

    def check(self, request: Request) -> Submission:
        """Check a request as a submit does, and store nothing. Raises InvalidTask, UnknownTaskType, TooLarge."""
        return request.checked("", self._catalog.check)

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
        """Return every worker in rq's registry, ours and others."""
        return members(self.store.redis)

    def worker_events(self, name: str) -> list[WorkerEvent]:
        """Return what happened to a worker and its horses, the newest first."""
        return worker_events(self.store.redis, self.store.keys, name)

    @property
    def schedules(self) -> Schedules:
        """What is submitted again and again."""
        return Schedules(self.store.redis, self.store.keys)

    @property
    def tokens(self) -> Tokens:
        """Who may do what over HTTP."""
        return Tokens(self.store.redis, self.store.keys)

    @property
    def listeners(self) -> Groups:
        """The groups in which listeners read the history."""
        return Groups(self.store.redis, self.settings)

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

    def log(self, task_id: str) -> list[str]:
        """Return the last lines that a task's handler printed or logged, oldest first. Raises TaskNotFound."""
        lines = self.reads.log(task_id)
        if not lines:
            self.reads.task(task_id)
        return lines

    def counts(self) -> dict[State, int]:
        """Return how many tasks are in each state."""
        return self.reads.counts()

    def list(self, wanted: Filter = Filter(), *, limit: int = 50, cursor: str | None = None) -> Page:  # noqa: B008
        """Return one page of tasks, the latest change first.

        A filtered page may hold fewer than `limit` tasks and still have a next one. Raises InvalidTask for a
        bad limit or cursor.
        """
        if not 1 <= limit <= PAGE_LIMIT:
            raise InvalidTask([Fault("limit", f"expected 1 to {PAGE_LIMIT}, got {limit}")])
        states = STORED if wanted.state is None else (wanted.state,)
        below = None if cursor is None else _read_cursor(cursor)
        found: list[Task | Damaged] = []
        for _ in range(SCAN_PAGES):
            places = self.reads.listed(states, wanted.queue, below, limit)
            tasks = self.reads.tasks([place.task_id for place in places])
            for place, task in zip(places, tasks, strict=True):
                if len(found) == limit:
                    return Page(tuple(found), _cursor(below))
                below = place
                found += [task] if wanted.accepts(task) else []
            if len(places) < limit:
                return Page(tuple(found), None)
            if len(found) == limit:
                break
        return Page(tuple(found), _cursor(below))

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
        raise InvalidTask([Fault("depends_on", f"no task has the id {task_id!r}") for task_id in answer.unknown])
    if answer.word in ("conflict", "purged"):
        by_key = answer.task_id != submission.task_id
        raise TaskConflict(
            answer.task_id, submission.idempotency_key if by_key else None, is_purged=answer.word == "purged"
        )
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


def _cursor(place: Position | None) -> str | None:
    if place is None:
        return None
    return base64.urlsafe_b64encode(f"{place.entered_at} {place.task_id}".encode()).decode()


def _read_cursor(cursor: str) -> Position:
    try:
        entered_at, _, task_id = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        return Position(int(entered_at), task_id)
    except (binascii.Error, ValueError) as error:
        raise InvalidTask([Fault("cursor", "expected a cursor of an earlier page")]) from error

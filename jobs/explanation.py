"""Why a task is where it is, what happens next and when, and what a person can do: pure sentences over facts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..statemachine import FINAL, TABLE, Event, Policy, Reason, State
from .availability import NAMED, handed_back_at, remark, remarks, serves, some
from .circumstances import Circumstances
from .fleet import Member
from .model import Entry, Task
from .spans import distance, duration

SHOWN_ENTRIES = 3
"""Moves of the history that stand in the evidence."""

_ACTIONS = (Event.CANCEL, Event.PAUSE, Event.RESUME, Event.RETRY)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to "where is my task, why, and what next?". Times are ms since 1970 by Redis' clock."""

    id: str
    state: State
    since: int
    why: str
    next: str
    next_at: int | None  # when that is known
    evidence: tuple[str, ...]
    actions: tuple[str, ...]  # what a person can do now: cancel, pause, resume, retry

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Account:
    why: str
    next: str
    next_at: int | None = None
    evidence: tuple[str, ...] = ()


def explain(around: Circumstances) -> Explanation:
    """Explain one task from what is around it."""
    task = around.task
    account = _ACCOUNTS[task.state](around)
    upcoming = account.next
    if around.refuses and task.state not in FINAL:
        upcoming = f"nothing until Redis takes writes again: {around.refuses}; then {upcoming}"
    return Explanation(
        id=task.id,
        state=task.state,
        since=task.entered_at,
        why=account.why,
        next=upcoming,
        next_at=account.next_at,
        evidence=(*account.evidence, *_moves(around)),
        actions=tuple(event.lower() for event in _ACTIONS if (task.state, event) in TABLE),
    )


def _moves(around: Circumstances) -> list[str]:
    return [_told(entry, around.now) for entry in around.history[-SHOWN_ENTRIES:]]


def _told(entry: Entry, now: int) -> str:
    message = f": {entry.message}" if entry.message else ""
    return f"{distance(entry.at, now)}: {entry.event} by {entry.actor}{message}"


# In its queue


def _pending(around: Circumstances) -> _Account:
    task, queue = around.task, around.task.queue
    if around.queue_paused:
        return _Account(f"its queue {queue} is paused", f"nothing until `ghostless queues resume {queue}`")
    if around.suspended:
        return _Account("all workers are suspended", "nothing until `rq resume`")
    if not around.workers:
        why = f"no worker listens on its queue {queue}"
        return _Account(why, f"nothing until `ghostless worker {queue}` runs", evidence=_parking(around))
    servers = [worker for worker in around.workers if _may_start(worker, task)]
    if not servers:
        return _unserved(around)
    place = "its place in the queue is not known"
    if around.position:
        place = f"it is number {around.position} of {around.pending} in the queue {queue}"
    names = _names(servers)
    return _Account(
        f"{place}, and its turn has not come",
        f"{_whoever(names, len(servers))} starts it when its turn comes{_estimate(around, len(servers))}",
        evidence=(
            f"{task.type} is served by {names}",
            *remarks(around.workers, around.now),
            f"submitted {distance(task.submitted_at, around.now)}",
        ),
    )


def _may_start(worker: Member, task: Task) -> bool:
    # What is parked has no ticket, so stock workers do not see it.
    return worker.takes(task.type) and not (task.parked_at and worker.record is None)


def _unserved(around: Circumstances) -> _Account:
    task, now = around.task, around.now
    why = f"no worker of its queue {task.queue} serves the type {task.type}"
    return _Account(
        "; ".join((why, *remarks(around.workers[:NAMED], now))),
        f"the first worker that serves it starts it: `ghostless worker {task.queue} --tasks MODULE`{_again(around)}",
        evidence=(
            *_parking(around),
            *(serves(worker, task.type) for worker in around.workers[:NAMED] if not remark(worker, now)),
        ),
    )


def _parking(around: Circumstances) -> tuple[str, ...]:
    parked_at = around.task.parked_at
    if parked_at is None:
        return ()
    return (f"parked {distance(parked_at, around.now)}, since no worker that asked serves its type",)


def _again(around: Circumstances) -> str:
    waiting = [
        worker.name for worker in around.workers if worker.record and around.task.type in worker.record.set_aside
    ]
    return f"; {waiting[0]} tries again by itself within the hour" if waiting else ""


def _names(workers: Sequence[Member]) -> str:
    return some([worker.name for worker in workers])


def _whoever(names: str, number: int) -> str:
    return f"the worker {names}" if number == 1 else f"one of {number} workers"


def _estimate(around: Circumstances, workers: int) -> str:
    if around.usual is None or around.position is None:
        return ""
    wait = around.usual * around.position // workers
    return f", in about {duration(wait)} when tasks take as long as lately"


# Waiting


def _scheduled(around: Circumstances) -> _Account:
    return _Account(
        "it was submitted for a later time", f"it goes to its queue{_unwatched(around)}", around.task.due_at
    )


def _retry_waiting(around: Circumstances) -> _Account:
    task = around.task
    ended = _last(around, Event.FAIL, Event.TIMEOUT)
    why = f"attempt {task.attempt} ended: {_cause(ended)}" if ended else f"attempt {task.attempt} ended badly"
    upcoming = f"it goes back to its queue for attempt {task.attempt + 1}{_unwatched(around)}"
    return _Account(why, upcoming, task.due_at, _budgets(around))


def _blocked(around: Circumstances) -> _Account:
    awaited, task = around.awaited, around.task
    upcoming, at = awaited.upcoming(task, _unwatched(around))
    return _Account(awaited.why(task, around.now), upcoming, at, awaited.evidence)


def _paused(around: Circumstances) -> _Account:
    asked = _last(around, Event.PAUSE)
    return _Account(
        f"it was paused{_by(asked)}",
        f"nothing until `ghostless resume {around.task.id}`",
    )


def _unwatched(around: Circumstances) -> str:
    return "" if around.swept_at else ", once a watchdog runs: `ghostless watchdog`"


def _budgets(around: Circumstances) -> tuple[str, ...]:
    task, policy = around.task, around.task.policy
    used = (
        ("failures", task.failures, policy.max_retries),
        ("timeouts", task.timeouts, policy.max_timeouts),
        ("lost processes", task.losses, policy.max_losses),
    )
    return tuple(f"{what} so far: {count}; retried at most {allowed} times" for what, count, allowed in used if count)


# Held by a worker


def _processing(around: Circumstances) -> _Account:
    task = around.task
    if around.lease is None:
        return _silent(around)
    why, hands_back_at = f"the worker {task.worker_id} runs attempt {task.attempt}", handed_back_at(around.holder)
    if hands_back_at:
        upcoming = "it ends by itself, or goes back to its queue, from its last checkpoint"
        return _Account(f"{why}, and is draining", upcoming, hands_back_at, _signs_of_life(around))
    upcoming = f"it ends by itself, or its worker stops it{_limits(task.policy)}"
    return _Account(why, upcoming, task.timeout_at, _signs_of_life(around))


def _limits(policy: Policy) -> str:
    stalled = f" after {duration(policy.stall_timeout)} without progress, or" if policy.stall_timeout else ""
    extended = (
        f" or later, at most {duration(policy.max_runtime)} from its start, while it reports progress"
        if policy.extend_by
        else ""
    )
    return f"{stalled} at its timeout{extended}"


def _stopping(around: Circumstances) -> _Account:
    if around.lease is None:
        return _silent(around)
    asked = _last(around, Event.CANCEL if around.task.state is State.CANCELLING else Event.PAUSE)
    how = "now" if around.task.state is State.CANCELLING else "at its next checkpoint"
    return _Account(
        f"it was asked to stop{_by(asked)}, and its worker {around.task.worker_id} has not confirmed it yet",
        f"its worker stops it {how}, or kills its process after the grace; the watchdog ends it should that fail",
        evidence=_signs_of_life(around),
    )


def _silent(around: Circumstances) -> _Account:
    worker, now = around.task.worker_id, around.now
    why = f"its worker {worker} has gone silent: the lease of attempt {around.task.attempt} is over"
    if not around.swept_at:
        return _Account(why, "nothing until a watchdog runs: `ghostless watchdog`")
    evidence = (f"the last sweep was {distance(around.swept_at, now)}", *_last_word(around))
    look_at = max(around.look_at or now, around.judge_from or now)
    return _Account(why, _VERDICTS[around.is_doubted], look_at, evidence)


_VERDICTS = {
    False: "the watchdog takes it away from that worker; a beat later if most of what runs has fallen silent too",
    True: "most of what runs fell silent together, so the watchdog looks twice; then it takes it away from that worker",
}


def _signs_of_life(around: Circumstances) -> tuple[str, ...]:
    task, now = around.task, around.now
    signs = [f"its lease was renewed, and holds for {duration(around.lease or 0)} more"]
    if task.progress_at is None:
        signs.append("it reported no progress so far")
    else:
        told = f" ({task.message})" if task.message else ""
        signs.append(f"last progress {distance(task.progress_at, now)}: {int((task.progress or 0) * 100)} %{told}")
    return (*signs, *_last_word(around))


def _last_word(around: Circumstances) -> tuple[str, ...]:
    holder = around.holder
    if holder is None or holder.heartbeat_at is None:
        return ()
    address = holder.record.health if holder.record else None
    health = f"; it answers for its health at {address}" if address else ""
    if holder.silent_for is not None:
        return (f"{holder.name} has not beaten for {duration(holder.silent_for)}{health}",)
    return (f"{holder.name} beat {distance(holder.heartbeat_at, around.now)}{health}",)


# Ended


def _success(around: Circumstances) -> _Account:
    task = around.task
    ran = f" after {duration(task.entered_at - task.started_at)}" if task.started_at else ""
    return _ended(around, f"attempt {task.attempt} completed{ran}")


def _failed(around: Circumstances) -> _Account:
    ended = _last(around, Event.FAIL)
    why = f"attempt {around.task.attempt} failed: {_cause(ended)}" if ended else "its last attempt failed"
    return _ended(around, why, _budgets(around))


def _given_up(around: Circumstances) -> _Account:
    ended = _last(around, Event.TIMEOUT)
    why = f"it was given up; attempt {around.task.attempt} ended: {_cause(ended)}" if ended else "it was given up"
    return _ended(around, why, _budgets(around))


def _cancelled(around: Circumstances) -> _Account:
    return _ended(around, f"it was cancelled{_by(_last(around, Event.CANCEL))}")


def _ended(around: Circumstances, why: str, evidence: tuple[str, ...] = ()) -> _Account:
    task = around.task
    unless = f", unless you `ghostless retry {task.id}`" if (task.state, Event.RETRY) in TABLE else ""
    upcoming = f"nothing{unless}; it is kept until its retention ends"
    return _Account(why, upcoming, task.entered_at + task.policy.retention, evidence)


# Out of the history


def _last(around: Circumstances, *events: Event) -> Entry | None:
    return next((entry for entry in reversed(around.history) if entry.event in events), None)


def _cause(entry: Entry) -> str:
    return entry.message or _CAUSES.get(entry.reason, entry.reason)


def _by(entry: Entry | None) -> str:
    if entry is None:
        return ""
    return f" by {entry.actor}" + (f": {entry.message}" if entry.message else "")


_CAUSES: Mapping[str, str] = {
    Reason.DEADLINE: "it ran longer than allowed",
    Reason.HEARTBEAT_LOST: "its worker gave no sign of life",
    Reason.WORKER_LOST: "its worker died",
}

_ACCOUNTS: Mapping[State, Callable[[Circumstances], _Account]] = {
    State.PENDING: _pending,
    State.SCHEDULED: _scheduled,
    State.RETRY_WAITING: _retry_waiting,
    State.BLOCKED: _blocked,
    State.PAUSED: _paused,
    State.PROCESSING: _processing,
    State.PAUSING: _stopping,
    State.CANCELLING: _stopping,
    State.SUCCESS: _success,
    State.FAILED: _failed,
    State.TIMEOUT_CANCELLED: _given_up,
    State.CANCELLED: _cancelled,
}

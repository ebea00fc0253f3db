"""Why a task waits in its queue, who may start it, and when."""

from collections.abc import Sequence

from .account import Account, unwatched
from .availability import NAMED, remark, remarks, serves, some
from .circumstances import Circumstances
from .fleet import Member
from .model import Task
from .spans import distance, duration


def pending(around: Circumstances) -> Account:
    """Explain what waits in its queue."""
    task, queue = around.task, around.task.queue
    if around.queue_paused:
        return Account(f"its queue {queue} is paused", f"nothing until `ghostless queues resume {queue}`")
    if around.suspended:
        return Account("all workers are suspended", "nothing until `rq resume`")
    if not around.workers:
        return _unheard(around)
    servers = [worker for worker in around.workers if _may_start(worker, task)]
    if not servers:
        return _unserved(around)
    if around.ticketless:
        why = f"its ticket is not in the queue {queue}: a worker is just taking it, or it was lost"
        return Account(why, f"the watchdog makes a new one if it was lost{unwatched(around)}")
    place = "its place in the queue is not known"
    if around.position:
        place = f"it is number {around.position} of {around.pending} in the queue {queue}"
    names = _names(servers)
    return Account(
        f"{place}, and its turn has not come",
        f"{_whoever(names, len(servers))} starts it when its turn comes{_estimate(around, len(servers))}",
        evidence=(
            f"{task.type} is served by {names}",
            *remarks((*around.workers, *around.silent[:NAMED]), around.now),
            f"submitted {distance(task.submitted_at, around.now)}",
        ),
    )


def _may_start(worker: Member, task: Task) -> bool:
    # What is parked has no ticket, so stock workers do not see it.
    return worker.takes(task.type) and not (task.parked_at and worker.record is None)


def _unheard(around: Circumstances) -> Account:
    queue = around.task.queue
    if around.silent:
        last_beats = "; ".join(remarks(around.silent[:NAMED], around.now))
        why = f"every worker of its queue {queue} has fallen silent: {last_beats}"
        upcoming = f"nothing until one of them goes on, or another `ghostless worker {queue}` runs"
    else:
        why, upcoming = f"no worker listens on its queue {queue}", f"nothing until `ghostless worker {queue}` runs"
    return Account(why, upcoming, evidence=_parking(around))


def _unserved(around: Circumstances) -> Account:
    task, now = around.task, around.now
    why = f"no worker of its queue {task.queue} serves the type {task.type}"
    return Account(
        "; ".join((why, *remarks(around.workers[:NAMED], now))),
        f"the first worker that serves it starts it: `ghostless worker {task.queue} --tasks MODULE`{_again(around)}",
        evidence=(
            *_parking(around),
            *remarks(around.silent[:NAMED], now),
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

"""What surrounds a task at one moment: its lease, its queue, who serves it, who watches, what Redis allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..statemachine import RUNNING, WAITING_FOR_TIME, State
from .dependencies import Awaited
from .errors import GhostlessError
from .fleet import Member, members, serving, silent
from .keys import pair
from .model import Entry, Task
from .reads import Damaged, Reads, is_kept_up
from .scripts import milliseconds, moment, translated
from .settings import PATIENCE_GRACES
from .shelves import Shelf, newest

RECENT = 30
"""Tasks of a type that ended last, whose durations tell how long another one may take."""


TICKETS = 10_000
"""Tickets of a queue among which that of a task is searched; in a longer one it is taken to be there."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known around a task. Times are ms since 1970 by Redis' clock, durations ms; None is "there is none"."""

    now: int
    task: Task
    history: Sequence[Entry] = ()
    queue_paused: bool = False
    suspended: bool = False  # all workers, by `rq suspend`
    workers: Sequence[Member] = ()  # those that listen on its queue, without those that fell silent
    silent: Sequence[Member] = ()  # those
    holder: Member | None = None  # the worker that runs it, as it told of itself last
    position: int | None = None  # in its queue, from 1
    pending: int = 0  # what waits in its queue
    ticketless: bool = False  # it waits in its queue, and rq's list does not have it
    lease: int | None = None  # what is left of it
    granted: int | None = None  # how long it is each time that its worker renews it
    is_batched: bool = False  # it was started together with others, which its worker runs one after the other
    grace: int | None = None  # how long its worker waits between asking its handler to stop and killing it
    patience: int | None = None  # how long its worker may take to end it, before the watchdog does
    look_at: int | None = None  # when the watchdog looks at it next
    is_doubted: bool = False  # that will be its second look, since many workers fell silent together
    judge_from: int | None = None  # until when the watchdog judges no lease, after an outage
    swept_at: int | None = None  # when a watchdog swept last, unless that is so long ago that none seems to run
    refuses: str = ""  # why Redis takes no writes now
    usual: int | None = None  # how long tasks of its type and queue ran lately
    awaited: Awaited = Awaited()  # the tasks that it waits for


def circumstances(reads: Reads, task_id: str) -> Circumstances:
    """Look at everything around a task. Raises TaskNotFound, CorruptRecord, RedisUnavailable."""
    task, history = reads.task_with_history(task_id)
    found, fleet = _look(reads, task), members(reads.redis, reads.keys)
    return Circumstances(
        task=task,
        history=history,
        workers=serving(task.queue, fleet),
        silent=silent(task.queue, fleet),
        holder=next((member for member in fleet if member.name == task.worker_id), None),
        refuses=_refuses(reads),
        usual=_usual(reads, task) if task.state is State.PENDING else None,
        awaited=Awaited.look_up(reads, task.id) if task.state is State.BLOCKED else Awaited(),
        **found,
    )


def _look(reads: Reads, task: Task) -> dict[str, Any]:
    keys = reads.keys
    with translated(), reads.redis.pipeline(transaction=False) as pipeline:
        pipeline.time()
        pipeline.hget(keys.queues, task.queue)
        pipeline.exists(keys.rq_suspended)
        pipeline.zrank(keys.pending(task.queue), task.id)
        pipeline.zcard(keys.pending(task.queue))
        pipeline.lpos(keys.rq_queue(task.queue), task.id, maxlen=TICKETS)
        pipeline.llen(keys.rq_queue(task.queue))
        pipeline.hmget(keys.task(task.id), "lease", "patience", "batched")
        pipeline.pttl(keys.heartbeat(task.id))
        pipeline.zscore(keys.deadlines if task.state in RUNNING else keys.due, task.id)
        pipeline.hget(keys.task(task.id), "second_look_at")
        replies = pipeline.execute()
    time, queue, suspended, rank, pending, ticket, tickets, terms, lease, score, second_look_at = replies
    now, is_searched = milliseconds(time), tickets <= TICKETS
    # Workers take in the order of the list; what is parked, or too far behind to be looked for, has its time only.
    place, waiting = (rank, pending) if ticket is None else (ticket, tickets)
    return {
        **_terms(*terms[:2]),
        "is_batched": bool(terms[2]),
        **_watching(reads.watchdog() or {}, now),
        "ticketless": task.state is State.PENDING and task.parked_at is None and is_searched and ticket is None,
        "now": now,
        "queue_paused": queue == "paused",
        "suspended": bool(suspended),
        "position": None if place is None else place + 1,
        "pending": waiting,
        "lease": lease if task.state in RUNNING and lease > 0 else None,
        "look_at": moment(score) if score is not None and task.state in RUNNING | WAITING_FOR_TIME else None,
        "is_doubted": score is not None and second_look_at == str(moment(score)),
    }


def _watching(trace: Mapping[str, str | int], now: int) -> dict[str, Any]:
    """Return what the last sweep left, unless the next one is so late that no watchdog seems to run."""
    if not is_kept_up(trace, now):
        return {}
    moments = {name: value for name, value in trace.items() if isinstance(value, int)}
    return {"judge_from": moments.get("judge_from"), "swept_at": moments.get("swept_at")}


def _terms(lease: str | None, patience: str | None) -> dict[str, int]:
    """Return by what a running attempt is judged, from what its worker wrote at its START."""
    if not (lease and lease.isdecimal() and patience and patience.isdecimal()):
        return {}
    grace = (int(patience) - int(lease)) // PATIENCE_GRACES
    return {"granted": int(lease), "patience": int(patience), "grace": grace}


def _refuses(reads: Reads) -> str:
    try:
        with translated():
            server = reads.redis.info()
    except GhostlessError:  # not allowed to ask, as with some managed servers
        return ""
    return refusal(server)


def refusal(server: Mapping[str, Any]) -> str:
    """Return why a Redis with this INFO takes no writes; "" when it does."""
    if server.get("role") == "slave":
        return "it is a read-only replica"
    limit = server.get("maxmemory", 0)
    if limit and server.get("used_memory", 0) >= limit and server.get("maxmemory_policy") == "noeviction":
        return f"it is at its memory limit of {limit // 2**20} MiB"
    if server.get("rdb_last_bgsave_status") == "err" or server.get("aof_last_write_status") == "err":
        return "it cannot write to its disk"
    return ""


def _usual(reads: Reads, task: Task) -> int | None:
    successes = Shelf(reads.keys.listed(pair(task.queue, task.type)), State.SUCCESS)
    ended = reads.tasks([place.task_id for place in newest(reads.redis, [successes], None, RECENT)])
    spans = [
        other.entered_at - other.started_at for other in ended if not isinstance(other, Damaged) and other.started_at
    ]
    return round(median(spans)) if spans else None

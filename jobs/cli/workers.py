"""`workers`: who serves, what they do, and how they are."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.filesize import decimal

from ...statemachine import RUNNING
from ..client import Client
from ..fleet import Member
from ..listing import PAGE_LIMIT, Filter
from ..model import Task
from ..record import GpuMemory, WorkerRecord
from ..spans import distance, duration
from .lazy import Failed
from .output import Column, clean, clock, show_fields, show_table, when
from .session import Session, json_option, pass_session, print_json

SHOWN_UUID = 12
"""Characters that the table shows of a GPU's UUID."""

SHOWN_EVENTS = 10
"""Events of a worker that are shown, the newest; `--json` has all that are kept."""


@click.command()
@click.argument("name", required=False, metavar="[NAME]")
@json_option
@pass_session
def workers(session: Session, name: str | None, as_json: bool) -> None:
    """List the workers and what they do; with a NAME, show all that this one tells of itself.

    \b
    Example: ghostless workers
    """
    fleet, held = session.client.workers(), _held(session.client)
    if name is not None:
        fleet = [member for member in fleet if member.name == name]
        if not fleet:
            raise Failed(f"no worker is registered as {name!r}; those that are: ghostless workers")
    if as_json:
        shown = [member.to_dict() | {"tasks": _ids(held, member)} for member in fleet]
        print_json({"workers": shown} if name is None else shown[0] | {"events": _all_events(session.client, name)})
        return
    now = session.now() if fleet else 0
    if name is None:
        _show_all(fleet, held, now)
    else:
        show_fields([*_fields(fleet[0], _ids(held, fleet[0]), now), *_events(session.client, name)])


def _events(client: Client, name: str) -> Iterator[tuple[str, str]]:
    for event in client.worker_events(name)[:SHOWN_EVENTS]:
        yield "event", f"{clock(event.at)} {event.kind}: {event.text}"


def _held(client: Client) -> list[Task]:
    """Return the running tasks, which name their worker; rq's registry knows only its own jobs."""
    pages = [client.list(Filter(state), limit=PAGE_LIMIT) for state in sorted(RUNNING)]
    return [task for page in pages for task in page.tasks if isinstance(task, Task)]


def _ids(held: list[Task], member: Member) -> list[str]:
    return [task.id for task in held if task.worker_id == member.name]


def _all_events(client: Client, name: str) -> list[dict[str, Any]]:
    return [asdict(event) for event in client.worker_events(name)]


# All of them

_COLUMNS = [
    Column("WORKER"),
    Column("STATE"),
    Column("TASK"),
    Column("FOR", right=True, is_spare=True),
    Column("QUIET", right=True),
    Column("MEMORY", right=True, is_spare=True),
    Column("GPU", right=True, is_spare=True),
    Column("QUEUES"),
]
"""What is spare `workers NAME` shows too."""


def _show_all(fleet: Sequence[Member], held: list[Task], now: int) -> None:
    rows = [_row(member, _ids(held, member), now) for member in fleet]
    show_table(_COLUMNS, rows, empty="no worker is registered; start one: ghostless worker QUEUE")
    for member in fleet:
        for kind, why in (member.record or WorkerRecord()).set_aside.items():
            click.echo(clean(f"{member.name} does not take {kind} for a while: {why}"))


def _row(member: Member, task_ids: Sequence[str], now: int) -> list[str]:
    record = member.record or WorkerRecord()
    since = duration(now - record.since) if record.since else ""
    quiet = duration(now - member.heartbeat_at) if member.heartbeat_at else ""
    memory = decimal(record.horse_rss) if record.horse_rss else ""
    gpu = " ".join(_gpu(gpu) for gpu in record.gpus)
    tasks, queues = _one_of(task_ids, record.task_id), " ".join(member.queues)
    return [member.name, member.state, tasks, since, quiet, memory, gpu, queues]


def _one_of(task_ids: Sequence[str], running: str | None) -> str:
    """Return one of the tasks that a worker started together, the running one if known, and how many more there are."""
    first = running if running and running in task_ids else next(iter(task_ids), "-")
    return f"{first} and {len(task_ids) - 1} more" if len(task_ids) > 1 else first


def _gpu(gpu: GpuMemory) -> str:
    device = gpu.device if len(gpu.device) <= SHOWN_UUID else f"{gpu.device[:SHOWN_UUID]}…"
    return f"{device}: {gpu.used / gpu.total:.0%}" if gpu.total else device


# One of them


def _fields(member: Member, task_ids: Sequence[str], now: int) -> Iterator[tuple[str, str]]:
    yield "worker", member.name
    yield "state", member.state if member.silent_for is None else f"silent: no beat for {duration(member.silent_for)}"
    yield "tasks", " ".join(task_ids)
    if member.record:
        yield from _told(member.record, now)
    yield "queues", " ".join(member.queues)
    yield "host", "not known: it works over HTTP" if member.over_http else _host(member)
    yield "last beat", when(member.heartbeat_at, now)
    yield "started", when(member.started_at, now)
    if not member.over_http:
        yield "ended", f"{member.done} well, {member.failed} badly"
        yield "version", f"{member.record.version} on rq {member.version}" if member.record else f"rq {member.version}"


def _host(member: Member) -> str:
    return f"{member.host}, pid {member.pid}" if member.pid else member.host


def _told(record: WorkerRecord, now: int) -> Iterator[tuple[str, str]]:
    if record.attempt and record.since:
        yield "attempt", f"{record.attempt} of {record.task_id}, for {duration(now - record.since)}"
    if record.kill_at:
        yield "stopping", f"{record.stopping}; unless it stops, its process is killed {distance(record.kill_at, now)}"
    yield from (("unwritten", f"the end of {task_id}: {why}") for task_id, why in record.unwritten.items())
    if record.loading_since:
        yield "loading", f"its modules, for {duration(now - record.loading_since)}"
    if record.drain_ends_at:
        yield "draining", f"takes nothing new; what it runs is handed back {distance(record.drain_ends_at, now)}"
    if record.lease_age is not None:
        yield "lease", f"renewed {duration(record.lease_age)} before the last beat, lasts {duration(record.lease)}"
    if record.horse_pid:
        memory = f", {decimal(record.horse_rss)} of memory" if record.horse_rss else ""
        yield "horse", f"pid {record.horse_pid}{memory}"
    for gpu in record.gpus:
        told = f"{decimal(gpu.used)} of {decimal(gpu.total)}" if gpu.total else "NVML does not tell how full it is"
        yield f"gpu {gpu.device}", told
    yield "types", " ".join(record.types)
    yield from (("set aside", f"{name}: {why}") for name, why in record.set_aside.items())
    yield "health", record.health or ""

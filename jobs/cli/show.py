"""`status`, `list` and `history`: one task, many tasks, the moves of one."""

from typing import Any

import click

from ...statemachine import Reason, State
from ..availability import some
from ..circumstances import Circumstances
from ..client import Client
from ..explanation import Explanation
from ..explanation import explain as explain_task
from ..listing import PAGE_LIMIT, Filter, Page
from ..model import Entry, Task, damaged_view
from ..reads import Damaged
from ..spans import distance, percent
from .options import as_state
from .output import Column, clean, clock, show_fields, show_table, value, when
from .session import Session, json_option, pass_session, print_json


@click.command()
@click.argument("task_id", metavar="ID")
@json_option
@pass_session
def status(session: Session, task_id: str, as_json: bool) -> None:
    """Show one task: its state, how far it is, and what happens next.

    \b
    Example: ghostless status 01a229e67abf7fce825b6252ed753bbc
    """
    if as_json:
        print_json(session.client.get(task_id).to_dict())
    else:
        show_fields(described(session.client.look_around(task_id)))


def described(around: Circumstances) -> list[tuple[str, str]]:
    """Return what a person wants to know of a task, the most wanted first."""
    task, now = around.task, around.now
    return [
        ("task", task.id),
        ("state", task.state),
        ("since", when(task.entered_at, now)),
        ("next", _next(explain_task(around), now)),
        ("progress", _progress(task, now)),
        ("attempt", _attempts(task)),
        ("reason", "" if task.reason in _PLAIN else task.reason or ""),
        ("error", last_line(task.error)),
        ("result", value(task.result)),
        ("type", task.type),
        ("params", value(task.params)),
        ("depends on", ", ".join(task.depends_on or ())),
        ("queue", task.queue),
        ("worker", _worker(around)),
        ("owner", task.owner or ""),
        ("metadata", value(task.metadata)),
        ("submitted", when(task.submitted_at, now)),
        ("started", when(task.started_at, now)),
    ]


def _next(account: Explanation, now: int) -> str:
    if not account.next_at:
        return account.next
    return f"{account.next}: {'overdue since ' if account.next_at < now else ''}{when(account.next_at, now)}"


_PLAIN = (Reason.USER, Reason.POLICY)
"""Reasons that tell a reader nothing about a state."""


def last_line(error: str | None) -> str:
    """Return the last line of an error's text, where Python says what happened."""
    lines = (error or "").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _progress(task: Task, now: int) -> str:
    if task.progress_at is None:
        return ""
    return " · ".join(filter(None, [percent(task.progress), task.message, distance(task.progress_at, now)]))


def _worker(around: Circumstances) -> str:
    name = around.task.worker_id or ""
    return f"{name}, which has gone silent" if name and around.lease is None else name


def _attempts(task: Task) -> str:
    counted = ((task.failures, "failed"), (task.timeouts, "ran out of time"), (task.losses, "lost"))
    ended = ", ".join(f"{number} {what}" for number, what in counted if number)
    return f"{task.attempt} ({ended})" if ended else str(task.attempt or "")


@click.command()
@click.argument("task_id", metavar="ID")
@json_option
@pass_session
def explain(session: Session, task_id: str, as_json: bool) -> None:
    """Say why a task is where it is, what happens next and when, and what you can do.

    \b
    Example: ghostless explain 01a229e67abf7fce825b6252ed753bbc
    """
    around = session.client.look_around(task_id)
    account, now = explain_task(around), around.now
    if as_json:
        print_json(account.to_dict())
        return
    fields = [
        ("task", account.id),
        ("state", account.state),
        ("since", when(account.since, now)),
        ("why", account.why),
        ("next", _next(account, now)),
    ]
    fields += [("evidence" if index == 0 else "", line) for index, line in enumerate(account.evidence)]
    fields += [("you can", ", ".join(f"ghostless {action} {account.id}" for action in account.actions))]
    show_fields(fields)


@click.command("log")
@click.argument("task_id", metavar="ID")
@json_option
@pass_session
def show_log(session: Session, task_id: str, as_json: bool) -> None:
    """Show the last lines that the handler of a task printed or logged.

    \b
    Example: ghostless log 01a229e67abf7fce825b6252ed753bbc
    """
    lines = session.client.log(task_id)
    if as_json:
        print_json({"lines": lines})
    else:
        for line in lines:
            click.echo(clean(line))


@click.command("list")
@click.option("--state", callback=as_state, metavar="STATE", help="Only in this state.")
@click.option("--type", "task_type", metavar="TYPE", help="Only of this type.")
@click.option("--queue", metavar="QUEUE", help="Only of this queue.")
@click.option("--owner", metavar="OWNER", help="Only of this owner.")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, metavar="N", show_default="50", help="Most tasks."
)
@click.option("--cursor", metavar="CURSOR", help="Go on from the page before.")
@json_option
@pass_session
def list_tasks(
    session: Session,
    state: State | None,
    task_type: str | None,
    queue: str | None,
    owner: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List tasks, the latest change first.

    \b
    Example: ghostless list --state FAILED --type image.generate
    """
    wanted = Filter(state, task_type, queue, owner)
    page = _filled(session.client, wanted, limit, cursor)
    if as_json:
        print_json({"tasks": [_as_json(task) for task in page.tasks], "next": page.cursor})
        return
    now = session.now() if page.tasks else 0
    rows = [_row(task, now) for task in page.tasks]
    show_table(_LISTED, rows, empty="" if rows else _why_empty(session.client, wanted))
    if page.cursor:
        click.echo(f"more: ghostless list … --cursor {page.cursor}", err=True)


def _why_empty(client: Client, wanted: Filter) -> str:
    """Say that no task is wanted, and which types there are where the one that was asked for is none of them."""
    if wanted == Filter():
        return "no tasks here yet"
    types = client.types() if wanted.type else {}
    if not wanted.type or wanted.type in types:
        return "no task fits"
    return f"no task fits; {wanted.type} is not published, these types are: {some(sorted(types)) or 'none'}"


def _filled(client: Client, wanted: Filter, limit: int, cursor: str | None) -> Page:
    """Return a page that is full unless it is the last: a short one of the client's is gone on with."""
    tasks: list[Task | Damaged] = []
    while True:
        page = client.list(wanted, limit=limit - len(tasks), cursor=cursor)
        tasks += page.tasks
        cursor = page.cursor
        if cursor is None or len(tasks) == limit:
            return Page(tuple(tasks), cursor)


_LISTED = [
    Column("TASK"),
    Column("TYPE"),
    Column("QUEUE"),
    Column("STATE"),
    Column("SINCE"),
    Column("ATTEMPT", right=True),
    Column("PROGRESS", right=True),
    Column("OWNER"),
]


def _as_json(task: Task | Damaged) -> dict[str, Any]:
    return damaged_view(task.detail, id=task.id) if isinstance(task, Damaged) else task.to_dict()


def _row(task: Task | Damaged, now: int) -> list[str]:
    if isinstance(task, Damaged):
        return [task.id, f"damaged: {task.detail}", "", "", "", "", "", ""]
    since, progress = when(task.entered_at, now), percent(task.progress)
    return [task.id, task.type, task.queue, task.state, since, str(task.attempt), progress, task.owner or ""]


@click.command()
@click.argument("task_id", metavar="ID")
@json_option
@pass_session
def history(session: Session, task_id: str, as_json: bool) -> None:
    """Show every move of a task: when, from where to where, who and why.

    \b
    Example: ghostless history 01a229e67abf7fce825b6252ed753bbc
    """
    entries = session.client.history(task_id)
    if as_json:
        print_json({"task": task_id, "entries": [entry.to_dict() for entry in entries]})
        return
    now = session.now()
    show_table(_MOVES, [_move(entry, now) for entry in entries], empty="nothing happened yet")


_MOVES = [
    Column("TIME"),
    Column("AGO", right=True),
    Column("FROM"),
    Column(""),
    Column("TO"),
    Column("EVENT"),
    Column("ATTEMPT", right=True),
    Column("ACTOR"),
    Column("REASON"),
    Column("MESSAGE"),
]


def _move(entry: Entry, now: int) -> list[str]:
    time, ago = f"{clock(entry.at)}.{entry.at % 1000:03}", distance(entry.at, now)
    move = [entry.from_state or "-", "->", entry.to_state, entry.event]
    return [time, ago, *move, str(entry.attempt), entry.actor, entry.reason, entry.message]

"""`stats` and `queues`: the whole at a glance."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..client import Client
from ..fleet import serving
from ..groups import GroupStatus
from ..overview import overview
from ..spans import distance, duration
from .options import as_name
from .output import Column, show_fields, show_table
from .session import Session, json_option, pass_session, print_json


@click.command()
@json_option
@pass_session
def stats(session: Session, as_json: bool) -> None:
    """Count the tasks in each state, and tell whether somebody watches.

    \b
    Example: ghostless stats
    """
    told = overview(session.client)
    if as_json:
        print_json(told.to_dict())
        return
    show_table(_COUNTED, [[state, str(number)] for state, number in (told.states or {}).items()], empty="")
    click.echo()
    lines = [(name, str(number)) for name, number in (told.ledger or {}).items()]
    lines += [
        ("workers", "" if told.workers is None else str(told.workers)),
        ("watchdog", _watchdog(told.watchdog, session.now())),
    ]
    lines += [("listeners", _listeners(told.listeners or ())), ("callbacks", str(told.deliveries or ""))]
    show_fields([*lines, *((f"{name} damaged", why) for name, why in told.damaged.items())])


_COUNTED = [Column("STATE"), Column("TASKS", right=True)]


def _watchdog(trace: Mapping[str, str | int] | None, now: int) -> str:
    if not trace:
        return "none swept lately; start one: ghostless watchdog"
    swept = f"{str(trace['actor']).removeprefix('watchdog:')} swept {distance(int(trace['swept_at']), now)}"
    took = trace.get("audit_round")
    return swept + (f"; the last audit of all took {duration(int(took))}" if took else "")


def _listeners(groups: Sequence[GroupStatus]) -> str:
    if not groups:
        return ""
    parked, missed = sum(group.parked for group in groups), sum(group.missed for group in groups)
    behind = duration(max(group.behind for group in groups))
    problems = "".join(f"; {group.problem}" for group in groups if group.problem)
    problems += "".join(f"; nobody listens as {group.name}" for group in groups if group.behind and not group.listeners)
    number = "1 group" if len(groups) == 1 else f"{len(groups)} groups"
    return f"{number}, at most {behind} behind, {parked} parked, {missed} missed{problems}"


# Queues


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def queues(ctx: click.Context, as_json: bool) -> None:
    """List the queues; pause and resume them.

    \b
    Example: ghostless queues pause gpu
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_queues, as_json=as_json)


@queues.command("list")
@json_option
@pass_session
def list_queues(session: Session, as_json: bool) -> None:
    """List the queues with what waits in them and who serves them.

    \b
    Example: ghostless queues list
    """
    rows = _queues(session.client)
    if as_json:
        print_json({"queues": rows})
    else:
        show_table(_QUEUES, [_queue(row) for row in rows], empty="no queue has held a task yet")


_QUEUES = [Column("QUEUE"), Column("STATE"), Column("PENDING", right=True), Column("PARKED"), Column("WORKERS")]


def _queue(row: Mapping[str, Any]) -> list[str]:
    parked = ", ".join(f"{number} {name}" for name, number in row["parked"].items())
    return [row["name"], row["state"], str(row["pending"]), parked, ", ".join(row["workers"]) or "none"]


def _queues(client: Client) -> list[dict[str, Any]]:
    fleet = client.workers()
    return [
        row | {"workers": [worker.name for worker in serving(row["name"], fleet)]} for row in client.queue_overview()
    ]


@queues.command("pause", short_help="Let none of its tasks start; running ones go on.")
@click.argument("queue", callback=as_name, metavar="QUEUE")
@json_option
@pass_session
def pause_queue(session: Session, queue: str, as_json: bool) -> None:
    """Let no task of a queue start until it is resumed; running ones go on.

    \b
    Example: ghostless queues pause gpu
    """
    session.client.pause_queue(queue)
    _tell(queue, "paused", as_json)


@queues.command("resume")
@click.argument("queue", callback=as_name, metavar="QUEUE")
@json_option
@pass_session
def resume_queue(session: Session, queue: str, as_json: bool) -> None:
    """Let the tasks of a paused queue start again.

    \b
    Example: ghostless queues resume gpu
    """
    session.client.resume_queue(queue)
    _tell(queue, "running", as_json)


def _tell(queue: str, state: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": queue, "state": state})
    else:
        click.echo(f"queue {queue} is {state}")

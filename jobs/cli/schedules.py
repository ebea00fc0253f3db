"""`schedules`: what is submitted again and again; add, pause, run now, remove."""

import secrets
from collections.abc import Mapping
from typing import Any

import click

from ..errors import CorruptRecord, Fault, InvalidTask
from ..recurrence import MISFIRES, OVERLAPS, Misfire, Overlap, Recurrence
from ..scheduler import submit_run
from ..schedules import Schedule, as_dict
from ..spans import duration
from ..submission import Request
from .options import all_params, as_interval, as_params
from .options import as_json as read_json
from .output import Column, show_table, when
from .session import Session, json_option, pass_session, print_json

OVERDUE = 10_000
"""Milliseconds after which a run that is due is late, though a scheduler looks each second."""


def _tell_next(session: Session, name: str) -> None:
    click.echo(f"schedule {name}: next run {when(session.client.schedules.get(name).due, session.now())}")


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def schedules(ctx: click.Context, as_json: bool) -> None:
    """List the schedules; add, pause and remove them. A scheduler must run: `ghostless scheduler`.

    \b
    Example: ghostless schedules add nightly --cron "30 2 * * *" --tz Europe/Berlin --type report.build
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_schedules, as_json=as_json)


@schedules.command("list")
@json_option
@pass_session
def list_schedules(session: Session, as_json: bool) -> None:
    """List the schedules with their next and their last run.

    \b
    Example: ghostless schedules list
    """
    found, now = session.client.schedules.all()
    if as_json:
        print_json({"schedules": [as_dict(name, schedule, for_operators=True) for name, schedule in found.items()]})
    else:
        rows = [_row(name, schedule, now) for name, schedule in found.items()]
        show_table(_COLUMNS, rows, empty="no schedule is registered; add one: ghostless schedules add --help")


_COLUMNS = [Column("SCHEDULE"), Column("TYPE"), Column("WHEN"), Column("NEXT"), Column("LAST RUN"), Column("PROBLEM")]


def _row(name: str, schedule: Schedule | CorruptRecord, now: int) -> list[str]:
    if isinstance(schedule, CorruptRecord):
        return [name, "", "", "", "", schedule.detail]
    upcoming = "paused" if schedule.paused else when(schedule.due, now)
    last = f"{when(schedule.last_due, now)} {schedule.last_task or ''}".strip()
    return [name, schedule.type, _rhythm(schedule.recurrence), upcoming, last, _problem(schedule, now)]


def _problem(schedule: Schedule, now: int) -> str:
    if not schedule.paused and now - schedule.due > OVERDUE:
        return "it is overdue; does a scheduler run? `ghostless scheduler`"
    return schedule.last_problem


def _rhythm(recurrence: Recurrence) -> str:
    if recurrence.every is not None:
        return f"every {duration(recurrence.every)}"
    return f"{recurrence.cron} ({recurrence.zone})"


@schedules.command("add", short_help="Register a schedule, or change one.")
@click.argument("name", metavar="NAME")
@click.option("--cron", metavar="EXPRESSION", help='Cron expression, like "*/15 8-18 * * 1-5".')
@click.option("--tz", "zone", default="UTC", metavar="ZONE", show_default=True, help="Time zone of the expression.")
@click.option("--every", callback=as_interval, metavar="INTERVAL", help="Fixed interval instead: 90s, 10m, 2h, 1d.")
@click.option("--type", "task_type", required=True, metavar="TYPE", help="Task type that is submitted.")
@click.option("--params", callback=read_json, metavar="JSON", help="All parameters as a JSON object.")
@click.option("-p", "named", callback=as_params, multiple=True, metavar="NAME=VALUE", help="One parameter; repeatable.")
@click.option("--queue", metavar="QUEUE", help="Queue; else the type's own.")
@click.option(
    "--misfire", type=click.Choice(MISFIRES), default="once", show_default=True, help="Runs missed in an outage."
)
@click.option(
    "--overlap", type=click.Choice(OVERLAPS), default="allow", show_default=True, help="Run beside the one before."
)
@pass_session
def add(
    session: Session,
    name: str,
    cron: str | None,
    zone: str,
    every: int | None,
    task_type: str,
    params: Any,
    named: Mapping[str, Any],
    queue: str | None,
    misfire: Misfire,
    overlap: Overlap,
) -> None:
    """Register a schedule, or change one. It first runs when it is next due, never at once.

    Daylight saving: an hour that the clocks skip is made up for right after it, one that comes twice runs once.
    Missed runs, of more than a minute ago: skip them, run once, or all (the last hundred).

    \b
    Example: ghostless schedules add tidy --every 10m --type files.tidy --overlap skip
    """
    given = all_params(params, named)
    wanted = Schedule(name, task_type, Recurrence(cron, zone, every), given, queue, misfire, overlap)
    wanted.check()
    if session.client.check(Request(task_type, given, queue=queue)).secrets_json:
        raise InvalidTask([Fault("params", "a schedule keeps no secrets: anybody may read what it submits")])
    session.client.schedules.put(wanted)
    _tell_next(session, name)


@schedules.command("remove")
@click.argument("name", metavar="NAME")
@pass_session
def remove(session: Session, name: str) -> None:
    """Forget a schedule; the tasks that it submitted stay. One that `@task(cron=…)` declares does not come back.

    \b
    Example: ghostless schedules remove nightly
    """
    session.client.schedules.remove(name)
    click.echo(f"schedule {name} is removed")


@schedules.command("pause")
@click.argument("name", metavar="NAME")
@pass_session
def pause(session: Session, name: str) -> None:
    """Let a schedule submit nothing until it is resumed.

    \b
    Example: ghostless schedules pause nightly
    """
    session.client.schedules.pause(name)
    click.echo(f"schedule {name} is paused")


@schedules.command("resume")
@click.argument("name", metavar="NAME")
@pass_session
def resume(session: Session, name: str) -> None:
    """Let a paused schedule go on with its next due time; what was due meanwhile is not made up for.

    \b
    Example: ghostless schedules resume nightly
    """
    session.client.schedules.resume(name)
    _tell_next(session, name)


@schedules.command("run")
@click.argument("name", metavar="NAME")
@pass_session
def run(session: Session, name: str) -> None:
    """Submit one run now, beside the schedule, and print the task's id.

    \b
    Example: ghostless schedules run nightly
    """
    schedule = session.client.schedules.get(name)
    click.echo(submit_run(session.client, schedule, f"{name}:now:{secrets.token_hex(8)}", session.now()))

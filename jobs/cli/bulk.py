"""`bulk`: what a person does to many tasks at once, found by a filter."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...statemachine import ACTIONS
from ..bulk import COUNTS, LIMIT, USUAL_LIMIT, BulkAction, BulkFilter, BulkRequest
from ..bulk_actions import BulkActions, Count
from ..listing import PAGE_LIMIT
from ..model import damaged_view
from ..reads import Damaged
from .lazy import Failed
from .options import as_moment, as_name, as_state
from .output import Column, show_fields, show_table, when
from .session import Session, actor, json_option, pass_session, print_json

LOOK = 0.2
"""Seconds between two looks at a bulk action that is waited for."""


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def bulk(ctx: click.Context, as_json: bool) -> None:
    """Cancel, pause, resume or retry many tasks at once. The watchdogs do it, a page with each sweep.

    \b
    Example: ghostless bulk cancel --type image.generate --state PENDING
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_bulk_actions, as_json=as_json)


_FILTER = (
    click.option("--state", callback=as_state, metavar="STATE", help="Only in this state."),
    click.option("--type", "type", callback=as_name, metavar="TYPE", help="Only of this type."),
    click.option("--queue", callback=as_name, metavar="QUEUE", help="Only of this queue."),
    click.option("--owner", metavar="OWNER", help="Only of this owner."),
    click.option("--after", callback=as_moment, metavar="TIME", help="Only where the last change was then or later."),
    click.option("--before", callback=as_moment, metavar="TIME", help="Only where it was then or earlier."),
    click.option("--id", "ids", multiple=True, metavar="ID", help="Only this task; repeatable."),
    click.option("--all", is_flag=True, help="Every task, when nothing else is given."),
)
_WISH = (
    click.option(
        "--limit", type=click.IntRange(1, LIMIT.most), default=USUAL_LIMIT, metavar="N", show_default=True,
        help="Most tasks that are acted on, the oldest first.",
    ),
    click.option("--message", default="", metavar="TEXT", help="Why, for the history."),
    click.option("--idempotency-key", metavar="KEY", help="Ask for the same bulk action again, not for another one."),
    click.option("--dry-run", is_flag=True, help="Only count the tasks that would be moved."),
    click.option("--yes", is_flag=True, help="Do not ask whether it is meant."),
    click.option("--wait", is_flag=True, help="Wait for its end."),
)  # fmt: skip


def _acting(action: str) -> click.Command:
    """Return the verb of one action."""

    @pass_session
    def act(session: Session, limit: int, message: str, idempotency_key: str | None, **given: Any) -> None:
        as_json, dry_run, yes, wait = (given.pop(name) for name in ("as_json", "dry_run", "yes", "wait"))
        request = BulkRequest(action, BulkFilter(**given), limit, message, idempotency_key)
        if dry_run:
            _tell_count(session.client.bulk.count(request), as_json)
        else:
            _act(session, request, asks=not yes and on_keyboard(), waits=wait, as_json=as_json)

    act.__doc__ = f"""{action.capitalize()} all tasks that the options accept; at least one must be given, or --all.

    \b
    Example: ghostless bulk {action} --type image.generate --dry-run
    """
    verb: Any = act
    for decorate in reversed((click.command(action), *_FILTER, *_WISH, json_option)):
        verb = decorate(verb)
    return verb


for _action in ACTIONS:
    bulk.add_command(_acting(_action))


def on_keyboard() -> bool:
    """Tell whether a person can be asked."""
    return sys.stdin.isatty()


def _tell_count(count: Count, as_json: bool) -> None:
    if as_json:
        print_json(asdict(count))
        return
    click.echo(f"{_number(count)} would be moved; nothing was changed")
    show_fields([*((state, str(number)) for state, number in count.by_state.items()), ("like", " ".join(count.sample))])


def _number(count: Count) -> str:
    return f"{'' if count.complete else 'at least '}{count.matched} task{'' if count.matched == 1 else 's'}"


def _act(session: Session, request: BulkRequest, *, asks: bool, waits: bool, as_json: bool) -> None:
    actions = session.client.bulk
    count = actions.count(request) if asks or waits else None
    if asks and count:
        click.confirm(f"{request.action} {_number(count)}?", abort=True, err=True)
    found = actions.get(actions.begin(request, actor()).bulk_id)
    if found.note:
        click.echo(f"{found.note}; start one: ghostless watchdog", err=True)
    if waits and count:
        found = _ended(actions, found.id, min(count.matched, request.limit))
    _tell(session, found, as_json)
    if waits and found.state != "done":
        raise Failed(f"the bulk action was stopped by {found.stopped_by}")


def _ended(actions: BulkActions, bulk_id: str, expected: int) -> BulkAction:
    """Show a bulk action until it ends, and return it. Raises Failed when the person has waited enough."""
    try:
        with _bar(expected) as show:
            while (found := actions.get(bulk_id)).ended_at is None:
                show(found)
                time.sleep(LOOK)
            return found
    except KeyboardInterrupt:
        raise Failed(f"stopped waiting; it goes on: ghostless bulk status {bulk_id}") from None


@contextmanager
def _bar(expected: int) -> Generator[Callable[[BulkAction], None]]:
    """Yield what draws a bulk action: a bar on a terminal, else nothing. On stderr, since stdout is for the outcome."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        row = bar.add_task("", total=expected)

        def show(found: BulkAction) -> None:
            bar.update(row, completed=found.counts["moved"], description=found.note or found.action)

        yield show


def _tell(session: Session, found: BulkAction, as_json: bool) -> None:
    if as_json:
        print_json(found.to_dict())
    else:
        show_fields(_described(found, session.now()))


def _described(found: BulkAction, now: int) -> list[tuple[str, str]]:
    return [
        ("bulk action", found.id),
        ("action", found.action),
        ("state", found.state),
        ("note", found.note or ""),
        ("for", _filter(found)),
        ("limit", f"{found.limit}{' reached: there may be more' if found.reached_limit else ''}"),
        ("did", _counts(found)),
        *(("not moved", " ".join(told.values())) for told in found.told),
        ("message", found.message),
        ("begun", f"{when(found.created_at, now)} by {found.actor}"),
        ("ended", when(found.ended_at, now)),
        ("stopped by", found.stopped_by or ""),
    ]


def _filter(found: BulkAction) -> str:
    named = {"ids": found.number_of_ids} if found.number_of_ids else {}
    return " ".join(f"{name}={value}" for name, value in (found.filter.to_dict() | named).items())


def _counts(found: BulkAction) -> str:
    return ", ".join(f"{found.counts[name]} {name.replace('_', ' ')}" for name in COUNTS if found.counts[name])


@bulk.command("list")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_LIMIT), default=20, metavar="N", show_default=True, help="Most of them."
)
@json_option
@pass_session
def list_bulk_actions(session: Session, as_json: bool, limit: int = 20) -> None:
    """List the last bulk actions, the newest first.

    \b
    Example: ghostless bulk list
    """
    found = session.client.bulk.newest(limit)
    if as_json:
        print_json({"bulk_actions": [_view(one) for one in found]})
    else:
        show_table(_COLUMNS, [_row(one, session.now()) for one in found], empty="there was no bulk action yet")


_COLUMNS = [Column("BULK ACTION"), Column("ACTION"), Column("STATE"), Column("BEGUN"), Column("DID"), Column("FOR")]


def _view(found: BulkAction | Damaged) -> dict[str, Any]:
    return damaged_view(found.detail, id=found.id) if isinstance(found, Damaged) else found.to_dict()


def _row(found: BulkAction | Damaged, now: int) -> list[str]:
    if isinstance(found, Damaged):
        return [found.id, "", "", "", "", found.detail]
    begun = when(found.created_at, now)
    return [found.id, found.action, found.state, begun, _counts(found), _filter(found)]


@bulk.command("status")
@click.argument("bulk_id", metavar="ID")
@json_option
@pass_session
def status(session: Session, bulk_id: str, as_json: bool) -> None:
    """Show a bulk action: how far it is, and what it did.

    \b
    Example: ghostless bulk status 01a229e67abf7fce825b6252ed753bbc
    """
    _tell(session, session.client.bulk.get(bulk_id), as_json)


@bulk.command("stop")
@click.argument("bulk_id", metavar="ID")
@pass_session
def stop(session: Session, bulk_id: str) -> None:
    """End a bulk action that still runs; what it has done stays done.

    \b
    Example: ghostless bulk stop 01a229e67abf7fce825b6252ed753bbc
    """
    still_ran = session.client.bulk.stop(bulk_id, actor())
    click.echo(f"{bulk_id} is stopped" if still_ran else f"{bulk_id} had ended already; nothing was changed")

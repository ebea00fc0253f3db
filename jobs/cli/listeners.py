"""`listeners`: the groups in which handlers read the history, how far each is, and what is parked."""

from collections.abc import Sequence

import click

from ..groups import BEGINNING, END, GroupStatus, Parked
from ..spans import duration
from .lazy import Failed
from .output import Column, show_table, when
from .session import Session, json_option, pass_session, print_json


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def listeners(ctx: click.Context, as_json: bool) -> None:
    """List what listens to the history, and what is parked; try that again.

    \b
    Example: ghostless listeners
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_groups, as_json=as_json)


@listeners.command("list", short_help="List the groups, and how far each is.")
@json_option
@pass_session
def list_groups(session: Session, as_json: bool) -> None:
    """List the groups: who is alive, how far behind, what is handed out, parked, and missed for good.

    \b
    Example: ghostless listeners list
    """
    groups = session.client.listeners.all()
    if as_json:
        print_json({"listeners": [group.to_dict() for group in groups]})
    else:
        empty = "no listener has run yet; start one: ghostless listener --handlers MODULE"
        show_table(_GROUPS, [_row(group) for group in groups], empty=empty)


_GROUPS = [
    Column("GROUP"),
    Column("LISTENERS", right=True),
    Column("UNREAD", right=True),
    Column("BEHIND", right=True),
    Column("PENDING", right=True),
    Column("OLDEST", right=True),
    Column("PARKED", right=True),
    Column("MISSED", right=True),
    Column("PROBLEM"),
]


def _row(group: GroupStatus) -> list[str]:
    unread = "some" if group.lag is None and group.behind else str(group.lag or 0)
    behind = duration(group.behind) if group.behind else "-"
    oldest = duration(group.oldest_pending) if group.pending else "-"
    counts = [
        str(len(group.listeners)),
        unread,
        behind,
        str(group.pending),
        oldest,
        str(group.parked),
        str(group.missed),
    ]
    return [group.name, *counts, group.problem]


@listeners.command("parked", short_help="List what a handler could not handle.")
@click.argument("group", metavar="GROUP")
@json_option
@pass_session
def show_parked(session: Session, group: str, as_json: bool) -> None:
    """List the entries that a handler could not handle, the newest first, with its last error.

    The last thousand are kept, until 30 days after the last one.

    \b
    Example: ghostless listeners parked listener:page_on_call
    """
    parked, damaged = session.client.listeners.parked(group)
    if as_json:
        print_json({"group": group, "parked": [each.to_dict() for each in parked], "damaged": damaged})
    else:
        now = session.now() if parked else 0
        show_table(_PARKED, [_parked_row(each, now) for each in parked], empty="nothing is parked here")
    if damaged:
        raise Failed(_cannot_be_read(damaged))


def _cannot_be_read(damaged: Sequence[str]) -> str:
    return f"{len(damaged)} parked entries cannot be read; the newest is {damaged[0]}"


_PARKED = [
    Column("ENTRY"),
    Column("TASK"),
    Column("EVENT"),
    Column("TRIES", right=True),
    Column("PARKED"),
    Column("ERROR"),
]


def _parked_row(each: Parked, now: int) -> list[str]:
    last_line = each.error.strip().rpartition("\n")[2]
    return [each.entry.id, each.entry.task, each.entry.event, str(each.begun), when(each.at, now), last_line]


@listeners.command("replay", short_help="Try parked entries again.")
@click.argument("group", metavar="GROUP")
@click.argument("entries", nargs=-1, metavar="[ENTRY]...")
@click.option("--all", "everything", is_flag=True, help="Every parked entry of the group.")
@json_option
@pass_session
def replay(session: Session, group: str, entries: Sequence[str], everything: bool, as_json: bool) -> None:
    """Let the listeners of a group try parked entries again, once their handler is mended.

    What is gone from the history, since its task was purged, stays parked.

    \b
    Example: ghostless listeners replay listener:page_on_call --all
    """
    if bool(entries) == everything:
        raise click.UsageError("name the entries, or give --all")
    again, gone, damaged = session.client.listeners.replay(group, None if everything else entries)
    if as_json:
        print_json({"group": group, "replayed": again, "gone": gone, "damaged": damaged})
    else:
        click.echo(f"to be tried again: {len(again)}")
    problems = [f"{entry} (its task was purged)" for entry in gone]
    problems += [f"{entry} (not parked)" for entry in sorted(set(entries) - {*again, *gone})]
    if damaged:
        problems.append(_cannot_be_read(damaged))
    if problems:
        raise Failed(f"not to be tried again: {', '.join(problems)}")


@listeners.command("create", short_help="Let a group begin before its first listener.")
@click.argument("group", metavar="GROUP")
@click.option("--from-start", is_flag=True, help="Begin with the oldest entry there is, and not with what comes next.")
@pass_session
def create(session: Session, group: str, from_start: bool) -> None:
    """Let a group begin now, before its first listener runs: a step of a deploy.

    \b
    Example: ghostless listeners create listener:page_on_call
    """
    is_new = session.client.listeners.create(group, BEGINNING if from_start else END)
    click.echo(f"{group} {'begins' if is_new else 'began earlier, and goes on'}")


@listeners.command("remove", short_help="Forget a group that is not used any more.")
@click.argument("group", metavar="GROUP")
@pass_session
def remove(session: Session, group: str) -> None:
    """Forget a group that is not used any more, with what is parked in it. A listener that runs makes it anew.

    \b
    Example: ghostless listeners remove listener:old_name
    """
    session.client.listeners.remove(group)
    click.echo(f"{group} is removed")

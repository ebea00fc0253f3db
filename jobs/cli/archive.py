"""`archive`: write tasks to files before they are purged, and show one that was."""

from pathlib import Path

import click

from ...lua import BATCH
from ..archive_file import find_archived
from ..archivist import Archivist
from .lazy import Failed
from .session import Session, pass_session, print_json


@click.group(invoke_without_command=True)
@click.option("--to", "folder", metavar="FOLDER", help="Folder of the archive; else GHOSTLESS_ARCHIVE_TO.")
@click.pass_context
def archive(ctx: click.Context, folder: str | None) -> None:
    """Write every task whose retention is over to an archive, and purge it then.

    From now on no watchdog purges what is not archived, until `ghostless archive off`. So run this again and again,
    or a watchdog with GHOSTLESS_ARCHIVE_TO.

    \b
    Example: ghostless archive --to /mnt/archive/ghostless
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(archive_all, folder=folder)
    elif folder:
        raise click.UsageError("--to is for `ghostless archive` alone")


@pass_session
def archive_all(session: Session, folder: str | None) -> None:
    """Archive what is due now, and print how many tasks that were."""
    archivist = Archivist(session.client.store, _folder(session, folder, "--to"))
    archivist.check_folder()  # before anything is demanded, since a mistyped name would stop every purge
    number, problems = 0, list[str]()
    while True:
        swept = archivist.archive()
        number += swept.moved
        problems += swept.problems
        if swept.looked_at < BATCH:
            break
    click.echo(f"archived and purged {number} tasks")
    if problems:
        raise Failed("; ".join(problems))


def _folder(session: Session, given: str | None, option: str) -> Path:
    folder = given or session.settings().archive_to
    if not folder:
        raise click.UsageError(f"expected a folder: {option}, or GHOSTLESS_ARCHIVE_TO")
    return Path(folder)


@archive.command("show")
@click.argument("task_id", metavar="ID")
@click.option("--from", "folder", metavar="FOLDER", help="Folder of the archive; else GHOSTLESS_ARCHIVE_TO.")
@pass_session
def show(session: Session, task_id: str, folder: str | None) -> None:
    """Print what was archived of a task, as JSON: the task, its history, checkpoint and log. Needs no Redis.

    \b
    Example: ghostless archive show 01a229e67abf7fce825b6252ed753bbc --from /mnt/archive/ghostless
    """
    print_json(find_archived(_folder(session, folder, "--from"), task_id))


@archive.command("off")
@pass_session
def off(session: Session) -> None:
    """Let watchdogs purge tasks without an archive again; stop those with GHOSTLESS_ARCHIVE_TO first.

    \b
    Example: ghostless archive off
    """
    session.client.store.demand_archive(False)
    click.echo("tasks are purged without an archive from now on")

"""The modules with handlers, as verbs are told of them, and why they cannot be used."""

import click

from ..horse_process import HorseBroken
from ..installed import GROUP, task_modules
from ..settings import Settings
from .lazy import Failed

modules_option = click.option(
    "--tasks",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Module with handlers; repeatable. Without it GHOSTLESS_TASKS, else the entry points in ghostless.tasks.",
)


def modules_of(settings: Settings) -> tuple[str, ...]:
    """Return the modules to import. Raises UsageError when nothing names any."""
    modules = task_modules(settings)
    if not modules:
        missing = f"name the modules with your handlers, set GHOSTLESS_TASKS, or install entry points in {GROUP}"
        raise click.UsageError(f"--tasks: {missing}")
    return modules


def told(error: HorseBroken) -> Failed:
    """Show the traceback, and return the one line that ends the verb."""
    if error.detail:
        click.echo(error.detail.rstrip(), err=True)
    return Failed(error.summary.replace("\n", " "))

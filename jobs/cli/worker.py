"""`worker`: run tasks from queues until told to stop."""

import click

from ..stable import HorseBroken
from ..worker import run_worker
from .lazy import Failed
from .logs import log_to_stderr
from .modules import told_broken
from .options import as_name, as_names
from .session import Session, pass_session


@click.command()
@click.argument("queues", nargs=-1, required=True, callback=as_names, metavar="QUEUE...")
@click.option("--tasks", "modules", multiple=True, metavar="MODULE", help="Module with handlers; repeatable.")
@click.option("--name", callback=as_name, metavar="NAME", help="Name of the worker; else host and process id.")
@click.option("--burst", is_flag=True, help="End when the queues are empty.")
@click.option("--max-jobs", type=click.IntRange(1), help="End after so many tasks and plain jobs.")
@click.option("--max-idle-time", type=click.IntRange(1), metavar="SECONDS", help="End when idle for so long.")
@click.option("--drain", metavar="SECONDS", help="How long a stopping worker lets its task run on.")
@click.pass_context
@pass_session
def worker(
    session: Session,
    ctx: click.Context,
    queues: tuple[str, ...],
    modules: tuple[str, ...],
    name: str | None,
    burst: bool,
    max_jobs: int | None,
    max_idle_time: int | None,
    drain: str | None,
) -> None:
    """Run tasks from queues, the first queue first. Ctrl-C lets the task at hand end, twice gives it back.

    \b
    Example: ghostless worker gpu --tasks my_tasks
    """
    settings = session.settings(tasks=",".join(modules) or None, drain=drain)
    if not settings.tasks:
        raise click.UsageError("--tasks: name the modules with your handlers, or set GHOSTLESS_TASKS")
    session.client.reads.ping()  # at the start an outage is told at once, later it is waited for
    log_to_stderr()
    try:
        code = run_worker(settings, queues, name=name, burst=burst, max_jobs=max_jobs, max_idle_time=max_idle_time)
    except HorseBroken as error:
        raise Failed(told_broken(error)) from error
    ctx.exit(code)

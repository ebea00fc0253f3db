"""`worker`: run tasks from queues until told to stop."""

import sys

import click

from ..pool import places, run_pool
from ..registered import unique_name
from ..stable import HorseBroken
from ..tether import stop_with_parent
from ..worker import run_worker
from .lazy import Failed
from .logs import log_to_stderr
from .modules import told_broken
from .options import as_name, as_names
from .session import Session, pass_session


@click.command()
@click.argument("queues", nargs=-1, required=True, callback=as_names, metavar="QUEUE...")
@click.option("--tasks", "modules", multiple=True, metavar="MODULE", help="Module with handlers; repeatable.")
@click.option("-n", "number", type=click.IntRange(1, 1000), metavar="N", help="Keep N workers; with --gpus N a device.")
@click.option("--gpus", metavar="all|0,1", help="Keep a worker for each GPU, which sees no other one.")
@click.option("--name", callback=as_name, metavar="NAME", help="Name of the worker; else host and process id.")
@click.option("--burst", is_flag=True, help="End when the queues are empty.")
@click.option("--drain", metavar="SECONDS", help="How long a stopping worker lets its task run on.")
@click.option("--parent", type=int, hidden=True, help="Process id of the pool whose worker this is.")
@click.option("--incarnation", hidden=True, help="What the pool calls this life of the worker.")
@click.pass_context
@pass_session
def worker(
    session: Session,
    ctx: click.Context,
    queues: tuple[str, ...],
    modules: tuple[str, ...],
    number: int | None,
    gpus: str | None,
    name: str | None,
    burst: bool,
    drain: str | None,
    parent: int | None,
    incarnation: str | None,
) -> None:
    """Run tasks from queues, the first queue first. Ctrl-C lets the task at hand end, twice gives it back.

    With -n or --gpus the workers are processes of their own: one that dies is reported at once and started again.
    They are called NAME-1, NAME-2 and so on, or NAME-gpu0.

    \b
    Example: ghostless worker gpu --tasks my_tasks
             ghostless worker gpu --tasks my_tasks --gpus all
    """
    if parent:
        stop_with_parent(parent)
    settings = session.settings(tasks=",".join(modules) or None, drain=drain)
    if not settings.tasks:
        raise click.UsageError("--tasks: name the modules with your handlers, or set GHOSTLESS_TASKS")
    session.client.reads.ping()  # at the start an outage is told at once, later it is waited for
    log_to_stderr()
    if (number or gpus is not None) and not parent:
        ctx.exit(run_pool(settings, places(name or unique_name(), number or 1, gpus), sys.argv[1:], burst=burst))
    try:
        code = run_worker(settings, queues, name=name, burst=burst, incarnation=incarnation)
    except HorseBroken as error:
        raise Failed(told_broken(error)) from error
    ctx.exit(code)

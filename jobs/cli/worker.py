"""`worker`: run tasks from queues until told to stop."""

from functools import partial
from typing import Any

import click
from redis import Redis
from redis.exceptions import RedisError

from ..errors import RedisUnavailable
from ..horse_process import HorseBroken
from ..pool import BEGUN, places, run_pool
from ..registered import unique_name
from ..scripts import translated
from ..settings import WAYS_TO_START
from ..tether import stop_with_parent, tell_parent
from ..worker import Worker
from .fitness import allow_eviction_option, as_setting, check_fitness
from .logs import log_to_stderr
from .modules import modules_of, modules_option, told
from .options import as_name, as_names, retyped
from .session import Session, pass_session

OF_THE_POOL = ("number", "gpus", "name", "health_port")
"""Parameters that are not handed on as they are to the workers of a pool."""


@click.command()
@click.argument("queues", nargs=-1, required=True, callback=as_names, metavar="QUEUE...")
@modules_option
@click.option("-n", "number", type=click.IntRange(1, 1000), metavar="N", help="Keep N workers; with --gpus N a device.")
@click.option("--gpus", metavar="all|0,1", help="Keep a worker for each GPU, which sees no other one.")
@click.option("--name", callback=as_name, metavar="NAME", help="Name of the worker; else host and process id.")
@click.option("--burst", is_flag=True, help="End when the queues are empty.")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="End after so many tasks and plain jobs.")
@click.option("--max-idle-time", type=click.IntRange(1), metavar="SECONDS", help="End when idle for so long.")
@click.option("--drain", metavar="SECONDS", help="How long a stopping worker lets its task run on.")
@click.option(
    "--horse",
    type=click.Choice(WAYS_TO_START),
    help="How the process of the handlers starts: as a fresh interpreter, or forked from one that has imported the "
    "modules, which is faster; for modules that start no threads and touch no GPU when imported. Default: spawn.",
)
@click.option("--preload", is_flag=True, help="Run the setup of every task type before the first task.")
@click.option(
    "--max-tasks-per-horse", metavar="NUMBER", help="Replace the process of the handlers after so many tasks."
)
@click.option(
    "--max-horse-rss", metavar="SIZE", help="Replace it after a task that leaves it with more memory, like 8G or 500M."
)
@click.option(
    "--health-port",
    metavar="PORT",
    help="Answer GET /health here; a pool's second worker at the next port, and so on. 0 for nowhere.",
)
@allow_eviction_option
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
    max_jobs: int | None,
    max_idle_time: int | None,
    preload: bool,
    allow_eviction: bool,
    parent: int | None,
    incarnation: str | None,
    **limits: str | None,
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
    settings = session.settings(
        tasks=",".join(modules) or None,
        preload="yes" if preload else None,
        allow_eviction=as_setting(allow_eviction),
        **limits,
    )
    modules_of(settings)
    name = name or unique_name()
    log_to_stderr(name if parent else "")
    if parent:  # which looked at the server; what changed since then must not keep its workers from coming back
        with translated():
            session.redis.ping()
    else:
        check_fitness(session, settings)  # at the start an outage is told at once, later it is waited for
    if number or gpus is not None:
        found = places(name, number or 1, gpus, settings.health_port)
        ctx.exit(run_pool(settings, name, found, retyped(ctx, OF_THE_POOL), burst=burst))
    connection = Redis.from_url(settings.redis_url, protocol=2)
    one = Worker(list(queues), name, connection=connection, settings=settings, incarnation=incarnation)
    one.on_ready = partial(tell_parent, parent, BEGUN) if parent else None
    ctx.exit(_work(one, burst=burst, max_jobs=max_jobs, max_idle_time=max_idle_time))


def _work(one: Worker, **ends: Any) -> int:
    """Let a worker run until it is to end; return its exit code."""
    try:
        one.work(logging_level=None, **ends)
    except HorseBroken as error:
        raise told(error) from error
    except RedisError as error:
        raise RedisUnavailable(error) from error
    return one.exit_code

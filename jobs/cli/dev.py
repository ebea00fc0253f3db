"""`dev`: everything in one terminal, until Ctrl-C."""

from dataclasses import replace
from pathlib import Path

import click

from ..settings import LAST_PORT
from .extras import require
from .hold import only_one_in
from .options import as_name
from .session import Session, pass_session
from .stack import Interrupted, Plan, Stack

FOLDER = Path(".ghostless")
"""Where the data and the logs are kept, below the current folder."""

EXAMPLE = "ghostless.examples.image"
"""The handlers that are served when none are named."""


def plan_for(session: Session, queue: str, port: int, modules: tuple[str, ...], handlers: tuple[str, ...] = ()) -> Plan:
    """Return what to run. Raises Failed when the handlers of the example cannot be."""
    settings = session.settings(tasks=",".join(modules) or None, handlers=",".join(handlers) or None)
    if not settings.tasks:
        settings = replace(settings, tasks=(EXAMPLE,))
    if EXAMPLE in settings.tasks:
        require("numpy", "PIL")
    return Plan(replace(settings, artifacts=str(FOLDER / "artifacts")), queue, port, FOLDER)


@click.command()
@click.option(
    "--port", type=click.IntRange(0, LAST_PORT), default=8000, show_default=True, help="Port of the web server."
)
@click.option("--queue", default="gpu", show_default=True, callback=as_name, help="Queue that the worker serves.")
@click.option("--tasks", "modules", multiple=True, metavar="MODULE", help="Module with handlers; else the example's.")
@click.option("--handlers", multiple=True, metavar="MODULE", help="Module with handlers of what happened to tasks.")
@pass_session
def dev(session: Session, port: int, queue: str, modules: tuple[str, ...], handlers: tuple[str, ...]) -> None:
    """Run everything here: a Redis of its own, a watchdog, a scheduler, a worker, the web server, perhaps a listener.

    That is for handlers, for alerts and for callbacks, when the settings say so.

    Data and logs are kept in ./.ghostless; Ctrl-C stops every process.

    \b
    Example: ghostless dev --tasks my_tasks --queue default
    """
    plan = replace(plan_for(session, queue, port, modules, handlers), with_scheduler=True)
    with only_one_in(plan.folder) as hold:
        try:
            with Stack(plan, hold, click.echo) as stack:
                click.echo(_welcome(stack))
                while True:
                    stack.sleep(60)
        except Interrupted:
            click.echo("everything is stopped")


def _welcome(stack: Stack) -> str:
    has_example = EXAMPLE in stack.settings.tasks
    submit = _EXAMPLE_SUBMIT.format(url=stack.url) if has_example else "  ghostless types    # what can be submitted"
    return f"""
web {stack.url}/docs, a task at {stack.url}/tasks/ID

In another terminal:
  export GHOSTLESS_REDIS_URL={stack.settings.redis_url}
  ghostless list
{submit}

Logs are in {stack.plan.folder / "logs"}. Stop everything with Ctrl-C.
"""


_EXAMPLE_SUBMIT = """\
  curl -X POST {url}/api/tasks -H 'Content-Type: application/json' \\
       -d '{{"type": "image.generate", "params": {{"prompt": "a lighthouse at dusk"}}}}'"""

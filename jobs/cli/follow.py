"""Following one task to its end for `submit --wait`."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ...statemachine import BY_POLICY, State
from ..client import Client, Submitted
from ..model import Task
from .lazy import Failed
from .output import clean
from .session import print_json
from .show import last_line

FIRST_LOOK, LONGEST_LOOK = 0.1, 1.0
"""Seconds between two looks at a task, growing from the one to the other."""


def wait_for_end(client: Client, submitted: Submitted, as_json: bool) -> None:
    """Show a task until it is final, then print it. Raises Failed unless it ends in SUCCESS."""
    try:
        with _bar() as show:
            task = _followed(client, submitted.task_id, show)
    except KeyboardInterrupt:
        raise Failed(f"stopped waiting; the task goes on: ghostless status {submitted.task_id}") from None
    if as_json:
        print_json(task.to_dict())
    else:
        click.echo(f"{task.id} {task.state}")
    if task.state is not State.SUCCESS:
        raise Failed(_ending(client, task))


def _followed(client: Client, task_id: str, show: Callable[[Task], None]) -> Task:
    pause = FIRST_LOOK
    while True:
        task = client.get(task_id)
        show(task)
        if task.is_final:
            return task
        time.sleep(pause)
        pause = min(LONGEST_LOOK, pause * 1.3)


@contextmanager
def _bar() -> Generator[Callable[[Task], None]]:
    """Yield what draws a task: a bar on a terminal, else nothing. On stderr, since stdout is for the outcome."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.fields[state]:<13}"), BarColumn(), TextColumn("{task.fields[message]}", markup=False))
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        row = bar.add_task("", total=1.0, state="", message="")

        def show(task: Task) -> None:
            bar.update(row, completed=task.progress or 0, state=task.state, message=clean(task.message or ""))

        yield show


def _ending(client: Client, task: Task) -> str:
    told = [entry.message for entry in client.history(task.id) if entry.message and entry.actor != BY_POLICY]
    why = last_line(task.error) or (told[-1] if told else task.reason) or ""
    return f"the task ended in {task.state}" + (f": {clean(why)}" if why else "")

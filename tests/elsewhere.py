"""Handlers that only some workers of a test serve."""

from pathlib import Path

from effects import task
from ghostless.jobs import Context
from ghostless.jobs.registry import registry


@task("elsewhere.note")
def note(ctx: Context, trace: Path) -> None:
    """Note that it ran, in which order."""
    with trace.open("a") as file:
        file.write(f"{ctx.task_id} {ctx.attempt}\n")


@task("elsewhere.forget")
def forget(ctx: Context) -> None:
    """Let the process know the other type no more."""
    del registry._types["elsewhere.note"]

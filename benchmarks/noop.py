"""A module with one task type that does nothing."""

from ..jobs import Context, task


@task("bench.noop")
def noop(_: Context) -> None:
    """Do nothing."""

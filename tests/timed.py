"""A handler that runs by itself, for tests with real workers."""

from effects import task
from ghostless.jobs import Context


@task("timed.tidy", cron="0 3 * * *", tz="Europe/Berlin", overlap="skip")
def tidy(ctx: Context, keep_days: int = 30) -> int:
    """Return what it was told."""
    return keep_days

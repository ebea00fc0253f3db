"""A task type whose setup fails in the module `stalls`, here with one that works."""

import os

from effects import task
from ghostless.jobs import Context


@task("setup.raise")
def handler(ctx: Context) -> int:
    """Return the process."""
    return os.getpid()

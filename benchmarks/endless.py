"""A task that runs until its process is killed, or it is told to stop."""

import time

from ..jobs import Context, task


@task("bench.endless", queue="bench")
def endless(ctx: Context) -> None:
    """Do nothing for ever."""
    while True:
        ctx.check()
        time.sleep(0.05)

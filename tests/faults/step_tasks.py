"""The handler of the walks: it reports in every way that there is, and notes that it ran."""

import time
from pathlib import Path

from ghostless.jobs import Context, task

ENOUGH = 100
"""No budget may end a task here: whatever dies, it is to end as it was asked to."""


@task("step.work", max_retries=ENOUGH, max_timeouts=ENOUGH, max_losses=ENOUGH, backoff=0.01, backoff_cap=0.01)
def work(ctx: Context, trace: Path, seconds: float = 0.0, failures: int = 0) -> int:
    """Note the attempt in a file, report, run for so long, and fail in the first attempts."""
    with (trace / ctx.task_id).open("a") as file:
        file.write(f"{ctx.attempt}\n")
    ctx.stage("begun")
    ctx.progress(0.5, "half")
    ctx.checkpoint(ctx.attempt)
    ctx.log("half")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)
        ctx.check()
    if ctx.attempt <= failures:
        raise ConnectionError(f"attempt {ctx.attempt} is to fail")
    return ctx.attempt

"""The handler of a chaos run: it notes when it runs, so that overlapping attempts cannot hide."""

import ctypes
import os
import time
from pathlib import Path

from ghostless.jobs import Context, task

QUICK = {"backoff": 0.05, "backoff_cap": 0.2}
ENOUGH = 1000
"""No budget may end a task here: whatever happens, it is to end as it was asked to."""


@task("chaos.work", max_retries=ENOUGH, max_timeouts=ENOUGH, max_losses=ENOUGH, **QUICK)
def work(ctx: Context, trace: Path, seconds: float, failures: int = 0, native: int = 0) -> int:
    """Run for so long, over all attempts, noting the time fifty times a second; fail the first attempts.

    At first run for so many `native` seconds in which no other thread of the process runs.
    """
    done: float = ctx.resumed_from or 0.0
    with (trace / ctx.task_id).open("a", buffering=1) as file:
        file.write(f"{ctx.attempt} {os.getpid()} {time.monotonic():.4f}\n")
        ctypes.PyDLL(None).sleep(native)
        while True:
            file.write(f"{ctx.attempt} {os.getpid()} {time.monotonic():.4f}\n")
            ctx.progress(min(1.0, done / seconds) if seconds else 1.0)
            if ctx.attempt <= failures:
                raise ConnectionError(f"attempt {ctx.attempt} is to fail")
            if done >= seconds:
                return ctx.attempt
            time.sleep(0.02)
            done += 0.02
            ctx.checkpoint(done)


@task("chaos.short", max_retries=ENOUGH, max_timeouts=ENOUGH, max_losses=ENOUGH, **QUICK)
def short(ctx: Context, trace: Path) -> None:
    """Note the time and be done: workers take several of these at once."""
    with (trace / ctx.task_id).open("a", buffering=1) as file:
        file.write(f"{ctx.attempt} {os.getpid()} {time.monotonic():.4f}\n")

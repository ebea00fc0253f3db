"""A task that does nothing but note when it started: the moments stand in the file GHOSTLESS_BENCH_STARTS."""

import os
import struct
import time
from functools import cache

from ..jobs import Context, task

MOMENT = struct.Struct("d")
"""A moment of the monotonic clock, which all processes share, in seconds."""

STARTS = "GHOSTLESS_BENCH_STARTS"


@cache
def _starts() -> int:
    return os.open(os.environ[STARTS], os.O_CREAT | os.O_WRONLY | os.O_APPEND)


@task("bench.noop", queue="bench")
def noop(ctx: Context) -> None:
    """Note the moment."""
    os.write(_starts(), MOMENT.pack(time.monotonic()))

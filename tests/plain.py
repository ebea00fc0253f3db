"""Plain rq jobs, which know nothing of tasks; rq imports this module in its work horses."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rq import get_current_job


def add(first: int, second: int) -> int:
    """Return the sum."""
    return first + second


def note(path: str, text: str) -> None:
    """Append a line to a file, in one write."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


def fail_until(path: str, good_from: int) -> int:
    """Fail in the first runs, counted in a file; return the number of the run."""
    note(path, "run")
    run = len(Path(path).read_text().splitlines())
    if run < good_from:
        raise ConnectionError(f"run {run} fails")
    return run


def fail() -> None:
    """Fail always."""
    raise ValueError("no hope")


def vanish() -> None:
    """End the process without a word."""
    os._exit(3)


def sleep(seconds: float, path: str = "") -> None:
    """Note that it began, then sleep."""
    if path:
        note(path, "began")
    time.sleep(seconds)


def keep_meta() -> str:
    """Write to the job's own meta data."""
    job = get_current_job()
    assert job is not None
    job.meta["seen"] = True
    job.save_meta()
    return job.id


def on_success(job: Any, connection: Any, result: Any) -> None:
    """Note a result in the file that the job's meta data names."""
    note(job.meta["path"], f"success {result}")


def on_failure(job: Any, connection: Any, kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Note a failure in the file that the job's meta data names."""
    note(job.meta["path"], f"failure {kind.__name__}")


def _kind(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").split(":")[0]
    except FileNotFoundError:  # the one by which the folder was read
        return "gone"


def state_of_the_process() -> dict[str, Any]:
    """Tell what a job before this one may have left behind in the process."""
    return {
        "signals": {number.name: repr(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)},
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "threads": sorted(thread.name for thread in threading.enumerate() if thread.name == "reporter"),
        "output": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "folder": os.getcwd(),
        "descriptors": sorted(map(_kind, os.listdir("/proc/self/fd"))),
        "children": sorted(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
    }

"""Handlers and setups that live, leak and die; each note in $NOTES is one line of JSON."""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

from effects import task
from ghostless.jobs import Context


def note(what: str, pid: int = 0) -> None:
    """Append a line: what, in which process (this one unless given), when."""
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(json.dumps({"what": what, "pid": pid or os.getpid(), "at": time.time()}) + "\n")


note("import")


def _hoard(size: int) -> list[bytearray]:
    return [bytearray(b"x") * (1 << 20) for _ in range(size)]


HOARD: list[list[bytearray]] = []


@task("leak")
def leak(ctx: Context, size: int = 0) -> int:
    """Keep so many MiB for ever; return the process."""
    note("run")
    HOARD.append(_hoard(size))
    return os.getpid()


def _limited() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    resource.setrlimit(resource.RLIMIT_AS, (4 * used + (512 << 20),) * 2)
    _hoard(1 << 20)


@task("hold")
def hold(ctx: Context, how: Literal["child", "stubborn", "wait"]) -> int:
    """Run on beside a child, whatever is raised, or until there is a file named go; return the process."""
    if how == "child":
        child = subprocess.Popen(["sleep", "3600"])
        note("child", child.pid)
    note("hold")
    while not (how == "wait" and Path("go").exists()):
        with suppress(BaseException):
            time.sleep(0.05)
    return os.getpid()


def _killed_for_memory() -> None:
    Path(os.environ["FAKED_ROOT"], "proc/vmstat").write_text("oom_kill 1\n")
    os.kill(os.getpid(), signal.SIGKILL)


Death = Literal["kill", "segfault", "abort", "real-time signal", "exit", "sys.exit", "limit", "hoard", "counted"]


@task("die", max_losses=0, max_retries=0)
def die(ctx: Context, how: Death) -> None:
    """End in one of the ways in which a process can."""
    note("die")
    deaths = {
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "segfault": lambda: ctypes.string_at(0),
        "abort": os.abort,
        "real-time signal": lambda: os.kill(os.getpid(), 40),
        "exit": lambda: os._exit(3),
        "sys.exit": lambda: sys.exit(3),
        "limit": _limited,
        "hoard": lambda: _hoard(1 << 20),
        "counted": _killed_for_memory,
    }
    deaths[how]()


def _fine() -> str:
    note("setup fine")
    return "model"


@task("setup.fine", setup=_fine, teardown=lambda _model: note("teardown fine"))
def fine(ctx: Context) -> int:
    """Return the process."""
    return os.getpid()


def _raise() -> None:
    note("setup raise")
    raise RuntimeError("no GPU here")


def _kill() -> None:
    note("setup kill")
    os.kill(os.getpid(), signal.SIGKILL)


def _hang() -> None:
    note("setup hang")
    time.sleep(3600)


def _never(ctx: Context) -> None:
    note("handler without setup")


for name, setup, timeout in (("raise", _raise, 60), ("kill", _kill, 60), ("hang", _hang, 0.3)):
    task(f"setup.{name}", setup=setup, timeout=timeout, max_retries=0, max_losses=0, max_timeouts=0)(_never)

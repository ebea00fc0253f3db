"""What a process started, directly or not, so that nothing of a stopped handler runs on."""

import contextlib
import os
import signal
import time
from collections.abc import Collection

import psutil

Processes = set[psutil.Process]

_WALL = 0x40000000  # of Linux: children whose end sends no SIGCHLD, too

_SIGNALS = {number.value: number.name for number in signal.Signals}


def signal_name(number: int) -> str:
    """Return the name of a signal; most real-time signals have only a description."""
    return _SIGNALS.get(number) or signal.strsignal(number) or "unknown"


def offspring(pid: int) -> Processes:
    """Return the living descendants of a process, and the other members of its group, whose parents may be gone."""
    return _descendants(pid) | {
        process for process in psutil.process_iter() if process.pid != pid and _group(process.pid) == pid
    }


def end_abandoned(kept: Collection[int], patience: float = 1.0) -> bool:
    """Kill our children but for `kept` and what is in the sessions of these ids; tell whether all are gone.

    What they leave behind becomes ours when they end, so it takes more than one look.
    """
    give_up_at = time.monotonic() + patience
    while (left := _abandoned(kept)) and time.monotonic() < give_up_at:
        end(left)
    return not left


def _abandoned(kept: Collection[int]) -> Processes:
    children = psutil.Process().children()
    left = {child for child in children if child.pid not in kept and _session(child.pid) not in kept}
    return left.union(*(_descendants(child.pid) for child in left))


def _descendants(pid: int) -> Processes:
    with contextlib.suppress(psutil.NoSuchProcess):
        return set(psutil.Process(pid).children(recursive=True))
    return Processes()


def has_children() -> bool:
    """Tell quickly whether this process has any children, whichever thread started them, living or not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL)
    except ChildProcessError:
        return False
    return True


def _group(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        return os.getpgid(pid)
    return None


def _session(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid)
    return None


def end(processes: Processes, patience: float = 0.3) -> None:
    """Kill processes and wait at most `patience` seconds until none runs; reaps those that are our children."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    give_up_at = time.monotonic() + patience
    while any(map(_runs, processes)) and time.monotonic() < give_up_at:
        time.sleep(0.002)
    for process in processes:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # that one only waits for its parent, or for init
    except psutil.NoSuchProcess:
        return False

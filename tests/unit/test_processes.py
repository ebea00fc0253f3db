"""Looking at processes and threads that come and go meanwhile."""

import os
import subprocess
import threading

import psutil
from ghostless.jobs.processes import has_children, offspring


def test_threads_that_end_meanwhile_are_no_error() -> None:
    """A handler may leave threads that end while its process is looked at; that must not cost its result."""
    stop = threading.Event()

    def flicker() -> None:
        while not stop.is_set():
            for short in [threading.Thread(target=int) for _ in range(20)]:
                short.start()

    others = [threading.Thread(target=flicker) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(500):
            has_children(os.getpid())
    finally:
        stop.set()
        for other in others:
            other.join()


def test_a_process_without_and_with_children() -> None:
    """What was started is found, and nothing is when all has ended."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert has_children(os.getpid())
        assert not has_children(child.pid)
        assert child.pid in [process.pid for process in offspring(os.getpid())]
    finally:
        child.kill()
        child.wait()
    assert child.pid not in [process.pid for process in offspring(os.getpid())]


def test_a_process_that_is_gone_has_none() -> None:
    """Nobody is found below a pid that nobody has."""
    pid = next(pid for pid in range(4_000_000, 1, -1) if not psutil.pid_exists(pid))
    assert set() == offspring(pid)

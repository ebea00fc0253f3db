"""What ties a process to the one that started it: a horse to its worker, and a worker to its pool.

A worker whose pool is gone drains. Neither a horse nor its children outlive their worker by a moment: the horse's
standard input is a pipe from the worker that nobody writes to. When the worker's end closes, the kernel itself sends
SIGKILL to the whole group, also while a native loop holds the GIL. A parent-death signal would come first and end the
horse alone, and its children would live on. Where there is no such pipe, the reader thread kills the group when the
channel ends. And a worker that is frozen is gone too: then the lease runs out.
"""

import ctypes
import fcntl
import math
import os
import select
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_BACKLOG = 0.2
"""Seconds for a word that came while a native call kept all threads from running, the reader among them."""


def tie_to_worker(*, adopts: bool = True) -> None:
    """Die when the worker does. Call it first, in the main thread.

    With `adopts` descendants whose parent has ended become children of this process.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # never kill the group of whoever started this
    if adopts:
        adopt_orphans()  # nothing that a handler started is out of sight
    if sys.platform == "linux":
        _die_with_the_pipe(os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # a handler that reads its input finds the end of it
    os.close(null)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stop_with_parent(parent: int) -> None:
    """Get SIGTERM when the parent is gone, also by SIGKILL, or is gone already.

    It must have started this process in a thread that lives on: the signal comes when that thread ends.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def tell_parent(parent: int, number: signal.Signals) -> None:
    """Send a signal to the parent, unless it is gone."""
    if os.getppid() == parent:
        os.kill(parent, number)


class Lease:
    """Ends this process and its group when the worker does not speak up in time while a handler runs.

    The worker stops the handler itself when it cannot renew its lease; this is for a worker that is frozen. Times are
    moments of the monotonic clock, which both processes share: a word that waited to be read gives no time anew.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ends_at = math.inf
        self._looked_at_next = math.inf  # when the thread that watches wakes up by itself
        self._owner: object = None  # the attempt that runs
        threading.Thread(target=self._watch, name="ghostless-lease", daemon=True).start()

    def begin(self, attempt: object, until: float) -> None:
        """Let the handler of an attempt run, until then or until it is extended."""
        with self._changed:
            self._owner, self._ends_at = attempt, until
            if until < self._looked_at_next:  # else it finds out in time: to wake it for each task would cost as much
                self._changed.notify_all()

    def extend(self, attempt: object, until: float) -> None:
        """Let it go on until then, unless it has ended meanwhile."""
        with self._changed:
            if attempt is self._owner:
                self._ends_at = until
                self._changed.notify_all()

    def wait_until_it_runs(self) -> None:
        """Return when the lease is not over; one that is, and stays so, ends this process instead."""
        with self._changed:
            self._changed.wait_for(self._holds)

    def rest(self) -> None:
        """Wait for no word: no handler runs."""
        with self._changed:
            self._owner, self._ends_at = None, math.inf

    def _holds(self) -> bool:
        return time.monotonic() < self._ends_at

    def _watch(self) -> None:
        with self._changed:
            while self._changed.wait_for(self._holds, _BACKLOG):
                self._looked_at_next = self._ends_at
                left = self._ends_at - time.monotonic()
                self._changed.wait(max(0.0, left) if left < math.inf else None)
        die()


def die() -> None:
    """Kill this process and all of its group."""
    os.killpg(0, signal.SIGKILL)


if sys.platform == "linux":

    def _die_with_the_pipe(pipe: int) -> None:
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
        poll = select.poll()
        poll.register(pipe, 0)
        if any(event & select.POLLHUP for _, event in poll.poll(0)):
            die()  # the worker went before the ties were made

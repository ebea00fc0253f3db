"""What ties a horse to its worker, so that neither it nor its children outlive the worker by a moment.

Three ties, since each has a gap. The reader thread kills the group when the channel ends, but needs the GIL, which
a native loop may hold. The parent-death signal needs nothing, but ends the horse alone, and comes first: its
children would live on. So the horse's standard input is a pipe from the worker that nobody writes to; when the
worker's end closes, the kernel itself sends SIGKILL to the whole group. Other systems than Linux have the first only.
"""

import ctypes
import fcntl
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tie_to_worker() -> None:
    """Die when the worker does. Call it first, in the main thread.

    The worker must start its horse in a thread that lives on: the parent-death signal comes when that thread ends.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # never kill the group of whoever started this
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _die_with_the_pipe(os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # a handler that reads its input finds the end of it
    os.close(null)


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

"""What horses are forked from: `python -m ghostless.jobs.zygote FD MODULE...`, started by a worker with --horse fork.

It has imported the task modules and does nothing else: no setup, no handler, no thread. So a fork of it has what a
fresh interpreter has after a while. Messages on its socket are lines of words, each a packet of its own.
"""

import os
import select
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module

from .horse import live_on
from .tether import tie_to_worker

DESCRIPTORS = 4
"""What a horse gets: its end of the channel, and its standard input, output and error output."""


class Zygote:
    """Forks horses when the worker asks for one, and tells how each one ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._horses: dict[int, int] = {}  # pidfd -> pid

    def serve(self) -> list[int]:
        """Fork until the worker closes its end; returns in each horse, with its descriptors, and else with none."""
        self._control.send(b"ready")
        while True:
            ready, _, _ = select.select([self._control.fileno(), *self._horses], [], [])
            for pidfd in self._horses.keys() & set(ready):
                self._tell_end(pidfd)
            if self._control.fileno() in ready:
                order, descriptors, _, _ = socket.recv_fds(self._control, 64, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
                if not order or self._fork(descriptors):
                    return descriptors

    def _fork(self, descriptors: Iterable[int]) -> bool:
        """Tell whether this is the horse."""
        pid = os.fork()
        if pid == 0:
            for pidfd in self._horses:
                os.close(pidfd)
            self._control.close()
            return True
        with suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)  # the worker is to find the group whenever it looks
        pidfd = os.pidfd_open(pid)
        self._horses[pidfd] = pid
        socket.send_fds(self._control, [f"forked {pid}".encode()], [pidfd])
        for descriptor in descriptors:
            os.close(descriptor)
        return False

    def _tell_end(self, pidfd: int) -> None:
        pid = self._horses.pop(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._control.send(f"ended {pid} {os.waitstatus_to_exitcode(status)}".encode())


def main() -> int:
    """Be a zygote on the socket whose descriptor is the first argument. Returns the exit code, also of each horse."""
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    tie_to_worker(adopts=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _signal, _frame: None)  # the worker decides; a horse has handlers of its own
    try:
        for module in sys.argv[2:]:
            import_module(module)
    except BaseException:  # a fresh horse will meet the same, and tell it
        return 1
    descriptors = Zygote(control).serve()
    if not descriptors:
        return 0
    channel, *streams = descriptors
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    return live_on(channel)


if __name__ == "__main__":
    sys.exit(main())

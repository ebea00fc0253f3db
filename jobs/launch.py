"""How the process of a horse comes to be, and what its worker needs to have of it."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Protocol

LOADING_LIMIT = 300.0
"""Seconds that a process may take to load modules and models before that is a fault."""


class Process(Protocol):
    """What a worker needs of a horse's process: the part of subprocess.Popen that it uses."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        ...

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended. Raises TimeoutExpired after `timeout` seconds."""
        ...


Launch = Callable[[socket.socket], tuple[Process, int]]
"""Starts a horse on its end of the channel; returns its process and a pidfd of it."""


def spawn(theirs: socket.socket) -> tuple[Process, int]:
    """Start a horse as a fresh interpreter."""
    process = interpreter("horse", theirs)
    return process, os.pidfd_open(process.pid)


def interpreter(module: str, theirs: socket.socket, *arguments: str) -> "subprocess.Popen[bytes]":
    """Run a module beside this one in a session of its own, with its end of a socket pair."""
    return subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.{module}", str(theirs.fileno()), *arguments],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.PIPE,  # nobody writes to it: its end tells the process that the worker is gone
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},  # a line is seen when it is printed
        start_new_session=True,
    )

"""What handlers print: read line by line from the horse's stdout and stderr, kept with the task, and passed on."""

import array
import fcntl
import os
import select
import termios
import threading
import time
from collections.abc import Callable
from typing import IO

from .values import cut

LINE_LIMIT = 2048
"""Bytes of a line that are kept."""

_CHUNK = 64 * 1024


class Output(threading.Thread):
    """Reads one pipe of a horse to its end, so that a chatty handler never blocks on it."""

    def __init__(self, pipe: IO[bytes], on_line: Callable[[str], None]) -> None:
        super().__init__(name="output", daemon=True)
        self._pipe, self._on_line = pipe, on_line
        self._reading = threading.Lock()
        self._may_read = threading.Event()
        self._may_read.set()
        self._rest = b""

    def run(self) -> None:
        """Hand out line after line until the other end is closed by all who have it."""
        readable = select.poll()
        readable.register(self._pipe, select.POLLIN)
        while True:
            readable.poll()
            self._may_read.wait()
            with self._reading:
                chunk = os.read(self._pipe.fileno(), _CHUNK)
                self._take(chunk)
            if not chunk:
                break
        if self._rest:
            self._on_line(_text(self._rest))
        self._pipe.close()

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_line(_text(line))
        if len(self._rest) > LINE_LIMIT:  # a line without end must not grow
            self._on_line(_text(self._rest))
            self._rest = b""

    def hold(self) -> None:
        """Leave what is printed in the pipe, where the horse sees it, until `go_on`."""
        self._may_read.clear()

    def go_on(self) -> None:
        """Read again."""
        self._may_read.set()

    def catch_up(self, patience: float = 0.5) -> None:
        """Wait until what was printed so far is handed out, at most `patience` seconds."""
        give_up_at = time.monotonic() + patience
        while not self._is_idle() and time.monotonic() < give_up_at:
            time.sleep(0.001)

    def _is_idle(self) -> bool:
        with self._reading:
            return self._pipe.closed or not waiting(self._pipe.fileno())


def waiting(fd: int) -> int:
    """Return how many bytes are in a pipe; either end may ask."""
    number = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, number)
    return number[0]


def _text(line: bytes) -> str:
    return cut(line.rstrip(b"\r").decode(errors="replace"), LINE_LIMIT)

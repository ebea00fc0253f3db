"""What handlers print: read line by line from the horse's stdout and stderr, kept with the task, and passed on."""

import array
import fcntl
import os
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
        self._rest = b""

    def run(self) -> None:
        """Hand out line after line until the other end is closed by all who have it."""
        fd = self._pipe.fileno()
        while chunk := os.read(fd, 1):  # waits without the lock
            with self._reading:
                self._take(chunk + (os.read(fd, _CHUNK) if _waiting(fd) else b""))
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

    def catch_up(self, patience: float = 0.5) -> None:
        """Wait until what was printed so far is handed out, at most `patience` seconds."""
        give_up_at = time.monotonic() + patience
        while not self._is_idle() and time.monotonic() < give_up_at:
            time.sleep(0.001)

    def _is_idle(self) -> bool:
        with self._reading:
            return self._pipe.closed or not _waiting(self._pipe.fileno())


def _waiting(fd: int) -> int:
    """Return how many bytes can be read at once."""
    number = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, number)
    return number[0]


def _text(line: bytes) -> str:
    return cut(line.rstrip(b"\r").decode(errors="replace"), LINE_LIMIT)

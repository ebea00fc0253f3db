"""A pipe by which a signal handler or another thread wakes a loop that waits."""

import contextlib
import os
import select


class Wakeup:
    """Both ends of the pipe. Its calls never block but `wait`."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """Make `fd` readable; safe in a signal handler."""
        with contextlib.suppress(BlockingIOError):  # full of wake-ups already
            os.write(self._write, b"x")

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)

    def wait(self, seconds: float) -> None:
        """Return when woken, or after `seconds`."""
        select.select([self.fd], [], [], seconds)

    def close(self) -> None:
        """Close both ends."""
        os.close(self.fd)
        os.close(self._write)

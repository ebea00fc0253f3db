"""What lets a horse begin an order behind another one: permits in a pipe, which its worker can take back.

A permit is read by one of the two and by nobody else: the kernel sees to that, whatever the handler does and whichever
process stands still. So a worker that took one back knows that its order was not begun, and never will be.
"""

import os
from contextlib import suppress

_MOST = 256  # far more than there can be permits in the pipe


class Permits:
    """The worker's end: both ends of the pipe."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._left: int | None = None  # when it was closed
        self.has_strays = False
        """Whether orders whose permits were taken back may still lie before the next ones, and would use theirs."""

    def give(self, orders: int) -> None:
        """Write permits for so many orders; with none, what strayed is passed over before the next ones are given."""
        self.has_strays = False
        if orders:
            os.write(self._write, bytes(orders))

    def take_back(self) -> int:
        """Take back all that the horse has not taken; return how many: the last orders are not begun."""
        if self._left is not None:
            left, self._left = self._left, 0
            return left
        with suppress(BlockingIOError):
            taken = len(os.read(self.fd, _MOST))
            self.has_strays = taken > 0
            return taken
        return 0

    def close(self) -> None:
        """Close both ends; what no horse has taken can still be taken back."""
        self._left = self.take_back()
        os.close(self.fd)
        os.close(self._write)


class Gate:
    """The horse's end, which it got from its worker; one of an older version gives none, and no such orders."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def opens(self) -> bool:
        """Take a permit, unless the worker took it back; tell whether the order may begin."""
        if self._fd is not None:
            with suppress(BlockingIOError):
                return bool(os.read(self._fd, 1))
        return False

"""What lets a horse begin an order behind another one: permits in a pipe, which its worker can take back.

A permit is read by one of the two and by nobody else: the kernel sees to that, whatever the handler does and whichever
process stands still. So a worker that took one back knows that its order was not begun, and never will be. Each bears
the number of its order, since orders whose permits were taken back may still lie before newer ones.
"""

import os
from contextlib import suppress

_NUMBERS = 256  # a byte; far more than there can be orders whose permits are out


class Permits:
    """The worker's end: both ends of the pipe."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._given = 0
        self._left: int | None = None  # when it was closed

    def give(self, orders: int) -> list[int]:
        """Write permits for so many orders, which bear the numbers that are returned."""
        numbers = [(self._given + number) % _NUMBERS for number in range(orders)]
        self._given += orders
        os.write(self._write, bytes(numbers))
        return numbers

    def take_back(self) -> int:
        """Take back all that the horse has not taken; return how many: the last orders are not begun."""
        if self._left is not None:
            left, self._left = self._left, 0
            return left
        with suppress(BlockingIOError):
            return len(os.read(self.fd, _NUMBERS))
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
        self._number: int | None = None  # of the permit in hand, for an order to come

    def opens_for(self, number: int) -> bool:
        """Take the permit of an order, unless the worker took it back; tell whether the order may begin."""
        while self._number is None or _is_older(self._number, number):  # than this order: nothing was begun with it
            self._number = self._next()
            if self._number is None:
                return False
        if self._number != number:
            return False
        self._number = None
        return True

    def _next(self) -> int | None:
        if self._fd is not None:
            with suppress(BlockingIOError):
                return next(iter(os.read(self._fd, 1)), None)
        return None


def _is_older(number: int, other: int) -> bool:
    return 0 < (other - number) % _NUMBERS < _NUMBERS // 2

"""The file to which every task appends the time at which it ran."""

import time
from collections.abc import Sequence
from pathlib import Path

LENGTH = 20
"""Bytes of a mark: ns of the monotonic clock, and the end of the line."""

GLANCE = 0.005
"""Seconds between two looks at the file."""


class Marks:
    """The marks of the tasks that ran, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def count(self) -> int:
        """Return how many tasks ran."""
        return self._path.stat().st_size // LENGTH

    def times(self) -> Sequence[int]:
        """Return when each ran, in ns."""
        return [int(line) for line in self._path.read_text().split()]

    def reach(self, number: int, seconds: float) -> bool:
        """Wait until so many tasks ran; tell whether that was within `seconds`."""
        give_up_at = time.monotonic() + seconds
        while self.count() < number:
            if time.monotonic() > give_up_at:
                return False
            time.sleep(GLANCE)
        return True

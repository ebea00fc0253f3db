"""Whether the kernel ended a process because memory ran out: it counts those that it killed for that.

Where the counts of the own cgroup can be read they are used, since the count of the machine also rises for others.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

FRESH = 1.0
"""Seconds for which a look is not repeated: it costs more than a short task."""

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


class MemoryWatch:
    """Sees whether the kernel has killed a process for memory since the last look. `root` is the root folder."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._file = next((file for file in _counters(root) if _count(file) is not None), None)
        self._before, self._looked_at = self._now(), time.monotonic()

    def look(self) -> None:
        """Note how things are; the shorter ago this was, the less can have happened to others since."""
        if time.monotonic() > self._looked_at + FRESH:
            self._before, self._looked_at = self._now(), time.monotonic()

    def has_struck(self) -> bool:
        """Tell whether the kernel killed a process for memory since the last look."""
        return self._now() > self._before

    def _now(self) -> int:
        return (self._file and _count(self._file)) or 0


def _counters(root: Path) -> Iterator[Path]:
    """Yield where the count may stand: this process' cgroup (version 2, then 1), or else the machine's."""
    mounted = root / "sys/fs/cgroup"
    for group in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = group.split(":", 2)
        if not controllers:
            # A container sees its own cgroup where the machine has the root of all.
            yield from (mounted / part / "memory.events" for part in (path.lstrip("/"), ""))
        elif "memory" in controllers.split(","):
            yield from (mounted / "memory" / part / "memory.oom_control" for part in (path.lstrip("/"), ""))
    yield root / "proc/vmstat"


def _count(file: Path) -> int | None:
    found = _COUNT.search(_text(file))
    return int(found[1]) if found else None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""

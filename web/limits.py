"""How much one process takes on: clients, in all and of one kind, as the files allow; and calls of Redis at a time."""

import resource
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from ..jobs.errors import GhostlessError, InvalidSetting, RedisUnavailable

CONNECTIONS = 10_000
"""Connections of one process at most; idle kept-alive ones count too."""

RESERVED = 40
"""Files for everything else: listeners, pipes, the feeds, the watchdog, modules that are imported late."""

PLAIN = 64
"""Connections kept free of streams for plain requests, or a tenth when that is more; half when there are few."""

FILES_LEAST = RESERVED + 16
"""Files below which no process is worth starting."""

AT_ONCE = 16
"""Calls of one kind on their way to Redis at the same time, so that a storm of clients is no storm of connections."""

PATIENCE = 5.0
"""Seconds that a call waits for its turn, so that a hanging Redis does not pile up requests without end."""

THREADS_PLAIN = 4
"""Threads kept free of streams for plain requests, where each stream holds a thread."""


class TooManyListeners(GhostlessError):
    """One token or one address already holds its share of streams and long polls."""

    def __init__(self, what: str, most: int) -> None:
        self.what, self.most = what, most
        super().__init__(f"{most} streams and long polls are open for this {what}; close one, or watch more with each")


class Share:
    """Counts what each of a kind holds, a token or an address, and gives nobody more than `most`."""

    def __init__(self, what: str, most: int) -> None:
        self._what, self._most = what, most
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def taken(self, name: str) -> "Taken":
        """Hold one while the block runs. Raises TooManyListeners."""
        return Taken(self, name)

    def take(self, name: str) -> None:
        """Hold one more. Raises TooManyListeners."""
        with self._lock:
            if self._held[name] >= self._most:
                raise TooManyListeners(self._what, self._most)
            self._held[name] += 1

    def give_back(self, name: str) -> None:
        """Hold one less."""
        with self._lock:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]


class Taken:
    """One part of a share while a block runs; no generator, as each stream has one, and holds it for long."""

    __slots__ = ("_name", "_share")

    def __init__(self, share: Share, name: str) -> None:
        self._share, self._name = share, name

    def __enter__(self) -> None:
        self._share.take(self._name)

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Hold it no more."""
        self._share.give_back(self._name)


class Gate:
    """Lets `AT_ONCE` calls of one kind through to Redis at a time."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._free = threading.BoundedSemaphore(AT_ONCE)

    @contextmanager
    def turn(self) -> Generator[None]:
        """Wait for a turn, and have it while the block runs. Raises RedisUnavailable when none comes in time."""
        if not self._free.acquire(timeout=PATIENCE):
            raise RedisUnavailable(TimeoutError(f"too many {self._what} wait for it"))
        try:
            yield
        finally:
            self._free.release()


@dataclass(frozen=True, slots=True)
class Limits:
    """What one process takes on; who comes when it is full is told to come back in a moment."""

    connections: int
    subscribers: int

    @classmethod
    def of(cls, files: int) -> "Limits":
        """Return what fits into this many open files."""
        # Every request may need a connection to Redis beside its own, and Redis' pool keeps what it once opened.
        return cls.of_connections(max(2, min(CONNECTIONS, (files - RESERVED) // 2)))

    @classmethod
    def of_connections(cls, connections: int) -> "Limits":
        """Return what so many connections are good for."""
        plain = max(connections // 10, min(connections // 2, PLAIN))
        return cls(connections, connections - plain)

    def with_threads(self, threads: int) -> "Limits":
        """Return what fits when so many threads serve, of which each stream holds one. Raises InvalidSetting."""
        if threads <= THREADS_PLAIN:
            raise InvalidSetting("threads", f"more than {THREADS_PLAIN}, which are for plain requests", str(threads))
        return replace(self, subscribers=min(self.subscribers, threads - THREADS_PLAIN))

    @classmethod
    def here(cls) -> "Limits":
        """Return what fits into this process as it is."""
        return cls.of(_files())


def raise_file_limit() -> Limits:
    """Let this process and its children open as many files as the system allows, and return what that is good for.

    Raises InvalidSetting when it is not enough to serve anybody.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS says "unlimited" and does not mean it; what there is must do
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if (files := _files()) < FILES_LEAST:
        raise InvalidSetting("open files (ulimit -n)", f"at least {FILES_LEAST}", str(files))
    return Limits.of(files)


def _files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return RESERVED + 2 * CONNECTIONS if soft == resource.RLIM_INFINITY else soft

"""What one client listens to, and what waits for it: bounded, whatever the client does."""

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from .cursors import Cursor
from .frames import Live, Moment

PENDING_LIMIT = 256
"""Moves that wait for one client; at one more they are all dropped, and it reads them from Redis later."""

LOG_LIMIT = 100
"""Log lines that wait for one client; the oldest are dropped."""

TASKS_LIMIT = 50
"""Tasks that one stream may name; beyond that there are owner, type and queue."""


class Subject(Protocol):
    """Something that happened to a task."""

    @property
    def task(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def owner(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Watch:
    """Which tasks a client wants to hear of; what is not given does not restrict."""

    tasks: frozenset[str] = frozenset()
    owner: str | None = None
    type: str | None = None
    queue: str | None = None
    live: bool = True  # also progress and log lines

    def accepts(self, subject: Subject) -> bool:
        """Tell whether this is one of the tasks."""
        return self.fits(subject.task, subject.owner, subject.type, subject.queue)

    def fits(self, task: str, owner: str, type: str, queue: str) -> bool:
        """Tell whether a task with this id, owner ("" for none), type and queue is one of them."""
        if self.tasks and task not in self.tasks:
            return False
        wanted = ((self.owner, owner), (self.type, type), (self.queue, queue))
        return all(value is None or value == actual for value, actual in wanted)

    def places(self) -> list[tuple[str, str]]:
        """Return where to look this watch up: one kind of place, the narrowest, so that no event finds it twice."""
        if self.tasks:
            return [("task", task) for task in self.tasks]
        for kind, value in (("owner", self.owner), ("queue", self.queue), ("type", self.type)):
            if value is not None:
                return [(kind, value)]
        return [("all", "")]


def places_of(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield every place in which a watch for this may stand."""
    yield "task", subject.task
    yield "owner", subject.owner
    yield "queue", subject.queue
    yield "type", subject.type
    yield "all", ""


@dataclass(frozen=True, slots=True)
class Reset:
    """What was sent so far may be wrong now; what follows starts behind `cursor`."""

    reason: str
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Batch:
    """What came in since the last look. Every move up to `position` is in it, unless some were `lost`."""

    position: Cursor
    moments: tuple[Moment, ...] = ()
    live: tuple[Live, ...] = ()
    lost: bool = False
    reset: Reset | None = None  # comes before the moves
    closed: bool = False


class Subscription:
    """One client's inbox. The hub calls it under its own lock; `signal` is set when there is something to take."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.signal = threading.Event()
        self.closed = False
        self._lost = False
        self._reset: Reset | None = None
        self._moments: deque[Moment] = deque()
        self._progress: dict[str, Live] = {}
        self._lines: deque[Live] = deque(maxlen=LOG_LIMIT)

    def push(self, moment: Moment) -> None:
        """Keep a move, or note that some were lost; it is for the reader to catch up then."""
        if not self._lost:
            self._moments.append(moment)
            if len(self._moments) > PENDING_LIMIT:
                self.drop()
        self.signal.set()

    def drop(self) -> None:
        """Forget the moves that wait, and note that some were lost."""
        self._moments.clear()
        self._lost = True
        self.signal.set()

    def tell(self, live: Live) -> None:
        """Keep a log line, or a task's newest progress instead of its older one."""
        if live.kind == "progress":
            self._progress[live.task] = live
        else:
            self._lines.append(live)
        if len(self._progress) > PENDING_LIMIT:
            self._progress.clear()
        self.signal.set()

    def reset(self, reset: Reset) -> None:
        """Forget what waits: it belongs to a history that is no more."""
        self._moments.clear()
        self._lost, self._reset = False, reset
        self.signal.set()

    def close(self) -> None:
        """Tell the client to go away and come back."""
        self.closed = True
        self.signal.set()

    def take(self, position: Cursor) -> Batch:
        """Return what waits and forget it."""
        self.signal.clear()
        live = (*self._progress.values(), *self._lines)
        batch = Batch(position, tuple(self._moments), live, self._lost, self._reset, self.closed)
        self._moments.clear()
        self._progress.clear()
        self._lines.clear()
        self._lost, self._reset = False, None
        return batch

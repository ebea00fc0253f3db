"""What waits for clients: kept once for all who listen to the same, and bounded, whatever one of them does.

A room keeps its moves until all its members took them, but `PENDING_LIMIT` at most: who is further behind lost some,
and reads them from Redis. The hub calls all of this under its own lock, but for `Subscription.wait`.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from .cursors import Cursor
from .frames import NO_MOVES, Live, Moment, Moves
from .watch import Watch

PENDING_LIMIT = 256
"""Moves that wait in a room; at one more the oldest is dropped."""

LOG_LIMIT = 100
"""Log lines that wait for one client; the oldest are dropped."""

NOTHING_TAKEN = (0, NO_MOVES)
"""What was taken last of a room's moves when that is none."""


class Reset(NamedTuple):
    """What was sent so far may be wrong now; what follows starts behind `cursor`."""

    reason: str
    cursor: Cursor


class Batch(NamedTuple):
    """What came in since the last look. Every move up to `position` is in it, unless some were `lost`."""

    position: Cursor
    moves: Moves = NO_MOVES
    live: tuple[Live, ...] = ()
    lost: bool = False
    reset: Reset | None = None  # comes before the moves
    closed: bool = False


class Room:
    """All who listen to the same, and the moves that wait for them."""

    __slots__ = ("_behind", "_moments", "_number", "_taken", "members", "watch")

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.members: set[Subscription] = set()
        self._moments: list[Moment] = []  # the newest
        self._number = 0  # of all that came, those that are lost too
        self._behind = 0  # members who did not take them all
        self._taken = NOTHING_TAKEN  # how many were taken last, and which

    def enter(self) -> "Subscription":
        """Return the inbox of a new member, for whom nothing waits."""
        inbox = Subscription(self, self._number)
        self.members.add(inbox)
        return inbox

    def leave(self, inbox: "Subscription") -> None:
        """Forget a member; twice does no harm."""
        self.take(inbox)
        self.members.discard(inbox)

    def push(self, moment: Moment) -> None:
        """Keep a move for everybody."""
        self._moments.append(moment)
        del self._moments[:-PENDING_LIMIT]
        self._note_one()

    def drop(self) -> None:
        """Forget the moves that wait, and note that everybody lost some."""
        self._moments.clear()
        self._note_one()

    def reset(self, reset: Reset) -> None:
        """Forget what waits: it belongs to a history that is no more."""
        for inbox in self.members:
            self.take(inbox)
            inbox.reset(reset)

    def tell(self, live: Live) -> None:
        """Keep a progress report or a log line for everybody."""
        for inbox in self.members:
            inbox.tell(live)

    def take(self, inbox: "Subscription") -> Moves | None:
        """Return the moves that wait for a member, who has them then; None when some were lost.

        For who left nothing waits.
        """
        many = self._number - inbox.number if inbox in self.members else 0
        if not many:
            return NO_MOVES
        moves = self._newest(many) if many <= len(self._moments) else None
        inbox.number = self._number
        self._behind -= 1
        if not self._behind:
            self._moments, self._taken = [], NOTHING_TAKEN
        return moves

    def _note_one(self) -> None:
        self._number += 1
        self._taken = NOTHING_TAKEN
        if self._behind < len(self.members):  # else all were called already
            self._behind = len(self.members)
            for inbox in self.members:
                inbox.call()

    def _newest(self, many: int) -> Moves:
        """Return so many moves; the same object for all who take the same, so that they are joined once."""
        if self._taken[0] != many:
            self._taken = (many, Moves(self._moments[-many:]))
        return self._taken[1]


class Subscription:
    """One client's inbox: how far it is in its room, and what waits for it alone.

    `signal` is set when there is something to take.
    """

    __slots__ = (
        "_interval",
        "_lines",
        "_look",
        "_progress",
        "_reset",
        "closed",
        "look_at",
        "number",
        "room",
        "signal",
        "wakes_at",
    )

    def __init__(self, room: Room, number: int) -> None:
        self.room, self.number = room, number
        self.closed = False
        self.wakes_at = self.look_at = self._interval = math.inf
        self._look: Callable[[], object] = lambda: None
        self.signal = threading.Event()
        self._reset: Reset | None = None
        self._progress: dict[str, Live] = {}
        self._lines: list[Live] = []

    def call(self) -> None:
        """Wake who waits for this."""
        if not self.signal.is_set():
            self.signal.set()

    def wait(self, seconds: float) -> None:
        """Wait until there is something to take, or the hub's clock says that it was long enough."""
        if seconds > 0 and not self.closed:
            self.wakes_at = time.monotonic() + seconds
            self.signal.wait()  # without a time-out: a timer for each client costs more than what it waits for

    def look_after(self, seconds: float, look: Callable[[], object]) -> None:
        """Have the hub's clock call this after each such time: whoever takes from here may be held up by his client.

        The hub waits for it, so it must be quick.
        """
        self._interval, self._look = seconds, look
        self.look_at = time.monotonic() + seconds

    def look(self, now: float) -> None:
        """Take a look at the client."""
        self.look_at = now + self._interval
        self._look()

    def tell(self, live: Live) -> None:
        """Keep a log line, or a task's newest progress instead of its older one."""
        if live.kind == "progress":
            self._progress[live.task] = live
            if len(self._progress) > PENDING_LIMIT:
                self._progress.clear()
        else:
            self._lines.append(live)
            del self._lines[:-LOG_LIMIT]
        self.call()

    def reset(self, reset: Reset) -> None:
        """Keep the news that the history is another one."""
        self._reset = reset
        self.call()

    def close(self) -> None:
        """Tell the client to go away and come back."""
        self.closed = True
        self.call()

    def take(self, position: Cursor) -> Batch:
        """Return what waits and forget it."""
        self.signal.clear()
        moves, live, reset = self.room.take(self), (), self._reset
        if self._progress or self._lines:
            live = (*self._progress.values(), *self._lines)
            self._progress, self._lines = {}, []
        self._reset = None
        return Batch(position, moves or NO_MOVES, live, moves is None, reset, self.closed)

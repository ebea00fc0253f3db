"""The one place of a process that follows the history, and hands what happens to whoever listens.

It knows threads only; under gevent's patches they are greenlets. However many clients listen, Redis sees two
connections: one that waits for entries of the history, one that hears progress and log lines.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from ..jobs.errors import GhostlessError
from .cursors import ORIGIN, Cursor, EntryId
from .feeds import HistoryFeed, LiveFeed
from .frames import NO_MOVES, Live, Moment
from .past import Past
from .ring import Part, Ring
from .rooms import Batch, Reset, Room, Subscription
from .watch import Subject, Watch, places_of

SILENCE = 90.0
"""Seconds after which a thread counts as dead; with all time-outs and retries against a mute Redis it takes 45."""

DRAIN_SPREAD = 0.8
"""Share of a drain over which the ends are spread; in the rest the stop is noticed, and the last clients are told."""

DRAIN_PAUSE = 0.1
"""Seconds between the ends of two subscriptions at most, so that few of them do not make a stop long."""

TICK = 0.25
"""Seconds by which a wait without news may end late: one clock looks after all of them."""

START_PATIENCE = 5.0
"""Seconds that a listener waits for another one to start the feeds."""

log = logging.getLogger(__name__)


class HubClosed(GhostlessError):
    """The process is stopping: come back in a moment, to the next one."""

    def __init__(self) -> None:
        super().__init__("this server is stopping")


class HubFull(GhostlessError):
    """The process has as many listeners as it can serve: come back in a moment."""

    def __init__(self) -> None:
        super().__init__("no further listener can be served right now")


class Hub:
    """Follows one database from its first subscriber on. Safe to use from several threads.

    It also hands out the places of the process: `limit` clients at most wait at the same time, whatever for.
    """

    def __init__(self, past: Past, limit: int) -> None:
        self._past = past
        self.limit = limit
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._stop = threading.Event()
        self._draining = False
        self._threads: list[threading.Thread] = []
        self._beats: dict[str, float] = {}
        self._inboxes: set[Subscription] = set()  # of all rooms
        self._rooms: dict[Watch, Room] = {}
        self._places: dict[tuple[str, str], set[Room]] = {}
        self._places_held = 0
        self._position = Cursor("", ORIGIN)
        self._ring = Ring()

    # For those who listen

    def subscribe(self, watch: Watch) -> Subscription:
        """Return an inbox for everything that happens from now on. Raises HubClosed, RedisUnavailable."""
        self._start()
        with self._lock:
            if not self.alive or self._draining:
                raise HubClosed
            inbox = (self._rooms.get(watch) or self._add_room(watch)).enter()
            self._inboxes.add(inbox)
            return inbox

    def _add_room(self, watch: Watch) -> Room:
        self._rooms[watch] = room = Room(watch)
        for place in watch.places():
            self._places.setdefault(place, set()).add(room)
        return room

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget an inbox; once is enough, twice does no harm."""
        with self._lock:
            room = subscription.room
            room.leave(subscription)
            self._inboxes.discard(subscription)
            if not room.members and self._rooms.get(room.watch) is room:
                self._remove_room(room)

    def _remove_room(self, room: Room) -> None:
        del self._rooms[room.watch]
        for place in room.watch.places():
            self._places[place].discard(room)
            if not self._places[place]:
                del self._places[place]

    def take_place(self) -> None:
        """Hold a place, for a stream, a long poll or a worker. Raises HubFull."""
        with self._lock:
            if self._places_held >= self.limit:
                raise HubFull
            self._places_held += 1

    def leave_place(self) -> None:
        """Let another one have the place."""
        with self._lock:
            self._places_held -= 1

    @contextmanager
    def subscribed(self, watch: Watch) -> Generator[Subscription]:
        """Listen while the block runs."""
        subscription = self.subscribe(watch)
        try:
            yield subscription
        finally:
            self.unsubscribe(subscription)

    def take(self, subscription: Subscription, seconds: float) -> Batch:
        """Return what came in, waiting at most this long for something, and `TICK` more."""
        subscription.wait(seconds)
        with self._lock:
            return subscription.take(self._position)

    def replay(self, watch: Watch, after: Cursor) -> Part | None:
        """Return from memory what a watch accepts of the next moves; None when memory does not know that place.

        They are `PENDING_LIMIT` at most: ask again from the place that they reach, until that is the place itself.
        """
        with self._lock:
            if after.epoch != self._position.epoch:
                return None
            if after.at == self._position.at:
                return Part(NO_MOVES, after.at)
            return self._ring.after(watch, after.at)

    @property
    def position(self) -> Cursor:
        """Up to where the history was read."""
        return self._position

    @property
    def started(self) -> bool:
        """Whether anybody ever listened in this process."""
        return bool(self._threads)

    @property
    def subscribers(self) -> int:
        """How many inboxes there are now."""
        return len(self._inboxes)

    @property
    def places_held(self) -> int:
        """How many clients wait now."""
        return self._places_held

    @property
    def age(self) -> float | None:
        """Seconds since the slowest of its threads came round; None as long as nobody ever listened."""
        return time.monotonic() - min(self._beats.values()) if self._beats else None

    @property
    def alive(self) -> bool:
        """Whether its threads still come round; true as long as nobody ever listened."""
        now = time.monotonic()
        fresh = all(now - beat < SILENCE for beat in list(self._beats.values()))
        return not self._stop.is_set() and fresh and all(thread.is_alive() for thread in self._threads)

    # Life

    def drain(self, seconds: float) -> None:
        """Close, but end one subscription after the other, so that not all clients come back at once.

        Who comes meanwhile is refused. Returns when all is closed: so early that in as many seconds the last are told.
        """
        with self._lock:
            self._draining = True
            waiting = list(self._inboxes)
        pause = min(DRAIN_PAUSE, DRAIN_SPREAD * seconds / max(1, len(waiting)))
        began = time.monotonic()
        for number, subscription in enumerate(waiting, 1):
            subscription.close()
            # By the clock, not by so many waits: each wakes late, and thousands of them would last for longer.
            if self._stop.wait(max(0.0, began + number * pause - time.monotonic())):
                return
        self.close()

    def close(self) -> None:
        """End every subscription and all threads; what comes later is refused. Does not wait."""
        with self._lock:
            self._stop.set()
            self._close_all()

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended, at most this long for each."""
        for thread in self._threads:
            thread.join(seconds)

    def _start(self) -> None:
        if self._threads:
            return
        # While Redis does not answer, many would wait here, each for its own time-out one after the other.
        if not self._starting.acquire(timeout=START_PATIENCE):
            raise HubClosed
        try:
            if not self._threads and not self._stop.is_set():
                self._start_feeds()
        finally:
            self._starting.release()

    def _start_feeds(self) -> None:
        self._go_on_from(self._past.newest())
        redis, keys = self._past.redis, self._past.keys
        history, live = HistoryFeed(redis, keys, self), LiveFeed(redis, keys, self)
        feeds = {"history": history.run, "live": live.run, "clock": self._keep_time}
        try:
            threads = [self._thread(name, run) for name, run in feeds.items()]
        except RuntimeError as error:  # the process has no thread left; those that run must not do so beside others
            log.critical("the hub cannot start: %s", error)
            self.close()
            raise HubClosed from error
        # What is said from now on is heard; a hub that does not hear it does all else.
        live.listens.wait(START_PATIENCE)
        self._threads = threads

    def _thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            finally:
                # Ended by a fault of ours: let nobody wait for what will not come.
                if not self._stop.is_set():
                    log.critical("the hub's %s thread ended", name)
                    self.close()

        self.beat(name)
        thread = threading.Thread(target=guarded, name=f"hub-{name}", daemon=True)
        thread.start()
        return thread

    def _keep_time(self) -> None:
        """Wake who waited for long enough, and have a look taken at whether the clients are still there."""
        while self.paused(TICK):
            self.beat("clock")
            now = time.monotonic()
            with self._lock:
                for subscription in self._inboxes:
                    if subscription.wakes_at <= now:
                        subscription.call()
                    if subscription.look_at <= now:
                        subscription.look(now)

    # For the feeds

    def beat(self, name: str) -> None:
        """Note that a thread came round."""
        self._beats[name] = time.monotonic()

    def paused(self, seconds: float) -> bool:
        """Wait; tell whether the hub still runs afterwards."""
        return not self._stop.wait(seconds)

    def publish(self, moments: Sequence[Moment], position: EntryId, *, complete: bool = True) -> None:
        """Hand out moves, and note up to where the history is read.

        Unless they are `complete`, others may have been removed before they were read: then each listener finds out
        from Redis what it missed.
        """
        with self._lock:
            for moment in moments:
                self._ring.append(moment)
                for room in self._interested(moment.entry):
                    room.push(moment)
            self._position = Cursor(self._position.epoch, position)
            if not complete:
                self._ring.clear(position)
                for room in self._rooms.values():
                    room.drop()

    def tell(self, live: Live) -> None:
        """Hand out a progress report or a log line."""
        with self._lock:
            for room in self._interested(live):
                if room.watch.live:
                    room.tell(live)

    def restart(self, reason: str) -> None:
        """Go on from the end of another history than the one followed so far. Raises RedisUnavailable."""
        position = self._past.newest()
        log.warning("the history is another one (%s); every stream is told", reason)
        self._go_on_from(position, reason)

    def _go_on_from(self, position: Cursor, reason: str = "") -> None:
        with self._lock:
            self._position = position
            self._ring.clear(position.at)
            for room in self._rooms.values() if reason else ():
                room.reset(Reset(reason, position))

    def _interested(self, subject: Subject) -> list[Room]:
        rooms = (room for place in places_of(subject) for room in self._places.get(place, ()))
        return [room for room in rooms if room.watch.accepts(subject)]

    def _close_all(self) -> None:
        for subscription in self._inboxes:
            subscription.close()

"""Long polls for a task: however many workers wait, one thread listens, and each new task wakes one of them.

Waiting costs no connection to Redis. Hints (`wake:{queue}`) are not popped, since they are for workers that have one.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

from ..jobs.errors import GhostlessError
from ..jobs.messages import Claim, Claimed, NothingToClaim
from ..jobs.remote import RemoteWorkers
from ..jobs.store import Store
from ..statemachine import State
from .hub import Hub, HubClosed
from .limits import Gate
from .rooms import Subscription
from .watch import Watch

LOOK = 2.0
"""Seconds between two claims by which the longest waiting worker looks for what no event told of: a queue that was
resumed, types that were parked, or a move that went by unheard."""

ASKED_AGAIN = 50
"""Claims in a row in which a queue's bad tickets are cleared away before the worker waits like others."""

log = logging.getLogger(__name__)


class Waiter:
    """One worker that waits for a task of these types from one queue."""

    def __init__(self, queue: str, types: tuple[str, ...]) -> None:
        self.queue, self.types = queue, types
        self.signal = threading.Event()
        self.closed = self.is_void = False
        self._is_called = False

    def wait(self, seconds: float) -> bool:
        """Wait to be called; tell whether that came in time."""
        self._is_called = self.signal.wait(max(0.0, seconds))
        if self._is_called:  # a call that comes only now is not lost: it is passed on
            self.signal.clear()
        return self._is_called

    def found_nothing(self) -> None:
        """Note that there was nothing to be called for."""
        self._is_called = False

    @property
    def owes_a_call(self) -> bool:
        """Whether it was called and did not look, or took one task where there may be more."""
        return self._is_called or self.signal.is_set()


class WaitingRoom:
    """The workers that wait, in the order in which they came, and the thread that calls them while there are any."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lock = threading.Lock()
        self._lines: dict[str, list[Waiter]] = {}  # by queue
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    @contextmanager
    def waiting(self, queue: str, types: tuple[str, ...]) -> Generator[Waiter]:
        """Stand in line while the block runs."""
        waiter = Waiter(queue, types)
        with self._lock:
            self._lines.setdefault(queue, []).append(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="claim-calls", daemon=True)
                self._thread.start()
        try:
            yield waiter
        finally:
            self._leave(waiter)

    def _leave(self, waiter: Waiter) -> None:
        with self._lock:
            self._lines[waiter.queue].remove(waiter)
            if not self._lines[waiter.queue]:
                del self._lines[waiter.queue]
        if waiter.owes_a_call:
            self.call(waiter.queue)

    def call(self, queue: str, task_type: str | None = None) -> None:
        """Call the first in line for this queue who was not called yet, and serves the type when one is named."""
        with self._lock:
            for waiter in self._lines.get(queue, ()):
                if not waiter.signal.is_set() and (task_type is None or task_type in waiter.types):
                    waiter.signal.set()
                    return

    def _call_one_of_each(self) -> None:
        with self._lock:
            first = {(waiter.queue, waiter.types): waiter for waiter in reversed(self._all())}
            for waiter in first.values():
                waiter.signal.set()

    def _all(self) -> list[Waiter]:
        return [waiter for line in self._lines.values() for waiter in line]

    def _run(self) -> None:
        try:
            while self._is_needed():
                try:
                    with self._hub.subscribed(Watch(live=False)) as inbox:
                        self._follow(inbox)
                except GhostlessError as error:
                    if not self._hub.alive:
                        return
                    log.warning("nobody hears of new tasks for those who wait for them: %s", error)
                    time.sleep(LOOK)
                    self._call_one_of_each()
        finally:
            self._send_away()

    def _follow(self, inbox: Subscription) -> None:
        """Call waiters as tasks come, until none is left. Raises HubClosed."""
        look_at = 0.0  # at once: something may have come since they looked
        while self._is_needed():
            if time.monotonic() >= look_at:
                self._call_one_of_each()
                look_at = time.monotonic() + LOOK
            batch = self._hub.take(inbox, look_at - time.monotonic())
            if batch.closed:
                raise HubClosed
            for moment in batch.moves.moments:
                if moment.entry.to_state == State.PENDING:
                    self.call(moment.entry.queue, moment.entry.type)
            if batch.reset:
                self._void()
            elif batch.lost:
                self._call_one_of_each()

    def _void(self) -> None:
        """Redis came back older, or empty: let all come again, since it may know none of their types any more."""
        with self._lock:
            for waiter in self._all():
                waiter.is_void = True
                waiter.signal.set()

    def _is_needed(self) -> bool:
        with self._lock:
            if not self._lines:
                self._thread = None
            return self._thread is threading.current_thread()

    def _send_away(self) -> None:
        """Nobody calls any more: whoever is still there is to come back later."""
        with self._lock:
            if self._thread is not threading.current_thread():
                return  # it ended for want of waiters, and another one may serve new ones by now
            self._thread = None
            for waiter in self._all():
                waiter.closed = True
                waiter.signal.set()


class Claiming:
    """Hands tasks to workers over HTTP. Safe to use from several threads."""

    def __init__(self, store: Store, hub: Hub, workers: RemoteWorkers) -> None:
        self._store, self._workers = store, workers
        self.room = WaitingRoom(hub)
        self._gate = Gate("claims")

    def take(
        self, claim: Claim, seconds: float, place: AbstractContextManager[None], is_there: Callable[[], bool]
    ) -> Claimed | None:
        """Return the next task of the claim's queue, waiting at most this long for one; None when there was none.

        The place is held while it waits. Nothing is claimed any more for a worker that is not there. Raises what
        these two do, WorkerNameTaken, TypeNotPublished, HubClosed when it cannot wait here, RedisUnavailable,
        CorruptRecord.
        """
        with self._gate.turn():
            self._workers.listens(claim.worker_id, claim.queues[0], claim.types, seconds)
        claimed = self._ask(claim)
        if claimed or not seconds:
            return claimed
        with place, self.room.waiting(claim.queues[0], claim.types) as waiter:
            return self._wait(claim, waiter, time.monotonic() + seconds, is_there)

    def _wait(self, claim: Claim, waiter: Waiter, deadline: float, is_there: Callable[[], bool]) -> Claimed | None:
        # It stands in line by now: what comes after this look calls it.
        while not (claimed := self._ask(claim)):
            waiter.found_nothing()
            is_called = waiter.wait(deadline - time.monotonic())
            if not is_there() or not is_called:
                return None
            if waiter.closed:
                raise HubClosed
            if waiter.is_void:
                self._workers.forget(claim.worker_id, waiter.queue)
                return None
        return claimed

    def _ask(self, claim: Claim) -> Claimed | None:
        with self._gate.turn():
            for _ in range(ASKED_AGAIN):
                reply = self._store.claim(claim)
                if isinstance(reply, Claimed):
                    return reply
                if not (isinstance(reply, NothingToClaim) and reply.why in ("more", "damaged")):
                    break
        return None

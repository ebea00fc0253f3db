"""The deliveries of one subscription: its entries one at a time, in the order of the history."""

import logging
import math
import random
import threading
import time
from dataclasses import dataclass

from ..statemachine import Policy
from ..statemachine.budget import backoff
from .connection import BLOCK
from .consumer import Consumer, Handed
from .errors import GhostlessError
from .handler_process import HandlerProcess, Outcome
from .model import Entry
from .pauses import Pauses
from .settings import Settings

log = logging.getLogger("ghostless.listener")

HELD = 100
"""Entries that a lane holds at most; while so many wait to be tried again, it takes no further ones."""

STARTING = 60.0
"""Seconds that the process of a handler may take to import it."""

LOOK = 0.5
"""Seconds between two looks at whether the listener is to stop, while a handler runs."""

LONGEST_PAUSE = 5.0
"""Seconds between two tries while Redis does not answer."""

TIDY = 600.0
"""Seconds between two looks at consumers that are gone."""

PATIENCE = Policy()
"""The pauses before further tries are those of a task with the default policy."""


@dataclass(slots=True)
class Held:
    """An entry that waits for its handler. `due` is a moment of the monotonic clock."""

    entry: Entry
    begun: int
    due: float = 0.0
    error: str = "the listener that called its handler died each time"


class Lane:
    """Delivers what one subscription wants, until told to stop, whatever happens."""

    def __init__(
        self, consumer: Consumer, process: HandlerProcess, settings: Settings, stop: threading.Event, start: str
    ) -> None:
        """`start` is the id of the entry after which the group reads on."""
        self._consumer, self._process, self._subscription = consumer, process, process.subscription
        self._settings, self._stop = settings, stop
        self._heard = start  # all up to this entry is done or held
        self._held: dict[str, Held] = {}
        self._done: set[str] = set()
        self._renewed_at = self._tidied_at = -math.inf
        self._give_up_at = math.inf

    # Life

    def run(self) -> None:
        """Deliver until told to stop; a Redis that does not answer is waited for."""
        pauses = Pauses(0.2, LONGEST_PAUSE)
        try:
            while not self._stop.is_set():
                try:
                    self.step()
                    pauses.reset()
                except GhostlessError as error:
                    log.error("%s: %s", self._consumer.group, error)
                    self._stop.wait(pauses.next())
                except Exception:
                    log.exception("%s met an error it does not know, and goes on", self._consumer.group)
                    self._stop.wait(LONGEST_PAUSE)
        finally:
            self._process.kill()
        self._leave()

    def _leave(self) -> None:
        try:
            self._acknowledge()
            self._consumer.give_back(list(self._held))
        except GhostlessError as error:  # others take it over when it was not renewed for a lease
            log.warning("%s: not given back: %s", self._consumer.group, error)

    def step(self) -> None:
        """Handle the next entry, or wait a moment for one. Raises GhostlessError when Redis does not answer."""
        self._acknowledge()
        self._renew()
        self._tidy()
        is_all = self._listen()
        held = self._next()
        if held:
            self._deliver(held)
        elif is_all:
            self._consumer.wait(self._heard, self._pause())
        elif len(self._held) >= HELD:
            self._stop.wait(self._pause())

    # Taking

    def _listen(self) -> bool:
        """Take what there is room for; tell whether there is nothing more."""
        room = HELD - len(self._held)
        if not room:
            return False
        asked_at = time.monotonic()
        heard = self._consumer.listen(self._subscription.wanted, room, self._subscription.needed)
        if heard is None:
            self._begin_anew()
            return False
        for handed in heard.handed:
            self._hold(handed)
        if len(self._held) == len(heard.handed):
            self._renewed_at = asked_at
        places = [self._heard, *(handed.entry.id for handed in heard.handed)]
        self._heard = heard.end if heard.is_all else max(places, key=_place)
        return heard.is_all

    def _hold(self, handed: Handed) -> None:
        if handed.entry.id not in self._held:
            self._held[handed.entry.id] = Held(handed.entry, handed.begun)
            self._held = dict(sorted(self._held.items(), key=lambda item: _place(item[0])))

    def _begin_anew(self) -> None:
        # Redis lost the group. It goes on where the listener was, since all that comes has higher ids. Another one may
        # have made it already, even behind what is held here, which then stays held.
        start = self._done_up_to()
        if self._consumer.subscribe(start):
            log.info("%s was lost, and begins anew after entry %s", self._consumer.group, start)
            self._let_go()

    def _done_up_to(self) -> str:
        """Return the id right below the oldest entry that is not done."""
        return _below(next(iter(self._held))) if self._held else self._heard

    def _let_go(self) -> None:
        """Hold nothing any more: it is handed out again, also by a group that is made anew."""
        self._heard = self._done_up_to()
        self._held.clear()

    def _next(self) -> Held | None:
        """Return the first entry that may be tried now: none overtakes an earlier one of its task."""
        now = time.monotonic()
        return next((held for held in self._firsts() if held.due <= now), None)

    def _firsts(self) -> list[Held]:
        """Return the first entry of each task, in order."""
        firsts: dict[str, Held] = {}
        for held in self._held.values():
            firsts.setdefault(held.entry.task, held)
        return list(firsts.values())

    def _pause(self) -> float:
        """Return the seconds until something is due: an entry, or to renew what is held."""
        if not self._held:
            return BLOCK
        due = min(held.due for held in self._firsts())
        return min(BLOCK, self._settings.beat, max(0.0, due - time.monotonic()))

    # Keeping

    def _renew(self) -> None:
        """Keep what is held; what could not be renewed for most of a lease may be another listener's by now."""
        now = time.monotonic()
        silent = now - self._renewed_at
        if silent > 0.8 * self._settings.lease:
            self._let_go()
        if silent >= self._settings.beat:
            self._consumer.renew(list(self._held))
            self._renewed_at = now

    def _acknowledge(self) -> None:
        if self._done:
            self._consumer.done(self._done)
            self._done.clear()

    def _tidy(self) -> None:
        now = time.monotonic()
        if now - self._tidied_at >= TIDY:
            self._tidied_at = now
            self._consumer.dismiss(round(10_000 * max(self._settings.lease, BLOCK)))

    # Handling

    def _deliver(self, held: Held) -> None:
        if held.begun > self._subscription.retries:
            self._park(held)
            return
        self._consumer.begin(held.entry.id, held.begun + 1)
        held.begun += 1
        outcome = self._call(held.entry)
        if outcome is None:
            self._consumer.begin(held.entry.id, held.begun - 1)  # stopped by us, which is no failure of its own
        elif outcome.is_done:
            self._done.add(held.entry.id)
            self._held.pop(held.entry.id, None)
        else:
            self._failed(held, outcome)

    def _failed(self, held: Held, outcome: Outcome) -> None:
        held.error, wait = outcome.error or outcome.message, self._put_off(held, outcome.asked)
        is_last = held.begun > self._subscription.retries
        log.warning(
            "%s: %s of task %s, entry %s, try %d of %d: %s; %s",
            *(self._consumer.group, held.entry.event, held.entry.task, held.entry.id),
            *(held.begun, self._subscription.retries + 1, outcome.message),
            "it is parked" if is_last else f"again in {wait:.1f} s",
        )
        if is_last and held.entry.id in self._held:
            self._park(held)

    def _put_off(self, held: Held, asked: int = 0) -> float:
        """Let an entry wait for its next try; return the seconds. `asked` is ms."""
        wait = backoff(held.begun - 1, PATIENCE, random.random(), asked) / 1000
        held.due = time.monotonic() + wait
        return wait

    def _park(self, held: Held) -> None:
        self._put_off(held)  # while Redis has no room for it, the others go on
        self._consumer.park(held.entry, held.begun, held.error)
        self._held.pop(held.entry.id, None)

    def _call(self, entry: Entry) -> Outcome | None:
        """Run the handler; None when it was stopped, since the listener is to end."""
        started = Outcome() if self._process.is_running else self._start()
        if started is None or not started.is_done:
            self._process.kill()
            return started
        self._process.begin(entry)
        return self._await(self._subscription.timeout, "the handler ran too long")

    def _start(self) -> Outcome | None:
        try:
            self._process.start()
        except OSError as error:  # no memory, say
            return Outcome(f"the handler's process could not be started: {error}")
        return self._await(STARTING, "the handler could not be imported in time")

    def _await(self, seconds: float, too_long: str) -> Outcome | None:
        until = time.monotonic() + seconds
        while (left := min(until, self._drained_at()) - time.monotonic()) > 0:
            outcome = self._process.outcome(min(left, LOOK, self._settings.beat))
            if outcome:
                return outcome
            self._renew_if_possible()
        self._process.kill()
        return None if time.monotonic() < until else Outcome(f"{too_long}: {seconds:g} s")

    def _renew_if_possible(self) -> None:
        try:
            self._renew()
        except GhostlessError as error:
            log.warning("%s: %s", self._consumer.group, error)

    def _drained_at(self) -> float:
        """Return until when a handler may run although the listener is to stop."""
        if self._stop.is_set() and self._give_up_at == math.inf:
            self._give_up_at = time.monotonic() + self._settings.drain
        return self._give_up_at


def _place(entry_id: str) -> tuple[int, int]:
    time, _, number = entry_id.partition("-")
    return int(time), int(number)


def _below(entry_id: str) -> str:
    """Return the highest id below this one."""
    time, number = _place(entry_id)
    return f"{time}-{number - 1}" if number else f"{time - 1}-{2**64 - 1}"

"""Delivers callbacks beside a listener's handlers: signed POSTs, several at a time, so that nobody waits for others."""

import json
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from typing import Final

from standardwebhooks import Webhook

from .callbacks import message
from .client import Client
from .deliveries import LEASE, Taken
from .delivery import Delivery, Try
from .errors import GhostlessError
from .pauses import Pauses
from .posting import NotPosted, Poster, Reply
from .receivers import ReceiverRefused
from .settings import Settings

PLACES: Final = 64
"""Deliveries under way at a time: those of several owners, should all of their hosts hang."""

LOOK: Final = 1.0
"""Seconds between two looks at what is due."""

LONGEST_PAUSE: Final = 5.0
"""Seconds between two tries while Redis does not answer."""

TOO_LATE: Final = LEASE // 2
"""How long a delivery may be taken before its POST begins, in ms: later somebody else might send it too."""

log = logging.getLogger("ghostless.listener")


class Deliverer:
    """Delivers what is due, until told to stop, whatever happens."""

    def __init__(self, client: Client, poster: Poster, stop: threading.Event) -> None:
        self._client, self._poster, self._stop = client, poster, stop
        self._secrets = [Webhook(secret) for secret in client.settings.callback_secret]
        self._under_way: dict[Future[None], Delivery] = {}

    @classmethod
    def of(cls, settings: Settings, stop: threading.Event) -> "Deliverer":
        """Return the one of a listener with these settings."""
        return cls(Client(settings), Poster(settings.callback_networks), stop)

    def run(self) -> None:
        """Deliver until told to stop; what is under way then is brought to its end, which takes seconds."""
        pauses = Pauses(0.2, LONGEST_PAUSE)
        with ThreadPoolExecutor(PLACES, "callback") as pool:
            while not self._stop.is_set():
                try:
                    self.step(pool)
                    pauses.reset()
                except GhostlessError as error:
                    log.error("callbacks: %s", error)
                    self._stop.wait(pauses.next())
                except Exception:
                    log.exception("callbacks met an error that they do not know, and go on")
                    self._stop.wait(LONGEST_PAUSE)

    def step(self, pool: ThreadPoolExecutor) -> None:
        """Begin with what is due and has a place; else wait a moment. Raises GhostlessError."""
        self._under_way = {future: each for future, each in self._under_way.items() if not future.done()}
        free = PLACES - len(self._under_way)
        for taken in self._take(free) if free else ():
            self._under_way[pool.submit(self._deliver, taken)] = taken.delivery
        if self._under_way:
            wait(self._under_way, LOOK, FIRST_COMPLETED)
        else:
            self._stop.wait(LOOK)

    def _take(self, free: int) -> list[Taken]:
        under_way = self._under_way.values()
        hosts, owners = (each.receiver.host for each in under_way), (each.entry.owner for each in under_way)
        return self._client.deliveries.take(free, Counter(hosts), Counter(owners))

    # One delivery

    def _deliver(self, taken: Taken) -> None:
        delivery = taken.delivery
        try:
            outcome, asked = self._try(taken)
            after, pause = delivery.tried(outcome, asked, random.random())
            self._note(taken, after, pause)
        except Exception:  # its lease ends, and it is tried again
            log.exception("the callback of task %s was not delivered", delivery.entry.task)
            return
        told = outcome.error or f"answered {outcome.status}"
        log.info("callback of task %s to %s: %s, %s", delivery.entry.task, delivery.receiver.place, told, after.state)

    def _try(self, taken: Taken) -> tuple[Try, int]:
        """Send it; return what came of it, and the pause that the receiver asked for, in ms."""
        began, clock = taken.now(), time.monotonic()
        reply, error = Reply(0), ""
        try:
            reply = self._post(taken)
        except (NotPosted, ReceiverRefused) as failure:
            error = str(failure)
        return Try(began, round(1000 * (time.monotonic() - clock)), reply.status, error), reply.retry_after

    def _post(self, taken: Taken) -> Reply:
        body = json.dumps(message(taken.delivery, self._client.reads), separators=(",", ":"))
        headers = self._headers(taken, body)
        if taken.age() > TOO_LATE:
            raise NotPosted("Redis did not answer in time")
        return self._poster.post(taken.delivery.receiver, body.encode(), headers)

    def _headers(self, taken: Taken, body: str) -> Mapping[str, str]:
        """Return the headers of Standard Webhooks, signed with each secret, so that one can follow the other."""
        message_id, now = taken.delivery.message_id, datetime.fromtimestamp(taken.now() // 1000, UTC)
        return {
            "Content-Type": "application/json",
            "User-Agent": "ghostless",
            "webhook-id": message_id,
            "webhook-timestamp": str(round(now.timestamp())),
            "webhook-signature": " ".join(secret.sign(message_id, now, body) for secret in self._secrets),
        }

    def _note(self, taken: Taken, after: Delivery, pause: int | None) -> None:
        """Write down what came of it; a Redis that does not answer is waited for as long as the delivery is ours."""
        pauses = Pauses(0.2, LONGEST_PAUSE)
        while True:
            try:
                if not self._client.deliveries.note(taken, after, pause):
                    log.warning("the callback of task %s was tried by another listener too", after.entry.task)
                return
            except GhostlessError:
                if taken.age() > LEASE or self._stop.wait(pauses.next()):
                    raise

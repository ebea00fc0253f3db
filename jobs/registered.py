"""An rq worker as rq and its tools see it: its entry in the registry, kept whatever happens to Redis."""

import logging
import os
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from rq.utils import now as utc_now
from rq.utils import utcformat
from rq.worker import Worker as RqWorker
from rq.worker_registration import register

from ..statemachine import Event
from .connection import REPLY_TIMEOUT, connect_like
from .errors import GhostlessError, InvalidSetting
from .lost import entry_of, report_lost
from .messages import Ending
from .presence import client_name, present
from .record import WorkerRecord
from .rq_keys import WORKER_RECORD
from .scripts import translated
from .settings import Settings
from .store import Store

log = logging.getLogger("rq.worker.ghostless")  # below rq's logger, so that one set-up serves both

VERSION = version("ghostless")
MOST_CONNECTIONS = 5
"""New connections within two beats that tell of cuts; a worker makes three when it starts, and keeps them."""

RECONNECT = 2.0
"""Seconds within which a living worker is there again when its connections were cut."""


class RegisteredWorker(RqWorker):
    """What stands in rq's registry about a worker; its beats come from the reporter's thread, once a beat.

    Takes the arguments of rq's worker; settings are those of the environment unless given.
    """

    def __init__(
        self,
        queues: Any,
        name: str | None = None,
        *args: Any,
        settings: Settings | None = None,
        incarnation: str | None = None,
        **kw: Any,
    ) -> None:
        super().__init__(queues, name, *args, **kw)
        self.settings = settings or Settings.from_environment()
        self.incarnation = incarnation or secrets.token_hex(8)  # tells two workers of one name apart
        self.connected_at = moments = deque[float](maxlen=MOST_CONNECTIONS)  # the last ones, on the monotonic clock
        # No bound method: in a circle of references connections would outlive a worker that is given up.
        named = connect_like(
            self.connection,
            client_name(self.name, self.incarnation),
            lambda: moments.append(time.monotonic()),
        )
        self.store = Store(named, self.settings)
        self.is_displaced = False  # another worker has taken the name
        self._done = self._failed = 0  # attempts of this life; only the claim loop writes them
        self._counted = (0, 0)  # of them in the entry; only the beat writes it
        self._redis_ahead: float | None = None  # seconds by which Redis' clock is ahead of the monotonic one

    def _set_ip_address(self, connection: Redis) -> None:
        self.ip_address = "unknown"
        # Some servers answer CLIENT INFO with something rq cannot read.
        tolerate(lambda: super(RegisteredWorker, self)._set_ip_address(connection), KeyError, ValueError)

    @property
    def connection_timeout(self) -> int:
        """Seconds that a command of rq's may take; nothing blocks on this connection."""
        return round(2 * REPLY_TIMEOUT)

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Beat inside rq's own pipelines for plain jobs; otherwise the reporter beats."""
        if pipeline is not None:
            super().heartbeat(timeout, pipeline)

    def meet_redis(self) -> None:
        """Learn what Redis' clock says, and that the name is free, before anything is loaded.

        Raises InvalidSetting when a live worker has the name, RedisUnavailable.
        """
        with translated():
            self._compare_clocks(*self.store.redis.time())
        try:
            self._is_alone(entry_of(self.store, self.name))
        except ValueError as error:
            raise InvalidSetting("--name", "a name that no live worker has", self.name) from error

    def _compare_clocks(self, seconds: int, micros: int) -> None:
        self._redis_ahead = seconds + micros / 1e6 - time.monotonic()

    def register_birth(self) -> None:
        """Enter rq's registry, in the place of a dead worker of this name. Raises InvalidSetting when it lives."""
        try:
            self._replace_former()
            super().register_birth()
        except ValueError as error:
            raise InvalidSetting("--name", "a name that no live worker has", self.name) from error

    def _replace_former(self) -> None:
        """Report a dead worker of this name. Raises ValueError when it lives; rq's rule holds where nobody can tell."""
        former = entry_of(self.store, self.name)
        incarnation = former.get("incarnation")
        if not self._is_alone(former) or not incarnation or "death" in former:
            return
        time.sleep(RECONNECT)
        if self._is_alone(former):
            message = f"worker {self.name} was gone when another one was started under its name"
            report_lost(self.store, self.name, incarnation, f"worker:{self.name}", message, is_dead=False)

    def _is_alone(self, former: Mapping[str, str]) -> bool:
        """Whether Redis tells that no other worker of this name is connected. Raises ValueError when one is."""
        connected = present(self.store.redis, self.name, self._life)
        leaving = former.get("incarnation") if "death" in former else None
        if connected - {self.incarnation, leaving}:
            raise ValueError("it is connected to Redis")
        return self.incarnation in connected  # else names are forbidden here, and nobody is seen

    def register_death(self) -> None:
        """Leave rq's registry, unless the entry is another worker's by now."""
        if entry_of(self.store, self.name).get("incarnation") in (None, self.incarnation):
            super().register_death()

    def serialize(self) -> dict[Any, Any]:
        """Return the entry in rq's registry."""
        return {**super().serialize(), "incarnation": self.incarnation, WORKER_RECORD: self.record().to_json()}

    def subscribe(self) -> None:
        """Listen to commands as rq does, but on a connection that bears this worker's name.

        Its end is noticed at once, so that a living worker is soon there again when its connections were cut.
        """
        self.pubsub = self.store.redis.pubsub()
        self.pubsub.subscribe(**{self.pubsub_channel_name: self.handle_payload})
        self.pubsub_thread = self.pubsub.run_in_thread(
            sleep_time=60, daemon=True, exception_handler=self._pubsub_exception_handler
        )

    def handle_payload(self, message: Any) -> None:
        """Carry out a command of rq's, which expects bytes."""
        super().handle_payload({**message, "data": message["data"].encode()})

    @property
    def _life(self) -> int:
        """Seconds of silence after which a worker counts as dead in rq's registry."""
        return round(4 * self.settings.lease)

    def beat(self) -> None:
        """Keep the entry alive, or make it anew; when it is another worker's by now, note that and leave it alone.

        Who holds it is asked in a call of its own: this worker may have been cut off until now. Once it is connected,
        nobody takes its name between the two.
        """
        with translated():
            holder = self.store.redis.hget(self.key, "incarnation")
        self.is_displaced |= holder not in (None, self.incarnation)
        if not self.is_displaced:
            self._write_beat()

    def _write_beat(self) -> None:
        self.last_heartbeat = utc_now()
        counts, (done, failed) = (self._done, self._failed), self._counted
        with translated(), self.store.redis.pipeline(transaction=False) as pipeline:
            pipeline.hset(self.key, "last_heartbeat", utcformat(self.last_heartbeat))
            pipeline.hset(self.key, mapping={"state": self.get_state(), WORKER_RECORD: self.record().to_json()})
            pipeline.hincrby(self.key, "successful_job_count", counts[0] - done)
            pipeline.hincrby(self.key, "failed_job_count", counts[1] - failed)
            pipeline.expire(self.key, self._life)
            pipeline.time()
            is_new, *_, (seconds, micros) = pipeline.execute()
            self._compare_clocks(seconds, micros)
            self._counted = counts
            if is_new:  # Redis was emptied, or this worker was silent for too long
                record: dict[Any, Any] = {**self.serialize(), "state": self.get_state()}
                pipeline.hset(self.key, mapping=record)
                pipeline.expire(self.key, self._life)
                register(self, pipeline)
                pipeline.execute()

    def count_attempt(self, ending: Ending) -> None:
        """Count an ended attempt for the next beat."""
        self._failed += ending.event in (Event.FAIL, Event.TIMEOUT)
        self._done += ending.event is Event.COMPLETE

    def record(self) -> WorkerRecord:
        """Return what a beat tells of this worker besides rq's own fields."""
        ahead = self._redis_ahead
        beat_at = None if ahead is None else round(1000 * (time.monotonic() + ahead))
        return WorkerRecord(VERSION, beat_at, lease=round(1000 * self.settings.lease))

    def set_state(self, state: str, pipeline: Any = None) -> None:
        """Note whether the worker is busy; a beat soon tells rq's listings, or the pipeline of rq's that is given."""
        is_news = state != self.get_state()
        self._state = state
        if pipeline is not None:
            super().set_state(state, pipeline)
        elif is_news:
            self.tell_soon()

    def tell_soon(self) -> None:
        """Let others see soon what has changed. Without a beat of its own it is seen by the next one."""

    def run_maintenance_tasks(self) -> None:
        """Run rq's maintenance of plain jobs; an outage only delays it."""
        tolerate(super().run_maintenance_tasks)
        self.last_cleaned_at = self.last_cleaned_at or utc_now()

    def check_for_suspension(self, burst: bool) -> None:
        """Do nothing here: the claim looks at rq's suspension in the same script."""

    def _pubsub_exception_handler(self, exc: Exception, pubsub: Any, pubsub_thread: Any) -> None:
        # Without this thread hints and rq's commands would be lost for good after one hiccup.
        log.warning("commands: %s; trying again", exc)
        time.sleep(random.uniform(0.5, 1.5))


def tolerate(call: Callable[[], Any], *also: type[Exception]) -> bool:
    """Make a call that an outage of Redis may keep from happening; tell whether it did."""
    try:
        call()
    except (RedisError, GhostlessError, *also) as error:
        log.warning("%s", error)
        return False
    return True


def unique_name() -> str:
    """Return a name that nobody has: random, since in a container host and pid are the same after a restart."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(2)}"

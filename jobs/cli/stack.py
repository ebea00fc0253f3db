"""Everything that Ghostless is made of, as child processes of this one: for `dev` and `demo`."""

import http.client
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from redis.exceptions import ResponseError

from ..client import Client
from ..errors import RedisUnavailable
from ..fleet import LOADING
from ..installed import handler_modules
from ..settings import Settings
from .children import Child, Leash
from .database import find_database
from .hold import Hold
from .lazy import Failed
from .ports import HOST, free_port

REDIS_PORT = 6390
"""Where the private Redis listens when that is free: always the same, so that an exported URL stays right."""

READY = 60.0
"""Seconds that a process may take to become ready; the first import of numpy on a slow disk takes a while."""

PATIENCE = 15.0
"""Seconds between asking a process to end and killing it: a worker may need two graces to stop its task."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `port` is the web server's, 0 for any free one."""

    settings: Settings
    queue: str
    port: int
    folder: Path
    with_scheduler: bool = False


class Interrupted(Failed):
    """A signal asked to stop."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name}")


class Signals:
    """Notes the signals that ask to stop, instead of raising in the middle of something."""

    def __init__(self) -> None:
        self.got: list[int] = []
        wanted = [number for number in _STOPPING if number != signal.SIGHUP or not _survives_terminal()]
        self._before = {number: signal.signal(number, self._note) for number in wanted}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.got.append(number)

    def restore(self) -> None:
        """Give the signals back to whom they belonged."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _survives_terminal() -> bool:
    """Tell whether it was started with nohup."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


class Stack:
    """Redis, a watchdog, a worker, the web server; a scheduler if wanted, and a listener if it has something to do.

    They are started in this order and stopped in reverse, whatever happens.
    """

    def __init__(self, plan: Plan, hold: Hold, tell: Callable[[str], None]) -> None:
        self.plan, self._hold, self._tell = plan, hold, tell
        self.port = free_port(plan.port)
        self._redis_port = free_port(REDIS_PORT, 0)
        self.settings = replace(plan.settings, redis_url=f"redis://{HOST}:{self._redis_port}/0")
        self.client = Client(self.settings)
        self._children: list[Child] = []

    @property
    def url(self) -> str:
        """Where the web server listens."""
        return f"http://{HOST}:{self.port}"

    # Life

    def __enter__(self) -> Self:
        self._signals = Signals()
        self._leash = Leash()
        try:
            self._start_all()
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_all()

    def check(self) -> None:
        """Raise Interrupted after a signal, and Failed with the last of its log when a process has ended."""
        if self._signals.got:
            raise Interrupted(self._signals.got[0])
        for child in self._children:
            if not child.alive:
                raise Failed(child.obituary())

    def sleep(self, seconds: float) -> None:
        """Let time pass; raises what `check` raises."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, 0.1))
        self.check()

    def _start_all(self) -> None:
        for folder in ("redis", "logs"):
            (self.plan.folder / folder).mkdir(parents=True, exist_ok=True)
        self._start_redis()
        self._start(
            "watchdog", f"sweeps every {self.settings.sweep:g} s", self._watchdog_swept, self._ghostless("watchdog")
        )
        if self.plan.with_scheduler:
            what = "submits what schedules and types with cron= are due"
            self._start("scheduler", what, lambda child: child.alive, self._ghostless("scheduler"))
        self._start_listener()
        self._start_worker()
        self._start("web", self.url, self._web_answers, self._ghostless("serve", "--port", str(self.port)))

    def _start_redis(self) -> None:
        database = find_database(self.plan.folder / "redis")
        what = f"{self.settings.redis_url} ({database.description})"
        self._start("redis", what, self._redis_answers, database.command_for(self._redis_port))

    def _start_worker(self) -> None:
        what = f"queue {self.plan.queue}, tasks of {', '.join(self.settings.tasks)}"
        # Without patience: a task at hand goes back to the queue, and on from its checkpoint at the next start.
        command = self._ghostless("worker", self.plan.queue, "--drain", "0")
        self._start("worker", what, self._worker_has_loaded, command)

    def _start_listener(self) -> None:
        settings, modules = self.settings, handler_modules(self.settings)
        duties = {
            f"handlers of {', '.join(modules)}": modules,
            "alerts": settings.alerts or settings.alert_webhook,
            "callbacks": settings.callback_secret,
        }
        what = ", ".join(duty for duty, is_set in duties.items() if is_set)
        if what:
            self._start("listener", what, self._listener_listens, self._ghostless("listener"))

    def _ghostless(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", __package__ or "", *arguments]

    def _start(self, name: str, what: str, is_ready: Callable[[Child], bool], command: Sequence[str]) -> None:
        # Redis holds the folder too: should it ever be left behind, no second one writes to the same files.
        held = [self._hold.descriptor] if name == "redis" else []
        child = Child(name, command, self.plan.folder / "logs" / f"{name}.log", self._environment(), held)
        self._hold.note(child.pid)
        self._children.append(child)
        self._leash.watch(child)
        give_up_at = time.monotonic() + READY
        while not is_ready(child):
            if time.monotonic() > give_up_at:
                raise Failed(child.obituary())
            self.sleep(0.05)
        self._tell(f"{name:<9} {what}")

    def _environment(self) -> dict[str, str]:
        settings = self.settings
        return {
            "GHOSTLESS_REDIS_URL": settings.redis_url,
            "GHOSTLESS_PREFIX": settings.prefix,
            "GHOSTLESS_TASKS": ",".join(settings.tasks),
            "GHOSTLESS_HANDLERS": ",".join(settings.handlers),
            "GHOSTLESS_ARTIFACTS": settings.artifacts,
            "GHOSTLESS_REQUIRE_TOKENS": "0",  # nobody has one for this database
            "PYTHONUNBUFFERED": "1",
        }

    def _stop_all(self) -> None:
        signals_before = len(self._signals.got)
        for child in reversed(self._children):
            # One more Ctrl-C while stopping: no more patience.
            child.stop(PATIENCE, lambda: len(self._signals.got) > signals_before)
            self._leash.forget(child)
        self._leash.close()
        self._signals.restore()

    # When each is ready

    def _redis_answers(self, child: Child) -> bool:
        with suppress(RedisUnavailable):
            self.client.reads.ping()
            return self._is_redis_of(child)
        return False

    def _is_redis_of(self, child: Child) -> bool:
        # Somebody else's server may have taken the port in the meantime; then ours is about to end.
        try:
            return self.client.store.redis.info("server")["process_id"] == child.pid
        except ResponseError:
            return child.alive  # the stand-in has no INFO

    def _watchdog_swept(self, child: Child) -> bool:
        # The data may be of an earlier run, with the trace of its watchdog.
        trace = self.client.reads.watchdog()
        return trace is not None and str(trace["actor"]).endswith(f"-{child.pid}")

    def _worker_has_loaded(self, child: Child) -> bool:
        return any(member.pid == child.pid and member.state != LOADING for member in self.client.workers())

    def _listener_listens(self, child: Child) -> bool:
        return any(f"-{child.pid}-" in name for group in self.client.listeners.all() for name in group.listeners)

    def _web_answers(self, child: Child) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

"""The server: gunicorn with gevent workers, so that thousands of streams fit in one process."""

import gc
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from ..app import create_app
from ..jobs.errors import InvalidSetting
from ..jobs.settings import Settings
from ..jobs.watchdog import run_watchdog
from .desk import Desk
from .hosts import serves_only_here
from .hub import Hub
from .limits import Limits, raise_file_limit
from .redaction import redact
from .server_workers import StreamWorker, ThreadedWorker

STOP_POLL = 0.25
"""Seconds between two looks whether the worker is to stop."""

GRACE = 30
"""Seconds that a stopping worker lets plain requests run on."""

DRAIN = 20.0
"""Seconds after the signal within which a stopping worker has ended its streams, one by one; at most a lease."""

NEW_OBJECTS = 20_000
"""New objects after which Python looks for garbage among them; by default 700."""

log = logging.getLogger(__name__)


def serve(
    settings: Settings,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    *,
    allow_anonymous: bool = False,
    require_tokens: bool = False,
    watchdog: bool = True,
    threads: int = 0,
    proxies: int = 0,
) -> None:
    """Serve until SIGTERM or SIGINT. Does not return: gunicorn ends the process.

    SIGTERM ends the streams one after the other, within `DRAIN` seconds or a lease; SIGINT and a second SIGTERM end
    all at once.

    Each worker also runs a watchdog, unless told otherwise: whoever asks where a task is, there is then always
    somebody left to notice. Any number of watchdogs may run.

    Beyond this host everybody must show a token, unless `allow_anonymous` lets everyone do everything. On this host
    nobody must, unless `require_tokens`, or the setting of that name, says so; but then a request must name this host
    (localhost, 127.0.0.1, [::1]). A proxy on this host that passes on another name needs one of the two.

    With `threads` each worker serves with so many threads instead of greenlets; each stream holds one of them.
    `proxies` is the number of reverse proxies in front, each of which appends the address that it sees to
    X-Forwarded-For; without it every client has the address of the nearest proxy.
    Raises InvalidSetting when tokens are both demanded and not, for a limit of open files that is too low, and for too
    few threads.
    """
    demands = demands_tokens(settings, host, allow_anonymous=allow_anonymous, require_tokens=require_tokens)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    limits, options = _capacity(threads)
    make_app = partial(
        create_app,
        settings,
        local_only=not (demands or allow_anonymous),
        require_tokens=demands,
        limits=limits,
        proxies=proxies,
    )
    Server(settings, make_app, {"bind": address, "workers": workers, **options}, watchdog=watchdog).run()


def _capacity(threads: int) -> tuple[Limits, dict[str, Any]]:
    """Return what fits into a worker, with so many threads or with greenlets, and gunicorn's options for that."""
    limits = raise_file_limit()
    options: dict[str, Any] = {"worker_connections": limits.connections}
    if not threads:
        return limits, options
    few = limits.with_threads(threads)
    log.warning(
        "with %d threads a worker serves %d streams at most; greenlets serve thousands", threads, few.subscribers
    )
    return few, options | {"worker_class": ThreadedWorker, "threads": threads}


def demands_tokens(settings: Settings, host: str, *, allow_anonymous: bool, require_tokens: bool) -> bool:
    """Tell whether everybody must show a token on this address. Raises InvalidSetting for a contradiction."""
    wanted = require_tokens or settings.require_tokens
    if wanted and allow_anonymous:
        raise InvalidSetting("allow_anonymous", "no require_tokens (GHOSTLESS_REQUIRE_TOKENS) beside it", "both")
    return wanted or not (allow_anonymous or serves_only_here(host))


class Master(Arbiter):
    """gunicorn's master, for which a second SIGTERM means now."""

    _stopping = False

    def stop(self, graceful: bool = True) -> None:
        """End the workers."""
        self._stopping = True
        super().stop(graceful)

    def signal(self, sig: int, frame: Any) -> None:
        """Note a signal."""
        hurries = self._stopping and sig == signal.SIGTERM
        super().signal(signal.SIGQUIT if hurries else sig, frame)


class RedactingLogger(Logger):
    """gunicorn's log, which quotes addresses, without the tokens in them."""

    def setup(self, cfg: Any) -> None:
        """Set the log up, and what else this process logs."""
        super().setup(cfg)
        for logger in (self.error_log, self.access_log, logging.getLogger()):
            redact(logger)


class Server(BaseApplication):
    """gunicorn, configured in code. Never preloads: each worker makes its application after gevent's patches."""

    def __init__(
        self, settings: Settings, make_app: Callable[[], Flask], options: Mapping[str, Any], *, watchdog: bool
    ) -> None:
        self._settings, self._make_app, self._watchdog = settings, make_app, watchdog
        self._hub: Hub | None = None  # of this process, once it is a worker that is ready
        self._options: dict[str, Any] = {
            "worker_class": StreamWorker,
            "logger_class": RedactingLogger,
            "graceful_timeout": GRACE,
            "keepalive": 5,
            "limit_request_line": 8190,  # a stream may name 50 tasks
            "control_socket_disable": True,
            "post_fork": die_while_booting,
            "post_worker_init": self._begin,
            "worker_int": self._hurry,
            "worker_exit": spare_nothing,
            **options,
        }
        super().__init__()

    def load_config(self) -> None:
        """Hand gunicorn its settings; environment and files have no say."""
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Make a worker's application."""
        return self._make_app()

    def run(self) -> None:
        """Serve. Ends the process."""
        try:
            Master(self).run()
        except RuntimeError as error:  # as gunicorn does: of its configuration
            sys.exit(f"Error: {error}")

    def _begin(self, worker: Any) -> None:
        stop, desk = threading.Event(), cast(Desk, worker.wsgi.extensions["ghostless"])
        self._hub = desk.hub
        spare_the_collector()
        if self._watchdog:
            desk.watchdog = threading.Thread(
                target=run_watchdog, args=(self._settings, stop), name="watchdog", daemon=True
            )
            desk.watchdog.start()
        tell_when_stopping(worker, stop, desk.hub, min(DRAIN, self._settings.lease))

    def _hurry(self, _worker: Any) -> None:
        """End a worker's streams at once: it has a moment only."""
        if self._hub:
            self._hub.close()


def spare_the_collector() -> None:
    """Let Python look for garbage less often, and never in what is here now: nobody hears anything meanwhile.

    With thousands of streams, whose objects nearly all stay, each look takes tenths of a second.
    """
    gc.set_threshold(NEW_OBJECTS)
    gc.collect()  # else the garbage of the start would stay for ever
    gc.freeze()


def spare_nothing(_arbiter: Any, _worker: Any) -> None:
    """Let Python's end clear everything away in its usual order."""
    gc.unfreeze()


def die_while_booting(_arbiter: Any, _worker: Any) -> None:
    """Let SIGTERM end a worker that is not ready yet.

    It still has the master's handlers, which only note the signal: the stop would be lost, and the master wait
    `GRACE` seconds for it.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def tell_when_stopping(worker: Any, stop: threading.Event, hub: Hub, drain: float) -> None:
    """End a worker's streams, one after the other, once it is to stop: by itself it only stops accepting, and waits."""

    def watch() -> None:
        while worker.alive:
            time.sleep(STOP_POLL)
        stop.set()
        hub.drain(drain)

    threading.Thread(target=watch, name="stop-watch", daemon=True).start()

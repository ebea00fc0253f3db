"""A pool: worker processes that are kept running, and whose death is told at once.

The pool is their parent, and thus knows of a death for certain and before anybody else. It runs no task, imports no
task module, and goes on without Redis.
"""

import logging
import math
import os
import secrets
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import FrameType

from .connection import connect
from .errors import GhostlessError, InvalidSetting
from .gpus import VISIBLE, devices
from .lost import report_dead
from .names import NAME
from .pauses import Pauses
from .presence import present
from .processes import end_abandoned
from .settings import LAST_PORT, Settings
from .store import Store
from .tether import adopt_orphans

log = logging.getLogger("ghostless.pool")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
"""Seconds before a worker is started again: after its first death, and at most."""

LONG_LIFE = 60.0
"""Seconds of life after which a death counts as a first one."""

LAST_CALLS = 1.0
"""Seconds to wait until Redis has seen the end of a dead worker's connections."""

FAREWELL = 5.0
"""Seconds that an ending pool waits until Redis has heard of every death."""

BEGUN = signal.SIGUSR1
"""What a worker sends to its pool when it has loaded its modules, so that the pool need not ask Redis."""


@dataclass(slots=True)
class Place:
    """One worker of a pool, over all its lives. Times are of the monotonic clock."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    health_port: int = 0
    pid: int | None = None
    incarnation: str = ""
    lives: int = 0
    start_at: float = 0.0  # infinite: never again
    exit_code: int = 0  # of the last life
    _started_at: float = 0.0
    _pauses: Pauses = field(default_factory=lambda: Pauses(SHORTEST_PAUSE, LONGEST_PAUSE))

    @property
    def is_over(self) -> bool:
        """Whether no process runs here, nor will."""
        return self.pid is None and self.start_at == math.inf

    def start(self, typed: Sequence[str]) -> None:
        """Begin a life, in a session of its own: a Ctrl-C is for the pool, which passes it on once.

        `typed` is the command line of the pool. Raises OSError.
        """
        self.incarnation = secrets.token_hex(8)
        ours = ["--name", self.name, "--incarnation", self.incarnation, "--parent", str(os.getpid())]
        ours += ["--health-port", str(self.health_port)]
        cut = typed.index("--") if "--" in typed else len(typed)
        command = [sys.executable, "-m", f"{__package__}.cli", *typed[:cut], *ours, *typed[cut:]]
        environment = {**os.environ, **self.environment}
        self.pid = os.posix_spawn(command[0], command, environment, setsid=True, setsigdef=[signal.SIGPIPE])
        self.lives += 1
        self._started_at = time.monotonic()

    def note_death(self, exit_code: int) -> None:
        """Plan the next life: soon after the first death, later after each further one."""
        now = time.monotonic()
        if now - self._started_at >= LONG_LIFE:
            self._pauses.reset()
        self.pid, self.exit_code = None, exit_code
        self.start_at = now + self._pauses.next()

    def close(self) -> None:
        """Begin no further life."""
        self.start_at = math.inf


def places(base: str, number: int, gpus: str | None, health_port: int = 0) -> list[Place]:
    """Return the places of a pool: `number` of them, for each device when there is a wish for GPUs.

    The first answers for its health at `health_port`, the second at the next one, and so on. Raises InvalidSetting.
    """
    numbers = [f"-{index}" for index in range(1, number + 1)]
    if gpus is None:
        found = [Place(base + suffix) for suffix in numbers]
    else:
        suffixes = numbers if number > 1 else [""]
        found = [
            Place(f"{base}-gpu{_label(position, device[VISIBLE])}{suffix}", device)
            for position, device in enumerate(devices(gpus))
            for suffix in suffixes
        ]
    if not all(NAME.fullmatch(place.name) for place in found):
        raise InvalidSetting("--name", f"a name that leaves room for {found[-1].name.removeprefix(base)}", base)
    if health_port:
        _give_ports(found, health_port)
    return found


def _give_ports(found: Sequence[Place], first: int) -> None:
    if first + len(found) - 1 > LAST_PORT:
        raise InvalidSetting(
            "--health-port", f"at most {LAST_PORT + 1 - len(found)} for {len(found)} workers", str(first)
        )
    for port, place in enumerate(found, first):
        place.health_port = port


def _label(position: int, device: str) -> str:
    return device if device.isdecimal() else str(position)


class Signals:
    """The signals that came, in their order, for a loop that waits for them."""

    def __init__(self, *numbers: int) -> None:
        self._arrived, note = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(note)
        for number in numbers:
            signal.signal(number, lambda _number, _frame: None)

    def wait(self, seconds: float) -> bytes:
        """Return the numbers of the signals that came until now, or within so many seconds."""
        select.select([self._arrived], [], [], min(seconds, LONGEST_PAUSE))
        with suppress(BlockingIOError):
            return os.read(self._arrived, 4096)
        return b""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a worker process, seen by its parent at a time of the monotonic clock."""

    worker: str
    incarnation: str
    message: str
    at: float = field(default_factory=time.monotonic)


class Reports(threading.Thread):
    """Tells Redis of each death, again and again until it answers, so that the pool never waits for Redis."""

    def __init__(self, store: Store, actor: str) -> None:
        super().__init__(name="reports", daemon=True)
        self._store, self._actor = store, actor
        self._deaths = SimpleQueue[Death | None]()

    def tell(self, death: Death) -> None:
        """Report a death soon."""
        self._deaths.put(death)

    def finish(self, patience: float) -> None:
        """Wait until every death is reported, at most so many seconds; the lease tells of the others."""
        self._deaths.put(None)
        self.join(patience)

    def run(self) -> None:
        """Report one death after the other; one older than the lease is the watchdog's."""
        while death := self._deaths.get():
            pauses = Pauses(0.05, 2.0)
            while not self._is_told(death) and time.monotonic() < death.at + self._store.settings.lease:
                time.sleep(pauses.next())

    def _is_told(self, death: Death) -> bool:
        try:
            self._report(death)
        except GhostlessError as error:
            log.warning("%s is not reported yet: %s", death.message, error)
            return False
        except Exception:
            log.exception("%s could not be reported; its lease tells", death.message)
        return True

    def _report(self, death: Death) -> None:
        self._let_last_calls_arrive(death)
        report_dead(self._store, death.worker, death.incarnation, self._actor, death.message)

    def _let_last_calls_arrive(self, death: Death) -> None:
        """Wait until Redis sees no connection of the dead: a claim on its way could come after the report."""
        until = time.monotonic() + LAST_CALLS
        while death.incarnation in present(self._store.redis, death.worker, math.inf) and time.monotonic() < until:
            time.sleep(0.02)


class Pool:
    """Keeps a worker running in each place. `arguments` are those of the command line that asked for the pool."""

    def __init__(
        self, store: Store, name: str, places: Sequence[Place], arguments: Sequence[str], *, burst: bool
    ) -> None:
        self._store, self._places, self._arguments, self._burst = store, places, arguments, burst
        self._reports = Reports(store, f"pool:{name}"[:64])
        self._has_begun = False  # whether some worker has loaded its modules
        self._is_stopping = False
        self._failure = 0

    def run(self) -> int:
        """Keep the workers running until a signal, or until all are done. Returns the exit code."""
        signals = Signals(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
        signal.signal(BEGUN, self._note_beginning)
        adopt_orphans()
        self._reports.start()
        while not all(place.is_over for place in self._places):
            self._start_due()
            for number in signals.wait(self._patience()):
                if number in (signal.SIGTERM, signal.SIGINT):
                    self._stop()
            self._reap()
        self._reports.finish(FAREWELL)
        return self._failure or int(any(place.exit_code not in (0, -signal.SIGTERM) for place in self._places))

    def _note_beginning(self, _number: int, _frame: FrameType | None) -> None:
        self._has_begun = True  # at once: the death of the same worker may be looked at next

    def _patience(self) -> float:
        starts = [place.start_at for place in self._places if place.pid is None]
        return max(0.0, min(starts, default=math.inf) - time.monotonic())

    def _start_due(self) -> None:
        for place in self._places:
            if place.pid is None and place.start_at <= time.monotonic():
                self._start(place)

    def _start(self, place: Place) -> None:
        try:
            place.start(self._arguments)
        except OSError as error:  # no memory, or too many processes
            log.error("worker %s cannot be started: %s; trying again", place.name, error)
            place.note_death(1)

    def _stop(self) -> None:
        """Pass a signal on, each further one too, and start nothing any more."""
        self._is_stopping = True
        for place in self._places:
            place.close()
            if place.pid:
                os.kill(place.pid, signal.SIGTERM)

    def _reap(self) -> None:
        with suppress(ChildProcessError):  # no child is left
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = ended
                for place in self._places:
                    if place.pid == pid:
                        self._bury(place, os.waitstatus_to_exitcode(status))

    def _bury(self, place: Place, code: int) -> None:
        message = f"worker {place.name} {_ending(code)}"
        log.log(logging.WARNING if code else logging.INFO, "%s", message)
        place.note_death(code)
        if end_abandoned({os.getsid(0), *(other.pid for other in self._places if other.pid)}):
            self._reports.tell(Death(place.name, place.incarnation, message))
        else:
            log.error("what worker %s left behind cannot be killed; its lease tells", place.name)
        if self._is_stopping or (self._burst and code == 0):
            place.close()
        elif code > 0 and place.lives == 1 and not self._has_begun:
            self._failure = code  # a mistake in how the pool was started, which the others would meet too
            self._stop()


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by signal {-code} ({signal.strsignal(-code)})"


def run_pool(settings: Settings, name: str, places: Sequence[Place], arguments: Sequence[str], *, burst: bool) -> int:
    """Keep workers running until a signal or, with `burst`, until their queues are empty. Returns the exit code.

    `arguments` are those of the command line `ghostless worker`; each worker gets them with a name of its own.
    """
    log.info("pool %s of %s", name, ", ".join(place.name for place in places))
    return Pool(Store(connect(settings), settings), name, places, arguments, burst=burst).run()

"""One visit to a peer: a Redis, a worker and a submitter of its own, and every column measured once."""

import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from . import columns
from .columns import Figures
from .marks import Marks
from .node import MODULES
from .peer import PROGRAMS, Command, Peer
from .processes import Running, running
from .server import Server, address, private_server

WARM = 20
"""Tasks that a worker runs before anything is measured; one may be missing, as SAQ's first sweep may take it."""

START = 30.0
"""Seconds for a worker to start and to run these."""

IDLE = 0.05
"""Seconds that a worker stands idle before a task is submitted to it."""

SETTLE = 0.1
"""Seconds for a worker to tell Redis of its last task."""

SAMPLE = 50
"""Tasks that are watched with MONITOR, for at most a second."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured in a visit."""

    tasks: int  # with which the queue is filled
    seconds: float = 2.0  # for which it is worked off at most

    @property
    def alone(self) -> int:
        """Tasks that are submitted one by one."""
        return self.tasks // 4

    @property
    def idle(self) -> int:
        """Tasks that are submitted to an idle worker."""
        return max(5, self.tasks // 100)

    @property
    def far(self) -> "Size":
        """Of what is measured over a slow network."""
        return Size(self.tasks // 2, self.seconds * 0.6)


@dataclass(frozen=True, slots=True)
class Drained:
    """A stretch of work."""

    done: int  # tasks
    rate: float  # tasks a second
    cpu: float  # seconds


def visit(peer: Peer, size: Size, fsync: str) -> Figures:
    """Measure a peer once. Raises LeftOut when it does not work."""
    with tempfile.TemporaryDirectory() as folder, private_server(fsync) as server:
        place = Place(Path(folder), peer, server)
        with place.submitter() as submitter:
            work = Work(place, submitter)
            with place.worker(server.url) as worker:
                submitter.hear()  # it is ready
                figures = work.near(worker, size)
            with place.delay() as url, place.worker(url) as worker:
                return figures | work.far(worker, size.far)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer's processes run."""

    folder: Path
    peer: Peer
    server: Server

    @property
    def marks(self) -> Path:
        """The file of the tasks."""
        return self.folder / "marks"

    def submitter(self) -> contextlib.AbstractContextManager[Running]:
        """Run the process that submits; it says when it is ready."""
        return self._run("submitter", self.peer.submitter, self.server.url, talks=True)

    def worker(self, url: str) -> contextlib.AbstractContextManager[Running]:
        """Run the worker on the Redis of an address."""
        return self._run("worker", self.peer.worker, url)

    @contextlib.contextmanager
    def delay(self) -> Generator[str]:
        """Run the proxy; give its address."""
        command = (sys.executable, "-m", f"{__package__}.delay", str(self.server.port))
        with self._run("proxy", command, self.server.url, talks=True) as proxy:
            yield address(int(proxy.hear()))

    def _run(
        self, name: str, command: Command, url: str, *, talks: bool = False
    ) -> contextlib.AbstractContextManager[Running]:
        environment = {
            "BENCH_REDIS_URL": url,
            "BENCH_MARKS": str(self.marks),
            "GHOSTLESS_REDIS_URL": url,
            "RQ_REDIS_URL": url,
            "PYTHONPATH": str(PROGRAMS),
            "NODE_PATH": str(MODULES),
        }
        return running(command, environment, self.folder / f"{name}.log", talks=talks)


class Work:
    """Tasks that are submitted, run and measured."""

    def __init__(self, place: Place, submitter: Running) -> None:
        self._server, self._submitter, self._has_bulk = place.server, submitter, place.peer.has_bulk
        self._marks = Marks(place.marks)

    def near(self, worker: Running, size: Size) -> Figures:
        """Measure everything with a worker beside Redis."""
        self._warm(worker)
        waits = [self._start_one(worker) for _ in range(size.idle)]
        worker.freeze()
        empty = self._server.weigh()
        submits = self._fill(size)
        queued = (self._server.weigh() - empty) / size.tasks
        drained = self._drain(worker, size)
        calls, micros = self._server.commands()
        left = (size.tasks - drained.done) * queued
        finished = (self._server.weigh() - empty - left) / drained.done
        return {
            **submits,
            columns.START_MIDDLE: waits,
            columns.START_TAIL: waits,
            columns.RATE: [drained.rate],
            columns.CPU: [drained.cpu * 1e6 / drained.done],
            columns.QUEUED: [queued],
            columns.FINISHED: [max(0.0, finished)],
            **self._told_apart(worker, calls, micros, drained.done),
        }

    def far(self, worker: Running, size: Size) -> Figures:
        """Measure what changes when the worker is far from Redis."""
        self._warm(worker)
        worker.freeze()
        self._fill(size)
        return {columns.RATE_FAR: [self._drain(worker, size).rate]}

    def _warm(self, worker: Running) -> None:
        enough = self._marks.count() + WARM - 1
        self._submit("single", WARM)
        if not self._marks.reach(enough, START):
            raise worker.broken()
        time.sleep(SETTLE)

    def _start_one(self, worker: Running) -> float:
        """Submit a task to an idle worker; return after how many µs it started."""
        time.sleep(IDLE)
        before = self._marks.count()
        began, _ = self._submit("single", 1)
        if not self._marks.reach(before + 1, START):
            raise worker.broken()
        return (self._marks.times()[before] - began) / 1e3

    def _fill(self, size: Size) -> Figures:
        alone = size.alone if self._has_bulk else size.tasks
        figures = {columns.SUBMITS: [self._rate("single", alone)]}
        if self._has_bulk:
            figures[columns.SUBMITS_BULK] = [self._rate("bulk", size.tasks - alone)]
        return figures

    def _rate(self, way: str, number: int) -> float:
        began, ended = self._submit(way, number)
        return number * 1e9 / (ended - began)

    def _submit(self, way: str, number: int) -> tuple[int, int]:
        """Submit tasks; return when that began and ended, in ns."""
        began, ended = map(int, self._submitter.ask(f"{way} {number}").split())
        return began, ended

    def _drain(self, worker: Running, size: Size) -> Drained:
        """Let a frozen worker work off the queue, and freeze it again."""
        first, cpu = self._marks.count(), worker.cpu()
        worker.thaw()
        if self._marks.reach(first + size.tasks, size.seconds):
            time.sleep(SETTLE)
        worker.freeze()
        times = self._marks.times()[first:]
        steady = times[len(times) // 10 :]
        if len(steady) < 2:
            raise worker.broken()
        rate = (len(steady) - 1) * 1e9 / (steady[-1] - steady[0])
        return Drained(len(times), rate, worker.cpu() - cpu)

    def _told_apart(self, worker: Running, calls: Counter[str], micros: Counter[str], done: int) -> Figures:
        """Tell what clients sent from what scripts ran, by watching some more tasks."""
        self._submit("single", SAMPLE)
        parts = self._server.watch(lambda: self._work_briefly(worker))
        sent = sum(number * parts.get(name, 1) for name, number in calls.items())
        # What a script or an EXEC runs is in its own time, and once more in that of each command.
        time_of_clients = sum(us * parts.get(name, 1) for name, us in micros.items() if name != "exec")
        return {
            columns.COMMANDS: [sent / done],
            columns.INNER: [(calls.total() - sent) / done],
            columns.REDIS: [time_of_clients / done],
        }

    def _work_briefly(self, worker: Running) -> None:
        target = self._marks.count() + SAMPLE
        worker.thaw()
        self._marks.reach(target, 1.0)
        worker.freeze()

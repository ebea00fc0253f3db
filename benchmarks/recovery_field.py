"""A database with workers that are to die, and what the history tells of it: a part of `recovery.py`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..jobs.client import Client
from ..jobs.messages import Submission
from ..statemachine import LOSSES, Event, Policy, State

BEAT, LEASE = 0.5, 1.5
CLOCKS = {"beat": BEAT, "lease": LEASE, "sweep": 0.1, "grace": 0.5, "drain": 0.0}
"""Seconds: a tenth of the usual ones; at the end nobody drains."""

TYPE, QUEUE = "bench.endless", "bench"
AT_ONCE = Policy(max_losses=1_000, backoff_base=0, backoff_cap=0)

T = TypeVar("T")


def await_value(look: Callable[[], T | None], patience: float = 60.0) -> T:
    """Return what a look finds, once that is something."""
    give_up_at = time.monotonic() + patience
    while (value := look()) is None:
        if time.monotonic() > give_up_at:
            raise TimeoutError("what was waited for did not happen")
        time.sleep(0.005)
    return value


@dataclass(frozen=True, slots=True)
class Recovery:
    """The time until a death was noticed, and until its task ran again, in leases."""

    noticed: float
    restarted: float


@dataclass
class Field:
    """The database and the processes of one measurement."""

    client: Client
    folder: str
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])

    def now(self) -> int:
        """Return Redis' time in ms."""
        return self.client.reads.now()

    def start(self, name: str, *arguments: str) -> None:
        """Start a verb of the command line under a name."""
        own = {"GHOSTLESS_REDIS_URL": self.client.settings.redis_url, "GHOSTLESS_ARTIFACTS": self.folder}
        own |= {f"GHOSTLESS_{clock.upper()}": str(seconds) for clock, seconds in CLOCKS.items()}
        command, environment = [sys.executable, "-m", "ghostless.jobs.cli", *arguments], {**os.environ, **own}
        self.processes[name] = subprocess.Popen(command, env=environment, cwd=self.folder, stderr=subprocess.DEVNULL)

    def work(self, number: int, pooled: int = 0) -> list[str]:
        """Start so many more workers, or pools of so many, and wait until they are idle; return their names."""
        names, options = list[str](), ("-n", str(pooled)) if pooled else ()
        for _ in range(number):
            names.append(f"w{len(self.processes)}")
            self.start(
                names[-1], "worker", QUEUE, "--tasks", "ghostless.benchmarks.endless", "--name", names[-1], *options
            )
        self.await_idle(names, number * max(1, pooled))
        return names

    def await_idle(self, names: Sequence[str], number: int) -> None:
        """Wait until so many of these workers are idle; those of a pool are called by its name and a number."""

        def look() -> bool | None:
            idle = [worker.name for worker in self.client.workers() if worker.state == "idle"]
            return sum(name.split("-")[0] in names for name in idle) >= number or None

        await_value(look)

    def pid_of(self, worker: str) -> int:
        """Return the process of a worker."""
        return next(found.pid or 0 for found in self.client.workers() if found.name == worker)

    def submit(self, number: int) -> list[str]:
        """Submit so many tasks; return their ids."""
        ids = [os.urandom(10).hex() for _ in range(number)]
        self.client.store.submit_many([Submission(task_id, TYPE, QUEUE, AT_ONCE, "{}", "f") for task_id in ids])
        return ids

    def worker_of(self, task_id: str) -> str:
        """Return the worker that runs a task, once one does."""

        def look() -> str | None:
            task = self.client.get(task_id)
            return task.worker_id if task.state is State.PROCESSING else None

        return await_value(look)

    def recovery(self, task_id: str, since: int) -> Recovery:
        """Return what became of a task after a moment, once it runs again."""

        def look() -> Recovery | None:
            later = [entry for entry in self.client.history(task_id) if entry.at >= since]
            lost = next((entry.at for entry in later if entry.reason in LOSSES), None)
            again = next((entry.at for entry in later if entry.event == Event.START and lost), None)
            return Recovery(_leases(lost - since), _leases(again - since)) if lost and again else None

        return await_value(look)

    def end(self) -> None:
        """End every process."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait(timeout=30)


def _leases(milliseconds: int) -> float:
    return milliseconds / 1000 / LEASE

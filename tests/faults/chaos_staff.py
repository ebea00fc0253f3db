"""The processes of a chaos run: what ends is started again, as a service manager does."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults import chaos_http
from faults.chaos_faults import Process, Target
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.keys import CALLBACKS
from helpers import free_port

WORKERS, WATCHDOGS = 3, 2
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass
class Staff:
    """Workers, watchdogs, a web server, a worker over HTTP, and a listener."""

    fleet: Fleet
    target: Target
    told: Path  # a folder, where the listener's handler notes what it was told
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.fleet.environment |= {
            "CHAOS_TOLD": str(self.told),
            "GHOSTLESS_CALLBACK_SECRET": SECRET,
            "GHOSTLESS_CALLBACK_NETWORKS": "127.0.0.0/8",
        }

    def keep_alive(self) -> None:
        """Start what does not run."""
        for number in range(WORKERS):
            self._keep(self.target.workers, f"w{number}", lambda: self.fleet.worker(tasks="faults.chaos_tasks"))
        for number in range(WATCHDOGS):
            self._keep(self.target.watchdogs, f"d{number}", self.fleet.watchdog)
        others = self.target.others
        self._keep(others, "server", lambda: self.fleet.start("serve", "--port", str(self.port)))
        self._keep(others, "listener", lambda: self.fleet.start("listener", "--handlers", "faults.chaos_told"))
        command = [sys.executable, "-u", "-m", chaos_http.__name__, f"http://127.0.0.1:{self.port}"]
        self._keep(others, "far", lambda: self.fleet.spawn(command))

    def _keep(self, processes: dict[str, Process], name: str, start: Callable[[], Process]) -> None:
        if name not in processes or processes[name].poll() is not None:
            processes[name] = start()

    def is_ready(self, client: Client) -> bool:
        """Tell whether all types are published, and somebody tells callbacks."""
        groups = {group.name for group in client.listeners.all()}
        return {"chaos.work", "chaos.short", chaos_http.TYPE} <= client.types().keys() and {
            CALLBACKS,
            "listener:told",
        } <= groups

    def untold(self, task_ids: list[str]) -> list[str]:
        """Return the tasks of whose end the listener's handler was not told."""
        return sorted(set(task_ids) - {path.name for path in self.told.iterdir()})

"""Real processes for acceptance tests: workers and watchdogs, started as a user starts them and ended by pid."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from effects import FILE, effects_in
from helpers import die_with_the_tests, is_running

QUICK = {
    "GHOSTLESS_BEAT": "0.3",
    "GHOSTLESS_LEASE": "1.5",
    "GHOSTLESS_GRACE": "0.5",
    "GHOSTLESS_DRAIN": "0.2",
    "GHOSTLESS_SWEEP": "0.1",
}
"""Clocks short enough to see every deadline pass in a test."""


class Signalled(subprocess.Popen[bytes]):
    """A process that remembers, at each signal by this object, what it had started by then."""

    family: frozenset[psutil.Process] = frozenset()

    def send_signal(self, sig: int) -> None:
        """Send a signal, SIGKILL too."""
        self.family |= set(_family(self.pid))
        super().send_signal(sig)


@dataclass
class Fleet:
    """The processes of one test, on one Redis."""

    url: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[Signalled] = field(default_factory=list)

    def worker(self, *queues: str, name: str = "", tasks: str = "handlers") -> subprocess.Popen[bytes]:
        """Start `ghostless worker`; it is ready when it published its types."""
        options = ["--tasks", tasks, *(["--name", name] if name else [])]
        return self.start("worker", *(queues or ("default",)), *options)

    def pool(self, *options: str, tasks: str = "lifecycle") -> subprocess.Popen[bytes]:
        """Start `ghostless worker` as a pool called w."""
        return self.start("worker", "default", "--tasks", tasks, "--name", "w", *options)

    def watchdog(self) -> subprocess.Popen[bytes]:
        """Start `ghostless watchdog`."""
        return self.start("watchdog")

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one verb of the command line, in a process group of its own."""
        return self.spawn([sys.executable, "-m", "ghostless.jobs.cli", *arguments])

    def spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start any command with the fleet's settings; its output goes to a file of the test's folder."""
        log = self.folder / f"{len(self.processes)}-{command[3] if len(command) > 3 else 'process'}.log"
        with log.open("wb") as output:
            process = Signalled(
                command,
                env=self.surroundings,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_the_tests,
            )
        self.processes.append(process)
        return process

    def ended(self) -> list[int]:
        """Return the pids of the processes that have ended, and of what they had when a test last signalled them.

        A handler that is only a zombie was left to the machine's first process, which may never ask for it.
        """
        over = [process for process in self.processes if process.poll() is not None]
        families = [child.pid for process in over for child in process.family if child.is_running()]
        return [process.pid for process in over] + [pid for pid in families if is_running(pid)]

    @property
    def surroundings(self) -> dict[str, str]:
        """The environment of the processes."""
        return {
            **os.environ,
            **QUICK,
            "GHOSTLESS_REDIS_URL": self.url,
            "GHOSTLESS_ARTIFACTS": str(self.folder / "artifacts"),
            FILE: str(self._effects),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(Path(__file__).parent),
            **self.environment,
        }

    @property
    def temporary(self) -> Path:
        """Where the temporary folders of attempts are."""
        folder = self.folder / "tmp"
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def _effects(self) -> Path:
        return self.folder / "effects"

    def effects(self) -> dict[str, list[int]]:
        """Return the attempts in which each task's side effect happened."""
        return effects_in(self._effects)

    def logs(self) -> str:
        """Return what all processes wrote, for the message of a failed test."""
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log")))

    def end(self) -> list[str]:
        """End every process and return what outlived it, in words."""
        families = [child for process in self.processes for child in _family(process.pid)]
        for patience in (1, 15):  # at the second SIGTERM nobody drains any more
            running = [process for process in self.processes if process.poll() is None]
            for process in running:
                process.send_signal(signal.SIGCONT)
                process.terminate()
            give_up_at = time.monotonic() + patience
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=max(0, give_up_at - time.monotonic()))
        for process in self.processes:
            process.kill()
            process.wait()
        _, alive = psutil.wait_procs(families, timeout=5)
        for left in alive:
            left.kill()
        return [f"{left.pid} outlived its worker" for left in alive]


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def horse_of(worker: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the process in which a worker's handlers run."""
    return next(
        child for child in psutil.Process(worker.pid).children() if "ghostless.jobs.horse" in " ".join(child.cmdline())
    )


def workers_of(pool: subprocess.Popen[bytes]) -> dict[str, psutil.Process]:
    """Return the living workers of a pool by name."""
    found: dict[str, psutil.Process] = {}
    for child in psutil.Process(pool.pid).children():
        with contextlib.suppress(psutil.Error):  # it ended just now
            command = child.cmdline()
            if "--parent" in command:
                found[command[len(command) - command[::-1].index("--name")]] = child
    return found

"""The processes of a peer: started, frozen, measured, and ended with all that they started."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import psutil

from .errors import LeftOut
from .peer import Command

LOG_SHOWN = 300
"""Characters of a log that are shown, the last."""


class Running:
    """A process and its descendants."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process, self._log = process, log

    def freeze(self) -> None:
        """Stop all of them, parents first, as what is stopped starts nothing."""
        stopped: set[psutil.Process] = set()
        while running := [one for one in self._family() if one not in stopped]:
            _tell(running, signal.SIGSTOP)
            stopped.update(running)

    def thaw(self) -> None:
        """Let all of them go on."""
        _tell(self._family(), signal.SIGCONT)

    def cpu(self) -> float:
        """Return the seconds of CPU that all of them used so far, those that ended included. Freeze them first."""
        return sum(sum(one.cpu_times()[:4]) for one in self._family())  # its own, and of its ended children

    def ask(self, line: str) -> str:
        """Write a line to its input, and return the line that it answers. Raises LeftOut when it ended."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        return self.hear()

    def hear(self) -> str:
        """Return the next line of its output. Raises LeftOut when it ended."""
        assert self._process.stdout
        if not (line := self._process.stdout.readline()):
            raise self.broken()
        return line.strip()

    def broken(self) -> LeftOut:
        """Return what to raise when it does not do what it should."""
        return LeftOut(f"it did not work: {self._log.read_text()[-LOG_SHOWN:].strip()}")

    def end(self) -> None:
        """Kill all of them."""
        self.freeze()
        _tell(self._family(), signal.SIGKILL)
        self._process.communicate()

    def _family(self) -> Sequence[psutil.Process]:
        try:
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def _tell(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(number)


@contextlib.contextmanager
def running(command: Command, environment: Mapping[str, str], log: Path, *, talks: bool = False) -> Generator[Running]:
    """Run a command in the log's folder; what it writes goes into the log, but of one that talks only its errors."""
    with log.open("a") as errors:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            cwd=log.parent,
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talks else errors,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    found = Running(process, log)
    try:
        yield found
    finally:
        found.end()

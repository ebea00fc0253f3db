"""Child processes in groups of their own, which never outlive the process that started them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..processes import signal_name
from . import leash

TAIL = 12
"""Lines of a log that are shown when its process ended."""


class Child:
    """One process that writes into a log file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        inherited: Sequence[int] = (),
    ) -> None:
        self.name, self.log = name, log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                pass_fds=inherited,
                start_new_session=True,  # a Ctrl-C is for the supervisor, which ends its children in order
            )

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def stop(self, patience: float, in_a_hurry: Callable[[], bool]) -> None:
        """Ask it to end, wait, and kill what is left of its group; without waiting on when in a hurry."""
        give_up_at = time.monotonic() + patience
        leash.signal_group(self.pid, signal.SIGTERM)
        while self.alive and time.monotonic() < give_up_at and not in_a_hurry():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        leash.signal_group(self.pid, signal.SIGKILL)
        self._process.wait()

    def obituary(self) -> str:
        """Say how it ended, and the last that it wrote."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL:]
        said = "\n".join(f"  | {line}" for line in lines) or "  | (nothing)"
        return f"{self.name} {self._ending()}; the last lines of {self.log}:\n{said}"

    def _ending(self) -> str:
        code = self._process.poll()
        if code is None:
            return "is not ready in time"
        return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal_name(-code)}"


class Leash:
    """A watcher that ends the children when this process is gone, even by SIGKILL."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", leash.__file__], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def watch(self, child: Child) -> None:
        """End this child when this process is gone."""
        self._say(f"watch {child.pid}")

    def forget(self, child: Child) -> None:
        """Leave this child alone: it has ended."""
        self._say(f"forget {child.pid}")

    def close(self) -> None:
        """Let the watcher end what it still watches, which is nothing after an orderly stop."""
        with suppress(OSError):
            self._pipe.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        with suppress(OSError):  # a watcher that was killed leaves the children to the orderly stop
            self._pipe.write(f"{line}\n")
            self._pipe.flush()

    @property
    def _pipe(self):
        assert self._process.stdin
        return self._process.stdin

"""The worker's side of its horse: start it warm, talk to it, know how it died, end it with all its children."""

import contextlib
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, Any, TextIO, cast

from .errors import GhostlessError
from .frames import Channel, FrameError
from .output import Output
from .processes import end, offspring
from .store import Store

log = logging.getLogger("rq.worker.ghostless")

SEND_TIMEOUT = 5
"""Seconds that a horse may leave a frame unread before it counts as broken."""


class HorseBroken(GhostlessError):
    """The horse could not load its task modules; carries what it said."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"the task modules could not be loaded:\n{detail}")


class Horse:
    """One warm child process in a session of its own, so that it can be killed with its children."""

    def __init__(self, modules: Sequence[str], artifacts: str, on_line: Callable[[TextIO, str], None]) -> None:
        """Start the process. `on_line` gets each line that a handler prints, and the stream of ours it is meant for."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.horse", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,  # nobody writes to it: its end tells the horse that the worker is gone
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},  # a line is seen when it is printed
                start_new_session=True,
            )
        self._outputs = [
            Output(cast("IO[bytes]", self._process.stdout), partial(on_line, sys.stdout)),
            Output(cast("IO[bytes]", self._process.stderr), partial(on_line, sys.stderr)),
        ]
        for output in self._outputs:
            output.start()
        # Tells of the end also when a grandchild keeps the other end of the channel open.
        self._pidfd: int | None = os.pidfd_open(self._process.pid)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT, 0))
        self.channel = Channel(ours)
        self._fault = ""
        self.types: Mapping[str, Mapping[str, Any]] = {}
        self._send({"kind": "load", "modules": list(modules), "artifacts": artifacts})

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs and can be talked to; a handler may have closed or garbled its channel."""
        return self._process.poll() is None and not self._fault and not self.channel.is_ended

    def wait_until_ready(self, give_up: Callable[[], bool]) -> bool:
        """Wait until the task modules are loaded; False when `give_up` said so first. Raises HorseBroken."""
        while not give_up():
            for frame in self.frames(timeout=0.5):
                if frame["kind"] == "ready":
                    self.types = frame["types"]
                    return True
                self.kill()
                raise HorseBroken(f"module {frame['module']}\n{frame['traceback']}")
            if not self.alive:
                raise HorseBroken(f"the process ended while loading: {self.cause_of_death()}")
        return False

    def frames(self, timeout: float, also: Sequence[int] = ()) -> list[dict[str, Any]]:
        """Return the frames that came within `timeout` seconds; return early when an fd of `also` is readable."""
        if self._pidfd is None:
            return []
        ours = self.channel.fileno()
        readable, _, _ = select.select([ours, self._pidfd, *also], [], [], max(0.0, timeout))
        try:
            return self.channel.receive_ready() if ours in readable else []
        except FrameError as error:
            self._fault = f"it sent what is no frame ({error})"
            return []

    def catch_up(self) -> None:
        """Wait a moment until all that the handler printed is handed out."""
        for output in self._outputs:
            output.catch_up()

    def run(self, frame: Mapping[str, Any]) -> None:
        """Give the horse a task. A horse that is dead is noticed by the one who waits for its frames."""
        self._send({"kind": "run", **frame})

    def extend(self, seconds: float) -> None:
        """Let the running handler go on for so long; when the time is over without a further word, the horse ends."""
        self._send({"kind": "lease", "seconds": seconds})

    def ask_to_stop(self, task_id: str, attempt: int, why: str, *, force: bool) -> None:
        """Ask the handler of this very attempt to stop; with `force` by raising in it at once."""
        self._send({"kind": "stop", "task_id": task_id, "attempt": attempt, "why": why, "force": force})

    def _send(self, frame: dict[str, Any]) -> None:
        try:
            self.channel.send(frame)
        except OSError as error:
            self._fault = f"a frame could not be sent to it ({error})"

    def kill(self) -> None:
        """Kill the process and its group, and wait until it is gone; the channel is closed then."""
        if self._pidfd is None:
            return
        left = offspring(self.pid)  # also those in a session of their own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        end(left)
        self.channel.close()
        if self._process.stdin:
            self._process.stdin.close()
        os.close(self._pidfd)
        self._pidfd = None

    def retire(self, patience: float) -> None:
        """Let the process run its teardown for at most `patience` seconds, then make sure it is gone."""
        self._send({"kind": "exit"})
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.kill()

    def let_go(self) -> None:
        """In a fork of the worker: close this process' copies of what ties the horse to the worker."""
        self.channel.close()
        if self._process.stdin:
            self._process.stdin.close()

    def cause_of_death(self) -> str:
        """Say in words how the process ended, once it does not answer any more; one that lives on is killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # the end of its channel comes a moment before its own
        code = self._process.poll()
        self.kill()
        if code is None:
            return f"{self._fault or 'it closed its channel'}, and it was killed"
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name
        hint = ", which the kernel sends when memory runs out" if -code == signal.SIGKILL else ""
        return f"signal {-code} ({name}{hint})"


class Stable:
    """Keeps one horse for a worker, and makes a new one when it died."""

    def __init__(self, store: Store, give_up: Callable[[], bool], on_line: Callable[[TextIO, str], None]) -> None:
        self._store, self._give_up, self._on_line = store, give_up, on_line
        self.horse: Horse | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there is a horse that can be given a task."""
        return self.horse is not None and self.horse.alive

    @property
    def set_aside(self) -> Mapping[str, str]:
        """The types that are not taken any more, and why."""
        return {}

    def fresh_horse(self) -> None:
        """Start a horse in place of the one before. Raises HorseBroken."""
        self.kill()
        settings = self._store.settings
        horse = self.horse = Horse(settings.tasks, settings.artifacts, self._on_line)
        horse.wait_until_ready(self._give_up)
        if not horse.types:
            log.warning("the modules %s have no handlers: no task can run here", ", ".join(settings.tasks) or "(none)")

    def publish(self) -> None:
        """Publish the task types that the horse serves. Raises GhostlessError."""
        if self.horse:
            self._store.publish_types(self.horse.types)

    def publish_if_lost(self) -> None:
        """Publish the types again after Redis lost them. Raises GhostlessError."""
        if self.horse and not self._store.are_published(self.horse.types):
            self.publish()

    def let_go(self) -> None:
        """In a fork of the worker: close what ties the horse to it."""
        if self.horse:
            self.horse.let_go()

    def retire(self, patience: float) -> None:
        """Let the horse run its teardown for at most `patience` seconds, then make sure it is gone."""
        if self.horse:
            self.horse.retire(patience)

    def kill(self) -> None:
        """Make sure that no horse is left, also not as a zombie."""
        if self.horse:
            self.horse.kill()

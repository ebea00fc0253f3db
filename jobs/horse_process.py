"""The worker's side of one horse: start it warm, talk to it, know how it died, end it with all its children."""

import contextlib
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, TextIO, cast

import psutil

from .errors import GhostlessError
from .frames import Channel, FrameError
from .launch import Launch, spawn
from .memory import MemoryWatch
from .output import Output
from .permits import Permits
from .processes import end, offspring, signal_name

SEND_TIMEOUT = 5
"""Seconds that a horse may leave a frame unread before it counts as broken."""


KILLED = "its worker killed it"
"""The cause of the death of a horse that lived well before."""

_PLACE = re.compile(r'File "(.+)", line (\d+)')


class HorseBroken(GhostlessError):
    """No task can run in a horse: one line says what is wrong; `detail` is the traceback, where there is one."""

    def __init__(self, summary: str, detail: str = "") -> None:
        self.summary, self.detail = summary, detail
        super().__init__(f"{summary}\n{detail}".strip())


@dataclass(frozen=True, slots=True)
class SetupFailure:
    """Why the setup of a task type failed before any task: in one line, and with its traceback."""

    why: str
    detail: str = ""


class Horse:
    """One warm process in a group of its own, so that it can be killed with its children."""

    def __init__(
        self,
        modules: Sequence[str],
        artifacts: str,
        on_line: Callable[[TextIO, str], None],
        launch: Launch = spawn,
    ) -> None:
        """Start the process. `on_line` gets each line that a handler prints, and the stream of ours it is meant for."""
        ours, theirs = socket.socketpair()
        with theirs:
            # The pidfd tells of the end also when a grandchild keeps the other end of the channel open.
            self._process, pidfd = launch(theirs)
        self._pidfd: int | None = pidfd
        self._outputs = [
            Output(cast("IO[bytes]", self._process.stdout), partial(on_line, sys.stdout)),
            Output(cast("IO[bytes]", self._process.stderr), partial(on_line, sys.stderr)),
        ]
        for output in self._outputs:
            output.start()
        self.permits = Permits()
        with contextlib.suppress(OSError):  # it is dead already, which is noticed below
            socket.send_fds(ours, [b"p"], [self.permits.fd])
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT, 0))
        self.channel = Channel(ours)
        self._inbox = deque[dict[str, Any]]()
        self.holds_output = False  # since several tasks may be running, of which it would not be known who prints
        self._fault = ""
        self._cause = ""
        self._memory = MemoryWatch()
        self.types: Mapping[str, Mapping[str, Any]] = {}
        self.setting_up = ""  # the type whose setup runs, or did not run to its end
        self.set_up: set[str] = set()  # the types whose setup did
        self.retires = ""  # why it is to run no further task, in the words of what runs in it
        self._send({"kind": "load", "modules": list(modules), "artifacts": artifacts})

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs and can be talked to; a handler may have closed or garbled its channel."""
        return self._process.poll() is None and not self._fault and not self.channel.is_ended

    @property
    def rss(self) -> int:
        """Resident memory of the process in bytes; 0 when it is gone.

        What handlers started ends with them, and pages shared with helpers would count twice: children are left out.
        """
        try:
            return psutil.Process(self.pid).memory_info().rss
        except psutil.Error:
            return 0

    def wait_until_ready(self, give_up: Callable[[], bool]) -> bool:
        """Wait until the task modules are loaded; False when `give_up` said so first. Raises HorseBroken."""
        module = ""
        while not give_up():
            for frame in self.frames(timeout=0.5):
                if frame["kind"] == "loading":
                    module = frame["module"]
                elif frame["kind"] == "ready":
                    self.types = frame["types"]
                    return True
                else:
                    self.kill()
                    raise _not_loaded(frame["module"], frame["traceback"])
            if not self.alive:
                ended = f"its process ended: {self.cause_of_death()}"
                raise HorseBroken(f"{module or 'the horse'} could not be loaded: {ended}")
        return False

    def preload(self, name: str, patience: float, give_up: Callable[[], bool]) -> SetupFailure | None:
        """Run the setup of a type, for at most `patience` seconds; return why it failed, if it did.

        When `give_up` says so it is not waited for any more.
        """
        self._send({"kind": "set up", "type": name})
        give_up_at = time.monotonic() + patience
        while not give_up() and name not in self.set_up:
            for frame in self.frames(timeout=0.5):
                if frame["kind"] == "setup failed":
                    return SetupFailure(frame["message"], frame["traceback"])
            if not self.alive:
                return SetupFailure(f"it ended its process: {self.cause_of_death()}")
            if time.monotonic() >= give_up_at:
                self.kill()
                return SetupFailure(f"it ran longer than the timeout of the type, {patience:g} s")
        return None

    def frames(self, timeout: float, also: Sequence[int] = ()) -> Iterator[dict[str, Any]]:
        """Yield the frames that came within `timeout` seconds; fewer when an fd of `also` is readable before.

        What is left when the caller stops is there for the next one.
        """
        if not self._inbox:
            self._inbox.extend(self._received(timeout, also))
        while self._inbox:
            frame = self._inbox.popleft()
            self._note(frame)
            yield frame

    def _received(self, timeout: float, also: Sequence[int]) -> list[dict[str, Any]]:
        if self._pidfd is None:
            return []
        ours = self.channel.fileno()
        readable, _, _ = select.select([ours, self._pidfd, *also], [], [], max(0.0, timeout))
        try:
            return self.channel.receive_ready() if ours in readable else []
        except FrameError as error:
            self._fault = f"it sent what is no frame ({error})"
            return []

    def _note(self, frame: Mapping[str, Any]) -> None:
        self.retires = frame.get("retire") or self.retires
        if frame.get("kind") == "setup begun":
            self.setting_up = frame["type"]
        elif frame.get("kind") == "setup done":
            self.setting_up = ""
            self.set_up.add(frame["type"])

    def catch_up(self) -> None:
        """Wait a moment until all that the handler printed is handed out."""
        self.hand_out()
        for output in self._outputs:
            output.catch_up()

    def run(self, *orders: Mapping[str, Any]) -> None:
        """Give the horse tasks to run one after the other. One that is dead is noticed by who waits for its frames.

        Those behind the first it begins only with a permit. It goes on for as long as each handler returns and says
        nothing, so nothing is handed out of what is printed: it is of the last one that began.
        """
        self._memory.look()
        first, *behind = orders
        if behind:
            self.holds_output = True
            for output in self._outputs:
                output.hold()
        self.permits.give(len(behind))
        self._send({"kind": "run", **first}, *({"kind": "run", "permit": True, **order} for order in behind))

    def hand_out(self) -> None:
        """Hand out what is printed from now on: nobody but one handler can be the one who prints."""
        if self.holds_output:
            self.holds_output = False
            for output in self._outputs:
                output.go_on()

    def extend(self, task_id: str, attempt: int, until: float) -> None:
        """Let the handler of this very attempt go on until then, on the monotonic clock; else the horse ends itself."""
        self._memory.look()
        self._send({"kind": "lease", "task_id": task_id, "attempt": attempt, "until": until})

    def ask_to_stop(self, task_id: str, attempt: int, why: str, *, force: bool) -> None:
        """Ask the handler of this very attempt to stop; with `force` by raising in it at once."""
        self._send({"kind": "stop", "task_id": task_id, "attempt": attempt, "why": why, "force": force})

    def _send(self, *frames: dict[str, Any]) -> None:
        try:
            self.channel.send(*frames)
        except OSError as error:
            self._fault = f"a frame could not be sent to it ({error})"

    def kill(self) -> None:
        """Kill the process and its group, and wait until it is gone; the channel is closed then."""
        if self._pidfd is None:
            return
        self.hand_out()
        if self._process.poll() is None and not self._cause:
            self._cause = KILLED
        left = offspring(self.pid)  # also those in a session of their own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        end(left)
        self.channel.close()
        self.permits.close()
        if self._process.stdin:
            self._process.stdin.close()
        os.close(self._pidfd)
        self._pidfd = None
        for output in self._outputs:
            output.join(0.5)  # what it printed last; only a process out of reach can keep the pipe open

    def retire(self, patience: float) -> None:
        """Let the process run its teardown for at most `patience` seconds, then make sure it is gone."""
        self._send({"kind": "exit"})
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.kill()

    def let_go(self) -> None:
        """In a fork of the worker: close this process' copies of what ties the horse to the worker."""
        self.channel.close()
        self.permits.close()
        if self._process.stdin:
            self._process.stdin.close()

    def cause_of_death(self) -> str:
        """Say in words how the process ended, once it does not answer any more; one that lives on is killed."""
        if not self._cause:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)  # the end of its channel comes a moment before its own
            self._cause = self._told_by(self._process.poll())
        self.kill()
        return self._cause

    def _told_by(self, code: int | None) -> str:
        if code is None:
            return f"{self._fault or 'it closed its channel'}, and it was killed"
        if code >= 0:
            return f"exit code {code}"
        return killed_by(-code, ran_out=-code == signal.SIGKILL and self._memory.has_struck())


def killed_by(number: int, *, ran_out: bool = False) -> str:
    """Say in words which signal ended a process; `ran_out` when the kernel has just killed one for memory."""
    hint = ", probably out of memory: the kernel has just killed a process for that" if ran_out else ""
    return f"signal {number} ({signal_name(number)}){hint}"


def _not_loaded(module: str, traceback: str) -> HorseBroken:
    """Return the error that names module, fault and place in one line."""
    *_, (file, line) = _PLACE.findall(traceback) or [("", "")]
    place = f" ({file}, line {line})" if file and "importlib" not in file else ""
    return HorseBroken(f"{module} could not be loaded: {traceback.strip().splitlines()[-1].strip()}{place}", traceback)

"""The worker's side of a zygote: it asks for horses, and is told how they end, since it is not their parent."""

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO, TextIO, cast

from .horse_process import HorseBroken
from .launch import LOADING_LIMIT, Process, interpreter, spawn
from .output import Output
from .tether import adopt_orphans

log = logging.getLogger("rq.worker.ghostless")

PATIENCE = 5.0
"""Seconds in which a zygote that has imported its modules must have forked."""

NEWS_AFTER = 1.0
"""Seconds after the end of a horse in which its zygote must have told the exit code."""


class ZygoteProcess:
    """One zygote, and the exit codes of its horses."""

    def __init__(self, modules: Sequence[str], on_line: Callable[[TextIO, str], None]) -> None:
        """Start the process. `on_line` gets each line that a module prints, and the stream of ours it is meant for."""
        adopt_orphans()  # a horse whose zygote ends becomes ours, and nobody else takes it for abandoned
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = interpreter("zygote", theirs, *modules)
        for pipe, stream in ((self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr)):
            Output(cast("IO[bytes]", pipe), partial(on_line, stream)).start()
        self._receiving = threading.Lock()
        self._codes: dict[int, int] = {}
        self._is_ready = False

    @property
    def alive(self) -> bool:
        """Whether horses can be forked from it, now or when its modules are imported."""
        return self._process.poll() is None

    def launch(self, theirs: socket.socket, give_up: Callable[[], bool]) -> tuple[Process, int]:
        """Fork a horse. Where that is not possible it is spawned, and tells itself what is wrong with its modules.

        Raises HorseBroken when `give_up` says that none is needed any more.
        """
        try:
            self._await_ready(give_up)
            return self._fork(theirs)
        except OSError as error:
            log.warning("no horse can be forked (%s): a fresh one is spawned", error)
            self.kill()
            return spawn(theirs)

    def code_of(self, pid: int, patience: float) -> int | None:
        """Return the exit code of a horse that has ended; None when the zygote does not tell it in time (seconds)."""
        give_up_at = time.monotonic() + patience
        with self._receiving, contextlib.suppress(OSError, ValueError):  # the latter when it was closed here
            while pid not in self._codes:
                self._receive(give_up_at - time.monotonic())
        return self._codes.pop(pid, None)

    def let_go(self) -> None:
        """In a fork of the worker: close this process' copies of what ties the zygote to the worker."""
        self._control.close()
        if self._process.stdin:
            self._process.stdin.close()

    def kill(self) -> None:
        """Make sure that the process is gone; its horses are not touched."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.let_go()

    def _await_ready(self, give_up: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + LOADING_LIMIT
        while not self._is_ready:
            if give_up():
                raise HorseBroken("the worker is to end before it has a horse")
            if time.monotonic() >= give_up_at:
                raise TimeoutError(f"its modules are not imported after {LOADING_LIMIT:g} s")
            with self._receiving, contextlib.suppress(TimeoutError):
                self._receive(0.5)

    def _fork(self, theirs: socket.socket) -> tuple[Process, int]:
        (their_in, our_in), (our_out, their_out), (our_err, their_err) = (os.pipe() for _ in range(3))
        ours = (os.fdopen(our_in, "wb", 0), os.fdopen(our_out, "rb", 0), os.fdopen(our_err, "rb", 0))
        try:
            socket.send_fds(self._control, [b"fork"], [theirs.fileno(), their_in, their_out, their_err])
            give_up_at = time.monotonic() + PATIENCE
            with self._receiving:
                while (forked := self._receive(give_up_at - time.monotonic())) is None:
                    pass
        except OSError:
            for pipe in ours:
                pipe.close()
            raise
        finally:
            for descriptor in (their_in, their_out, their_err):
                os.close(descriptor)
        return Forked(self, *forked, *ours), forked[1]

    def _receive(self, timeout: float) -> tuple[int, int] | None:
        """Take in the next message; return pid and pidfd when it tells of a fork. Raises OSError."""
        if not select.select([self._control], [], [], max(0.0, timeout))[0]:
            raise TimeoutError("the zygote does not answer")
        message, descriptors, _, _ = socket.recv_fds(self._control, 64, 1, socket.MSG_CMSG_CLOEXEC)
        match message.split():
            case [b"forked", pid]:
                return int(pid), descriptors[0]
            case [b"ended", pid, code]:
                self._codes[int(pid)] = int(code)
            case [b"ready"]:
                self._is_ready = True
            case _:
                raise ConnectionResetError("the zygote has ended")
        return None


class Forked:
    """A horse that a zygote forked, as what a worker needs of a process."""

    def __init__(
        self,
        zygote: ZygoteProcess,
        pid: int,
        pidfd: int,
        stdin: IO[bytes],
        stdout: IO[bytes],
        stderr: IO[bytes],
    ) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout
        self.stderr: IO[bytes] | None = stderr
        self._zygote, self._pidfd = zygote, pidfd
        self._code: int | None = None
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._code if self._code is not None or not self._has_ended(0) else self._read_code()

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended. Raises TimeoutExpired after `timeout` seconds."""
        if self._code is None and not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("horse", timeout or 0)
        return self._read_code()

    def _has_ended(self, timeout: float | None) -> bool:
        return bool(select.select([self._pidfd], [], [], timeout)[0])

    def _read_code(self) -> int:
        with self._reading:
            if self._code is None:
                code = self._zygote.code_of(self.pid, NEWS_AFTER)
                self._code = self._reap() if code is None else code
            return self._code

    def _reap(self) -> int:
        """Return the exit code of a horse whose zygote does not tell it; without the zygote it is a child of ours."""
        self._zygote.kill()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

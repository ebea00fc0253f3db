"""The warm child process that runs handlers: `python -m ghostless.jobs.horse FD`, started by a worker.

It imports the task modules, runs task after task in its main thread, and talks to nobody but its worker. A second
thread reads the worker's frames, so that a stop arrives while a handler runs.
"""

import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, cast

from .attempt import Attempt
from .execution import Runner
from .failure import traceback_of
from .frames import Channel, Frame
from .output import waiting
from .permits import Gate
from .registry import registry
from .tether import Lease, die, tie_to_worker

SMALL = 4096
"""Characters of a result that may wait for others to be told with it."""


class Horse:
    """The life of one horse, from its first frame to its last."""

    def __init__(self, channel: Channel, gate: Gate) -> None:
        self._channel, self._gate = channel, gate
        self._orders = queue.SimpleQueue[tuple[Frame, Attempt | None]]()
        self._known: dict[tuple[str, int], Attempt] = {}  # those that run, or were ordered
        self._current: Attempt | None = None
        self._goes_on = False  # with the next order, if that has a permit
        self._lease = Lease()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self._home = os.open(".", os.O_RDONLY)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Whoever ends a whole group means the worker, which decides what becomes of the handler. Not ignored but
        # handled by nothing, since what is ignored stays so in the programs that a handler starts.
        signal.signal(signal.SIGTERM, lambda _signal, _frame: None)
        signal.signal(signal.SIGUSR1, self._interrupt)

    def live(self) -> int:
        """Load, then run what comes until told to exit. Returns the exit code."""
        threading.Thread(target=self._read, name="ghostless-reader", daemon=True).start()
        load, _ = self._orders.get()
        if not self._load(load["modules"]):
            return 1
        runner = Runner(registry, Path(load["artifacts"]).absolute(), self._channel.send)
        while True:
            order, attempt = self._orders.get()
            if attempt:
                if self._may_begin(order):
                    self._run(runner, attempt, order)
                self._forget(attempt)
            elif order["kind"] == "set up":
                runner.preload(order["type"])
            else:
                return self._exit(runner)

    def _load(self, modules: Iterable[str]) -> bool:
        for module in modules:
            self._channel.send({"kind": "loading", "module": module})  # a module that ends the process says nothing
            try:
                registry.load([module])
            except BaseException as error:  # SystemExit too
                self._channel.send({"kind": "broken", "module": module, "traceback": traceback_of(error)})
                return False
        self._channel.send({"kind": "ready", "types": registry.published(), "pid": os.getpid()})
        return True

    def _may_begin(self, order: Frame) -> bool:
        """Tell whether an order is still to be carried out: one behind another may have been taken back."""
        return "permit" not in order or (self._goes_on and self._gate.opens())

    def _forget(self, attempt: Attempt) -> None:
        # One that was passed over may have been ordered again, and then is known by that order.
        if self._known.get((attempt.task_id, attempt.number)) is attempt:
            del self._known[attempt.task_id, attempt.number]

    def _run(self, runner: Runner, attempt: Attempt, order: Frame) -> None:
        self._current = attempt
        if "permit" in order:
            self._lease.begin(attempt, order["until"])
        self._lease.wait_until_it_runs()  # this process may have been frozen since the order came
        signal.signal(signal.SIGUSR1, self._interrupt)  # user code may have taken it
        ending = runner.run(attempt, order)
        self._current = None  # before the worker hears of the end, and orders the next
        self._lease.rest()
        signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm that the handler left behind is not for the next one
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        runner.end_what_handlers_started()
        _flush_output()
        os.fchdir(self._home)  # the handler may have gone to its temporary folder, which the worker removes
        threads = runner.threads_left()
        self._goes_on = attempt.is_quiet and not threads and _is_small(ending) and not _has_printed()
        attempt.finish(**ending, threads=threads, goes_on=self._goes_on)

    def _exit(self, runner: Runner) -> int:
        for error in runner.tear_down():
            traceback.print_exception(error)
        return 0

    def _interrupt(self, _signal: int, frame: FrameType | None) -> None:
        """Run by the main thread between two steps of whatever it does."""
        attempt = self._current
        if attempt is not None:
            attempt.interrupt(frame)

    # The reader thread

    def _read(self) -> None:
        try:
            while (frame := self._channel.receive()) is not None:
                self._take(frame)
                if frame["kind"] == "exit":
                    return
        except Exception:
            traceback.print_exc()
        die()  # the worker is gone, or not to be understood

    def _take(self, frame: Frame) -> None:
        if frame["kind"] == "stop":
            self._stop(frame)
        elif frame["kind"] == "lease":
            attempt = self._addressed(frame)
            if attempt:
                self._lease.extend(attempt, frame["until"])
        elif frame["kind"] == "run":
            # From now on a stop finds the attempt, even before the main thread does.
            attempt = Attempt(self._channel, frame["task_id"], frame["attempt"])
            self._known[attempt.task_id, attempt.number] = attempt
            if "permit" not in frame:
                self._lease.begin(attempt, frame["until"])
            self._orders.put((frame, attempt))
        else:
            self._orders.put((frame, None))

    def _addressed(self, frame: Frame) -> Attempt | None:
        """Return the attempt that a frame is meant for, unless that is over."""
        return self._known.get((frame["task_id"], frame["attempt"]))

    def _stop(self, frame: Frame) -> None:
        attempt = self._addressed(frame)
        if attempt is None:
            return
        attempt.stop_asked = frame["why"]
        if frame["force"]:
            attempt.is_forced = True
            signal.pthread_kill(cast(int, threading.main_thread().ident), signal.SIGUSR1)


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or replaced by user code
            stream.flush()


def _is_small(ending: Mapping[str, Any]) -> bool:
    """Tell whether an attempt returned what can wait for others to be told with it."""
    return ending["kind"] == "returned" and len(ending["result"]) <= SMALL


def _has_printed() -> bool:
    """Tell whether something is printed that the worker has not read; while others may follow, it reads nothing."""
    try:
        return any(waiting(stream) for stream in (1, 2))
    except OSError:  # closed, or replaced by user code
        return True


def live_on(descriptor: int) -> int:
    """Be a horse on a channel, tied to the worker by the standard input. Returns the exit code."""
    connected = socket.socket(fileno=descriptor)
    os.set_inheritable(connected.fileno(), False)
    tie_to_worker()
    # A worker of an older version gives no permits, but begins with its first frame.
    received, permits, _, _ = socket.recv_fds(connected, 1, 1, socket.MSG_CMSG_CLOEXEC)
    channel = Channel(connected, b"" if permits else received)
    os.register_at_fork(after_in_child=channel.close)  # what a handler forks must not keep the channel open
    return Horse(channel, Gate(permits[0] if permits else None)).live()


if __name__ == "__main__":
    sys.exit(live_on(int(sys.argv[1])))

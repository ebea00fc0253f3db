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
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import cast

from .attempt import Attempt
from .execution import Runner
from .failure import traceback_of
from .frames import Channel, Frame
from .registry import registry
from .tether import Lease, die, tie_to_worker


class Horse:
    """The life of one horse, from its first frame to its last."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._orders = queue.SimpleQueue[tuple[Frame, Attempt | None]]()
        self._current: Attempt | None = None
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
                self._run(runner, attempt, order)
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

    def _run(self, runner: Runner, attempt: Attempt, order: Frame) -> None:
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
        attempt.finish(**ending, threads=runner.threads_left())

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
            self._current = Attempt(self._channel, frame["task_id"], frame["attempt"])
            self._lease.begin(self._current, frame["until"])
            self._orders.put((frame, self._current))
        else:
            self._orders.put((frame, None))

    def _addressed(self, frame: Frame) -> Attempt | None:
        """Return the running attempt if a frame is meant for it; it may be about an earlier one."""
        attempt = self._current
        if attempt and (attempt.task_id, attempt.number) == (frame["task_id"], frame["attempt"]):
            return attempt
        return None

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


def live_on(descriptor: int) -> int:
    """Be a horse on a channel, tied to the worker by the standard input. Returns the exit code."""
    channel = Channel(socket.socket(fileno=descriptor))
    os.set_inheritable(channel.fileno(), False)
    os.register_at_fork(after_in_child=channel.close)  # what a handler forks must not keep the channel open
    tie_to_worker()
    return Horse(channel).live()


if __name__ == "__main__":
    sys.exit(live_on(int(sys.argv[1])))

"""One running attempt inside the horse: where its frames go, and how its handler is made to stop.

A handler stops in two ways. Asked gently, `check` raises at the next call of the context. Asked with force, a
signal also raises in the main thread, wherever the handler is. That one must hit user code of this very attempt
and nothing else, so `interrupt` looks at the frames below the signal before it raises.
"""

import threading
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

from .errors import StaleAttempt, TaskStopped
from .frames import Channel

P = ParamSpec("P")
T = TypeVar("T")


class Attempt:
    """One attempt of one task, known to the handler's thread and to the one that reads the worker's frames."""

    def __init__(self, channel: Channel, task_id: str, number: int) -> None:
        self.task_id, self.number = task_id, number
        self.stop_asked: str | None = None  # why, once it was asked to stop
        self.is_forced = False  # asked for the second time, or for a reason that waits for nothing
        self.has_checkpoint = False
        self.is_interrupted = False  # the last stop was raised by the signal, not by a call of the context
        self.is_quiet = True  # it has sent nothing yet
        self._channel = channel
        self._lock = threading.Lock()
        self._sender: int | None = None  # the thread whose frame is on its way
        self._is_over = False
        self._is_held_back = False

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call user code: here, and nowhere else, a forced stop may raise TaskStopped."""
        self.check()
        return function(*args, **kwargs)

    def check(self) -> None:
        """Raise TaskStopped if the attempt was asked to stop; one that saves its work may first get to do so."""
        if self.stop_asked is not None and (self.is_forced or not self.has_checkpoint):
            self.is_interrupted = False
            raise TaskStopped(self.stop_asked)

    def check_saved(self) -> None:
        """Raise TaskStopped if the attempt was asked to stop, now that its work is saved."""
        if self.stop_asked is not None:
            self.is_interrupted = False
            raise TaskStopped(self.stop_asked)

    def send(self, kind: str, **fields: object) -> None:
        """Send one frame about this attempt. Raises StaleAttempt once the attempt is over."""
        with self._lock:
            if self._is_over:
                raise StaleAttempt(self.task_id, self.number)
            self._sender = threading.get_ident()
            self.is_quiet = False
            try:
                self._channel.send({"kind": kind, "task_id": self.task_id, "attempt": self.number, **fields})
                self.has_checkpoint |= kind == "checkpoint"
            finally:
                self._sender = None
        if self._is_held_back and threading.current_thread() is threading.main_thread():
            self._is_held_back = False
            self.check()

    def finish(self, kind: str, **fields: object) -> None:
        """Send the last frame of this attempt; threads that its handler left behind can send no more."""
        with self._lock:
            self._is_over = True
            self._channel.send({"kind": kind, "task_id": self.task_id, "attempt": self.number, **fields})

    def interrupt(self, interrupted: FrameType | None) -> None:
        """Raise TaskStopped in the main thread if it runs user code; if it sends a frame, when that is sent."""
        frame = interrupted
        while frame is not None and frame.f_code is not _CALL:
            frame = frame.f_back
        if frame is None or frame is interrupted:
            return  # not in `call`, or its function has returned
        if self._sender == threading.get_ident():
            self._is_held_back = True
        elif self.stop_asked is not None and self.is_forced:
            self.is_interrupted = True
            raise TaskStopped(self.stop_asked)


_CALL = Attempt.call.__code__

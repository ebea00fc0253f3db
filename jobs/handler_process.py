"""The process in which the handler of one subscription runs.

A handler that hangs or crashes is ended with its process and costs nobody else anything: Python can end no thread.
"""

import asyncio
import inspect
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import psutil

from .client import Client
from .failure import describe_error
from .model import Entry
from .processes import end_abandoned, signal_name
from .settings import Settings
from .subscriptions import Subscription
from .tether import adopt_orphans, tie_to_worker

_FRESH = multiprocessing.get_context("spawn")  # the listener has threads, which no fork survives

ENDING = 1.0
"""Seconds that a process which closed its end of the channel gets to end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a handler ended: well when there is no `error`. `asked` is ms, from RetryLater."""

    message: str = ""
    error: str = ""
    asked: int = 0

    @property
    def is_done(self) -> bool:
        """Whether it need not be called again."""
        return not self.message


class Children:
    """The children of this process that are to live; a further one was left by a handler that ended.

    What a handler started stays below its process, and becomes a child of ours when that one ends.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._kept: set[int] = set()

    def start(self, process: Any) -> int:
        """Start one and return a pidfd of it. Raises OSError."""
        with self._changing:
            if not self._kept:
                self._begin()
            process.start()
            self._kept.add(process.pid)
            return os.pidfd_open(process.pid)

    def _begin(self) -> None:
        adopt_orphans()
        resource_tracker.ensure_running()  # multiprocessing's own, which ends with us
        self._kept.update(child.pid for child in psutil.Process().children())

    def bury(self, process: Any) -> None:
        """End one, and whatever is left of it."""
        process.kill()
        process.join()
        with self._changing:
            self._kept.discard(process.pid)
            end_abandoned(self._kept)


_children = Children()


class HandlerProcess:
    """A process for one handler, started when it is first needed, and anew after it ended."""

    def __init__(self, subscription: Subscription, settings: Settings) -> None:
        self.subscription, self._settings = subscription, settings
        self._process: Any = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended by us."""
        return self._process is not None

    def start(self) -> None:
        """Start it; its first outcome tells whether the handler could be imported."""
        self._channel, theirs = _FRESH.Pipe()
        tie, self._tie = _FRESH.Pipe(duplex=False)  # nobody writes to it: its end tells that the listener is gone
        process = _FRESH.Process(target=_serve, args=(theirs, tie, self.subscription, self._settings))
        self._pidfd = _children.start(process)  # which tells its end; its children may keep everything else open
        theirs.close()
        tie.close()
        self._process, self._called = process, ""

    def begin(self, entry: Entry) -> None:
        """Call the handler."""
        self._called = entry.id
        with suppress(OSError):  # it died meanwhile, as the outcome will tell
            self._channel.send(entry)

    def outcome(self, seconds: float) -> Outcome | None:
        """Return how the call, or the start, ended; None when it did not within `seconds`."""
        if not wait([self._channel, self._pidfd], seconds):
            return None
        with suppress(EOFError, OSError):
            if self._channel.poll():
                called, outcome = self._channel.recv()
                return cast(Outcome, outcome) if called == self._called else None
        code = self._exit_code()
        self.kill()
        return Outcome(f"the handler's process {_how_it_ended(code)}")

    def _exit_code(self) -> int | None:
        """Return with what it ended; None when it closed its end of the channel and runs on."""
        give_up_at = time.monotonic() + ENDING
        while (code := self._process.exitcode) is None and time.monotonic() < give_up_at:
            time.sleep(0.01)  # multiprocessing can only wait for a descriptor, which it closed, too, or for ever
        return code

    def kill(self) -> None:
        """End the process and whatever the handler started."""
        if self._process is None:
            return
        _children.bury(self._process)
        os.close(self._pidfd)
        self._channel.close()
        self._tie.close()
        self._process = None


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed its connection to the listener, and did not end"
    return f"ended: {signal_name(-code) if code < 0 else f'exit code {code}'}"


def _serve(channel: Connection, tie: Connection, subscription: Subscription, settings: Settings) -> None:
    """Be the process: import the handler, and call it for one entry after the other."""
    os.dup2(tie.fileno(), 0)
    tie_to_worker()
    for number in (signal.SIGTERM, signal.SIGINT):  # the listener decides; a child of the handler's gets the default
        signal.signal(number, lambda _number, _frame: None)
    cast(TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # a line is seen when it is printed
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    answer = partial(_answer, channel, os.getpid())
    client = Client(settings)
    try:
        handler = subscription.handler()
    except BaseException as error:
        answer("", _told(error))
        return
    answer("", Outcome())
    with suppress(EOFError):
        while True:
            entry = channel.recv()
            answer(entry.id, _call(handler, entry, client))


def _answer(channel: Connection, home: int, called: str, outcome: Outcome) -> None:
    if os.getpid() != home:
        os._exit(0)  # a fork of the handler's that came back from it, and is not the one to answer
    channel.send((called, outcome))


def _call(handler: Callable[..., object], entry: Entry, client: Client) -> Outcome:
    try:
        result = handler(entry, client)
        if inspect.iscoroutine(result):
            asyncio.run(result)
    except BaseException as error:  # also a handler that calls sys.exit
        return _told(error)
    return Outcome()


def _told(error: BaseException) -> Outcome:
    told = describe_error(error, "", "", retryable=True)
    return Outcome(told["message"], told["error"], told["asked"])

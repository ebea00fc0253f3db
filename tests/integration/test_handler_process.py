"""The process of a handler: how the listener learns of its end, whatever the handler does to it."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest
from ghostless.jobs.client import Client
from ghostless.jobs.handler_process import HandlerProcess
from ghostless.jobs.model import Entry
from ghostless.jobs.settings import Settings
from ghostless.jobs.subscriptions import Subscription

ENTRY = Entry("1-1", "t1", "SUBMIT", "", "PENDING", 0, "client", "user", "", "demo.add", "q")


def close_everything(_entry: Entry, _client: Client) -> None:
    """Close what daemons close, and run on."""
    os.closerange(0, 1024)
    time.sleep(600)


def die_of_a_signal_without_a_name(_entry: Entry, _client: Client) -> None:
    """Be killed by one of the signals that are numbered only."""
    os.kill(os.getpid(), signal.SIGRTMIN + 6)


Start = Callable[[Callable[[Entry, Client], None]], HandlerProcess]


@pytest.fixture
def start(settings: Settings) -> Iterator[Start]:
    """Start the process of a handler."""
    started: list[HandlerProcess] = []

    def begin(handler: Callable[[Entry, Client], None]) -> HandlerProcess:
        place = f"{handler.__module__}:{handler.__name__}"
        started.append(HandlerProcess(Subscription("tell", place, ("SUBMIT",), 0, 5.0), settings))
        started[-1].start()
        outcome = started[-1].outcome(30)
        assert outcome
        assert outcome.is_done, outcome
        return started[-1]

    yield begin
    for process in started:
        process.kill()


@pytest.mark.timeout(60)
def is_handler(child: psutil.Process) -> bool:
    """Tell whether a child is a process of ours that lives."""
    with suppress(psutil.Error):  # one that another test left to be reaped
        return "spawn_main" in " ".join(child.cmdline())
    return False


def test_a_handler_that_closes_its_descriptors_and_runs_on(start: Start) -> None:
    """It is ended like one that hangs, and nobody waits for it."""
    process = start(close_everything)
    [child] = [child for child in psutil.Process().children() if is_handler(child)]
    process.begin(ENTRY)
    outcome = process.outcome(20)
    assert outcome
    assert "closed its connection" in outcome.message
    assert not process.is_running
    assert not child.is_running()


def test_a_signal_without_a_name_is_told_too(start: Start) -> None:
    """As any other end of the process."""
    process = start(die_of_a_signal_without_a_name)
    process.begin(ENTRY)
    outcome = process.outcome(20)
    assert outcome
    assert outcome.message == "the handler's process ended: Real-time signal 6"

"""Who watches: there is always somebody left to notice."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually, free_port

from .conftest import assert_clean, ended

pytestmark = pytest.mark.slow


def test_serve_watches(client: Client, fleet: Fleet, trace: Path) -> None:
    """With no watchdog of its own running, the web server releases what is due and finds a dead worker."""
    fleet.start("serve", "--port", str(free_port()))
    victim = fleet.worker("default", name="victim", tasks="lifecycle")
    task_id = eventually(lambda: submit(client, trace), seconds=20)
    eventually(lambda: assert_running(client, task_id))
    victim.kill()
    fleet.worker("default", name="heir", tasks="lifecycle")
    task = ended(client, task_id, "SUCCESS")
    assert (task.losses, task.attempt) == (1, 2)
    assert_clean(client, fleet, task_id)


def submit(client: Client, trace: Path) -> str:
    """Submit a task that waits for its time first."""
    assert "life.steps" in client.types()
    return client.submit("life.steps", {"trace": str(trace), "count": 20}, delay=0.2).task_id


def assert_running(client: Client, task_id: str) -> None:
    """Check that the task runs and has begun."""
    task = client.get(task_id)
    assert (task.state, task.progress is not None) == ("PROCESSING", True)


def test_serve_without_watchdog(client: Client, fleet: Fleet) -> None:
    """`--no-watchdog` leaves the watching to others."""
    port = free_port()
    fleet.start("serve", "--port", str(port), "--no-watchdog")
    eventually(lambda: assert_listening(port), seconds=20)
    assert client.reads.watchdog() is None


def assert_listening(port: int) -> None:
    """Check that something accepts connections."""
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) == 0


def test_two_watchdogs(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """Two watchdogs, one of them frozen for a while, do nothing twice."""
    serving()
    frozen = fleet.watchdog()
    ids = [client.submit("life.flaky", {"trace": str(trace)}, delay=0.1).task_id for _ in range(20)]
    frozen.send_signal(19)
    for task_id in ids:
        assert ended(client, task_id, "SUCCESS").attempt == 2
    frozen.send_signal(18)
    for task_id in ids:
        events = [entry.event for entry in client.history(task_id)]
        assert events == ["SUBMIT", "RELEASE", "START", "FAIL", "RETRY", "RELEASE", "START", "COMPLETE"]
    assert_clean(client, fleet, *ids)

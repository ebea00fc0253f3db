"""The scheduler as a process that dies and comes back."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.fleet import LOADING
from ghostless.jobs.model import Task
from ghostless.jobs.recurrence import Recurrence
from ghostless.jobs.schedules import Schedule
from ghostless.statemachine import FINAL
from helpers import eventually

from .conftest import assert_clean

pytestmark = pytest.mark.slow


def test_schedulers_that_are_killed(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """Two schedulers, each killed again and again: every due time has one task, none is left out, and all end."""
    serving()
    schedules = client.schedules
    params = {"trace": str(trace), "good_from": 1}
    schedules.put(Schedule("often", "life.flaky", Recurrence(every=1_000), params, misfire="all"))
    first = schedules.get("often").due
    for _ in range(3):
        running = [fleet.start("scheduler", "--interval", "0.1") for _ in range(2)]
        seen = len(tasks(client))
        eventually(lambda seen=seen: assert_more(client, seen), seconds=20)  # type: ignore[misc]
        for process in running:
            process.kill()
            process.wait()
    last = fleet.start("scheduler", "--interval", "0.1")
    seen = len(tasks(client))
    eventually(lambda: assert_more(client, seen), seconds=20)
    last.send_signal(signal.SIGTERM)
    assert last.wait(timeout=10) == 0
    eventually(lambda: assert_ended(client))
    dues = sorted(client.get(task.id).metadata["due"] for task in tasks(client))
    assert dues == list(range(first, schedules.get("often").due, 1_000))
    assert_clean(client, fleet, *[task.id for task in tasks(client)])


def tasks(client: Client) -> list[Task]:
    """Return every task."""
    return [task for task in client.list(Filter(), limit=500).tasks if isinstance(task, Task)]


def assert_more(client: Client, than: int) -> None:
    """Check that further tasks were submitted."""
    assert len(tasks(client)) > than


def assert_ended(client: Client) -> None:
    """Check that every task is over."""
    assert {task.state for task in tasks(client)} <= FINAL


def assert_ready(client: Client, number: int) -> None:
    """Check that so many workers have loaded, and published what they declare."""
    assert number == sum(member.state != LOADING for member in client.workers())


def test_workers_register_what_the_code_declares(client: Client, fleet: Fleet) -> None:
    """Two that start at once register the schedule once; what a person removed does not come back with the next one."""
    schedules = client.schedules
    for name in ("w0", "w1"):
        fleet.worker(name=name, tasks="timed")
    eventually(lambda: assert_ready(client, 2), seconds=25)
    there, now = schedules.all()
    assert list(there) == ["timed.tidy"]
    declared = schedules.get("timed.tidy")
    assert ("task", "Europe/Berlin", "skip") == (declared.source, declared.recurrence.zone, declared.overlap)
    assert declared.due > now
    assert tasks(client) == []
    schedules.remove("timed.tidy")
    fleet.worker(name="w2", tasks="timed")
    eventually(lambda: assert_ready(client, 3), seconds=25)
    assert schedules.all()[0] == {}

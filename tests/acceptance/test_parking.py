"""A type that a worker does not serve, with real workers and a watchdog: not lost, not burnt, holding nobody."""

from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.model import Task
from ghostless.lua import BATCH
from helpers import eventually

from .conftest import assert_clean, ended, entry_of, publish, rq_worker, story

pytestmark = pytest.mark.slow

ONCE = ["SUBMIT", "START", "COMPLETE"]
NOT_KNOWN_AT_FIRST = ["SUBMIT", "START", "SUSPEND", "RESUME", "START", "COMPLETE"]


@pytest.fixture(autouse=True)
def published(fleet: Fleet) -> None:
    """Publish all types before any worker runs, and let a watchdog run all the time."""
    publish(fleet, "lifecycle", "elsewhere")
    fleet.watchdog()


def submit(client: Client, trace: Path, number: int) -> list[str]:
    """Submit tasks of the type that only some serve; return their ids in order, in a millisecond that of the ids."""
    ids = [client.submit("elsewhere.note", {"trace": str(trace)}).task_id for _ in range(number)]
    return sorted(ids, key=lambda task_id: (client.get(task_id).submitted_at, task_id))


def submit_served(client: Client, trace: Path) -> str:
    """Submit a task of the type that the first worker serves."""
    return client.submit("life.flaky", {"trace": f"{trace}.served", "good_from": 1}).task_id


def parked(client: Client, *ids: str) -> list[Task]:
    """Return the tasks once they are all parked."""

    def check() -> list[Task]:
        tasks = [client.get(task_id) for task_id in ids]
        assert all(task.parked_at for task in tasks)
        return tasks

    tasks = eventually(check, seconds=25)
    assert {task.state for task in tasks} == {"PENDING"}
    return tasks


def done_once(client: Client, fleet: Fleet, trace: Path, ids: list[str], expected: list[str] = ONCE) -> None:
    """Check that each task ran to its end, in one attempt that counts, and in the order of the ids."""
    for task_id in ids:
        ended(client, task_id, "SUCCESS")
        assert story(client, task_id) == expected
    assert [line.split()[0] for line in trace.read_text().splitlines()] == ids
    assert_clean(client, fleet, *ids)


def starter(client: Client, task_id: str) -> str:
    """Return who started the task."""
    return entry_of(client, task_id, "START").actor


def test_others_wait_and_hold_nobody(client: Client, fleet: Fleet, trace: Path) -> None:
    """Twenty tasks of another type are passed over; when a worker serves them they run once, in order."""
    ids = submit(client, trace, 20)
    served = submit_served(client, trace)
    fleet.worker(name="first", tasks="lifecycle")
    ended(client, served, "SUCCESS")
    assert {task.attempt for task in parked(client, *ids)} == {0}
    assert client.reads.waiting(["default"])["default"].parked == {"elsewhere.note": 20}
    fleet.worker(name="second", tasks="elsewhere")
    done_once(client, fleet, trace, ids)
    more = submit(client, trace, 5)
    also_served = submit_served(client, trace)
    ended(client, also_served, "SUCCESS")
    done_once(client, fleet, trace, [*ids, *more])
    assert {starter(client, task_id) for task_id in (*ids, *more)} == {"worker:second"}
    assert {starter(client, task_id) for task_id in (served, also_served)} == {"worker:first"}
    assert_clean(client, fleet, served, also_served)


def test_burst(client: Client, fleet: Fleet, trace: Path) -> None:
    """A worker that ends with the queue does not end before what stands behind more tasks than one claim passes."""
    ids = submit(client, trace, BATCH + 1)
    served = submit_served(client, trace)
    assert fleet.start("worker", "default", "--tasks", "lifecycle", "--burst").wait(timeout=30) == 0
    ended(client, served, "SUCCESS")
    parked(client, *ids)
    assert_clean(client, fleet, served, *ids)


def test_a_person_acts_on_a_parked_task(client: Client, fleet: Fleet, trace: Path) -> None:
    """Cancelled, it never runs; paused and resumed, it is parked again, and runs when a worker serves it."""
    cancelled, paused = submit(client, trace, 2)
    fleet.worker(name="first", tasks="lifecycle")
    parked(client, cancelled, paused)
    client.cancel(cancelled)
    client.pause(paused)
    assert [client.get(task_id).state for task_id in (cancelled, paused)] == ["CANCELLED", "PAUSED"]
    assert client.reads.waiting(["default"])["default"].parked == {}
    client.resume(paused)
    parked(client, paused)
    fleet.worker(name="second", tasks="elsewhere")
    done_once(client, fleet, trace, [paused], ["SUBMIT", "PAUSE", "RESUME", "START", "COMPLETE"])
    assert story(client, cancelled) == ["SUBMIT", "CANCEL"]
    assert_clean(client, fleet, cancelled)


def test_a_stock_worker_without_the_handler(client: Client, fleet: Fleet, trace: Path) -> None:
    """It neither burns nor loses the tasks, nor goes round; published, a stock worker with the handler runs them."""
    ids = submit(client, trace, 2)
    assert rq_worker(fleet, "--name", "without", "--burst").wait(timeout=30) == 0
    for task in parked(client, *ids):
        assert (task.attempt, task.failures, task.timeouts, task.losses) == (1, 0, 0, 0)
        suspend = entry_of(client, task.id, "SUSPEND")
        assert (suspend.reason, suspend.actor) == ("unknown_type", "worker:without")
        assert "no handler for 'elsewhere.note'" in suspend.message
        assert "life.flaky" in suspend.message
    assert_clean(client, fleet, *ids)
    publish(fleet, "elsewhere")
    assert [task.parked_at for task in map(client.get, ids)] == [None, None]
    assert rq_worker(fleet, "--name", "with", "--burst", tasks="elsewhere").wait(timeout=30) == 0
    done_once(client, fleet, trace, ids, NOT_KNOWN_AT_FIRST)


def test_a_worker_whose_horse_forgot_a_type(client: Client, fleet: Fleet, trace: Path) -> None:
    """It meets the type once and asks for it no more; another worker runs the task."""
    fleet.worker(name="first", tasks="elsewhere")
    ended(client, client.submit("elsewhere.forget").task_id, "SUCCESS")
    ids = submit(client, trace, 1)
    parked(client, *ids)
    served = client.submit("elsewhere.forget").task_id
    ended(client, served, "RETRY_WAITING")
    assert [task.attempt for task in parked(client, *ids)] == [1]
    client.cancel(served)
    fleet.worker(name="second", tasks="elsewhere")
    done_once(client, fleet, trace, ids, NOT_KNOWN_AT_FIRST)

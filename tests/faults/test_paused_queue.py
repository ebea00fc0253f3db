"""A paused queue: whatever happens meanwhile, nothing of it starts, and nothing of it is stranded (B36)."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, begun, ended, owner, running
from fleet import QUICK, Fleet
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.recurrence import Recurrence
from ghostless.jobs.schedules import Schedule
from helpers import eventually
from redis_server import RedisServer

pytestmark = pytest.mark.slow

LEASE = float(QUICK["GHOSTLESS_LEASE"])


def test_nothing_starts_and_nothing_is_stranded(
    serving: Callable[..., None], server: RedisServer, client: Client, fleet: Fleet, tmp_path: Path, end: Path
) -> None:
    """Idle workers take none; what is due, lost or scheduled meanwhile waits, over a restart of everything."""
    serving(workers=3)
    kept, lost, waiting = tmp_path / "kept", tmp_path / "lost", tmp_path / "waiting"
    living, orphan = (
        client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id for trace in (kept, lost)
    )
    for trace in (kept, lost):
        running(trace)
    client.resume_queue("default")  # which was never paused
    paused_at = time.monotonic()
    for _ in range(2):  # to be resumed once
        client.pause_queue("default")
    due = client.submit("life.once", {"trace": str(waiting)}, delay=0.3).task_id
    schedule = Schedule("often", "life.once", Recurrence(every=1_000), {"trace": str(waiting)}, overlap="skip")
    client.schedules.put(schedule)
    fleet.start("scheduler", "--interval", "0.1")
    ids = [client.submit("life.once", {"trace": str(waiting)}).task_id for _ in range(10)]
    owner(client, fleet, orphan).kill()
    ended(client, orphan, "PENDING")
    ended(client, due, "PENDING")
    eventually(lambda: assert_scheduled(client))
    assert client.get(living).attempt == 1, "a worker that is at it keeps its lease"
    for worker in fleet.processes[1:4]:
        if worker.poll() is None and worker is not owner(client, fleet, living):
            worker.kill()
    server.restart()
    fleet.watchdog()
    fleet.worker("default", name="newcomer", tasks="lifecycle")
    eventually(lambda: assert_member(client, "newcomer"), seconds=20)
    time.sleep(max(0.0, paused_at + 3 * LEASE - time.monotonic()))  # the fault itself
    assert client.queues()["default"] == "paused"
    assert not waiting.exists()
    client.schedules.remove("often")
    client.resume_queue("default")
    begun(lost, 2)
    end.touch()
    everything = [task.id for task in client.list(Filter(), limit=100).tasks]
    assert {living, orphan, due, *ids} < set(everything)
    for task_id in everything:
        ended(client, task_id, "SUCCESS")
    assert_clean(client, fleet, *everything)


def assert_scheduled(client: Client) -> None:
    """Check that the schedule had its run while the queue was paused."""
    assert client.schedules.get("often").last_task


def assert_member(client: Client, name: str) -> None:
    """Check that a worker has come up."""
    assert name in [member.name for member in client.workers()]

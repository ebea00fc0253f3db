"""Workers of one name: the next one takes over from a dead one at once, and two live ones never share it."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually

from .conftest import assert_clean, begun, ended, entry_of, running

pytestmark = pytest.mark.slow

ENTRY = "rq:worker:w0"


@pytest.fixture(autouse=True)
def long_lease(fleet: Fleet) -> None:
    """No lease ends during a test, so that nothing but what is tested can notice a death."""
    fleet.environment["GHOSTLESS_LEASE"] = "60"


def another_w0(fleet: Fleet) -> subprocess.Popen[bytes]:
    """Start a worker under the name of the first."""
    return fleet.worker("default", name="w0", tasks="lifecycle")


def assert_refused(fleet: Fleet, worker: subprocess.Popen[bytes]) -> None:
    """Check that a worker ended because its name was taken."""
    assert 2 == worker.wait(timeout=25)
    assert "--name: expected a name that no live worker has, got 'w0'" in fleet.logs()


def test_after_a_kill_the_name_is_free_at_once(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path, end: Path
) -> None:
    """The newcomer reports what the dead one held, although its lease and its entry are alive, and does it anew."""
    serving()
    task_id = client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id
    running(trace, 3)
    fleet.processes[1].kill()
    another_w0(fleet)
    begun(trace, 2)
    end.touch()
    task = ended(client, task_id, "SUCCESS")
    lost = entry_of(client, task_id, "TIMEOUT")
    assert ("worker_lost", "worker:w0", 1) == (lost.reason, lost.actor, task.losses)
    assert "worker w0 was gone when another one was started under its name" == lost.message
    assert_clean(client, fleet, task_id)


def test_the_name_of_a_living_worker_is_refused(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path, end: Path
) -> None:
    """Also while it is frozen in mid-task; nothing of its work is touched."""
    serving()
    task_id = client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id
    running(trace, 3)
    assert_refused(fleet, another_w0(fleet))
    fleet.processes[1].send_signal(signal.SIGSTOP)
    assert_refused(fleet, another_w0(fleet))
    fleet.processes[1].send_signal(signal.SIGCONT)
    end.touch()
    task = ended(client, task_id, "SUCCESS")
    assert (1, 0) == (task.attempt, task.losses)
    assert_clean(client, fleet, task_id)


def test_a_worker_whose_name_was_taken_ends(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path
) -> None:
    """One that was cut off and comes back sees it at its next beat, gives its task back and leaves the entry alone."""
    serving()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 200}).task_id
    running(trace, 3)
    client.store.redis.hset(ENTRY, "incarnation", "another")
    assert 1 == fleet.processes[1].wait(timeout=15)
    assert "another worker is called w0 now; this one ends" in fleet.logs()
    assert "PENDING" == client.get(task_id).state
    entry = client.store.redis.hgetall(ENTRY)
    assert "another" == entry["incarnation"]
    assert "death" not in entry
    client.cancel(task_id)
    assert_clean(client, fleet, task_id)


def test_where_redis_does_not_tell_who_is_connected(serving: Callable[..., None], client: Client, fleet: Fleet) -> None:
    """A Redis that forbids CLIENT keeps the name of a dead worker until its entry is over, as rq does."""
    client.store.redis.execute_command("ACL", "SETUSER", "default", "-client")
    serving()
    eventually(lambda: assert_registered(client, fleet.processes[1].pid))
    fleet.processes[1].kill()
    assert_refused(fleet, another_w0(fleet))
    client.store.redis.delete(ENTRY)
    third = another_w0(fleet)
    eventually(lambda: assert_registered(client, third.pid), seconds=20)
    assert_clean(client, fleet)


def assert_registered(client: Client, pid: int) -> None:
    """Check that the entry is that of a process."""
    assert str(pid) == client.store.redis.hget(ENTRY, "pid")

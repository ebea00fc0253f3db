"""Workers of one name: the next one takes over from a dead one at once, and two live ones never share it."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.fleet import LOADING
from helpers import eventually
from proxy import Proxy
from redis import Redis
from redis_server import RedisServer
from rq import Queue

from .conftest import assert_clean, attempts_in, ended, entry_of, running

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
    """The newcomer reports what the dead one held, although its lease and its entry are alive.

    Only the lease is waited for: from here nobody can tell a worker that was killed from one that is cut off.
    """
    serving()
    task_id = client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id
    running(trace, 3)
    left = client.store.redis.pttl(client.store.keys.heartbeat(task_id))
    fleet.processes[1].kill()
    another_w0(fleet)
    task = ended(client, task_id, "RETRY_WAITING")
    assert (task.due_at or 0) - task.entered_at > left - 20_000
    following = client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id
    ended(client, following, "SUCCESS")
    lost = entry_of(client, task_id, "TIMEOUT")
    assert ("worker_lost", "worker:w0", 1) == (lost.reason, lost.actor, task.losses)
    assert "worker w0 was gone when another one was started under its name" == lost.message
    client.cancel(task_id)
    assert_clean(client, fleet, task_id, following)


def test_the_name_of_a_living_worker_is_refused(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path, end: Path
) -> None:
    """Also while it is frozen in mid-task; nothing of its work is touched."""
    serving()
    task_id = client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id
    running(trace, 3)
    assert_refused(fleet, another_w0(fleet))
    newest = max(fleet.folder.glob("*.log"), key=lambda path: int(path.name.partition("-")[0]))
    assert "horse started" not in newest.read_text(), "its models would fill the GPU beside the living one's"
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


def test_who_is_cut_off_is_not_doubled(fleet: Fleet, client: Client, server: RedisServer, trace: Path) -> None:
    """A newcomer starts the task anew when the former's lease is over, which then has stopped its handler.

    The former learns it when it is back: it ends, and what it writes changes nothing.
    """
    fleet.environment["GHOSTLESS_LEASE"] = "8"
    proxy = Proxy(server.port)
    fleet.watchdog()
    fleet.environment["GHOSTLESS_REDIS_URL"] = proxy.url
    former = fleet.worker("default", name="w0", tasks="lifecycle")
    eventually(lambda: assert_registered(client, former.pid), seconds=20)
    task_id = client.submit("life.busy", {"trace": str(trace)}).task_id
    running(trace, 3)
    proxy.mode = "silent"
    cut_off(client)
    del fleet.environment["GHOSTLESS_REDIS_URL"]
    newcomer = another_w0(fleet)
    eventually(lambda: assert_registered(client, newcomer.pid), seconds=20)
    eventually(lambda: assert_second(trace), seconds=25)
    assert sorted(attempts_in(trace)) == attempts_in(trace)
    proxy.mode = "pass"
    assert 1 == former.wait(timeout=20)
    assert_registered(client, newcomer.pid)
    assert ("PROCESSING", 2) == (client.get(task_id).state, client.get(task_id).attempt)
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    proxy.close()
    assert_clean(client, fleet, task_id)


def cut_off(client: Client) -> None:
    """Let Redis close the connections of the worker, as it does when a host is gone."""
    redis = client.store.redis
    for connection in redis.client_list():
        if connection["name"].startswith("ghostless:w0:"):
            redis.client_kill_filter(_id=connection["id"])


def assert_second(trace: Path) -> None:
    """Check that a second attempt runs, for so long that another one beside it would have noted something."""
    assert attempts_in(trace).count(2) > 10


def test_the_fork_of_a_plain_job_holds_no_name(
    serving: Callable[..., None], client: Client, fleet: Fleet, rq_redis: Redis, trace: Path
) -> None:
    """A worker that was killed is dead to its successor, although what it forked lives on."""
    serving()
    (worker,) = [psutil.Process(process.pid) for process in fleet.processes[1:]]
    before = set(worker.children())
    Queue("default", connection=rq_redis).enqueue("plain.sleep", 3600, str(trace))
    running(trace)
    (fork,) = set(worker.children()) - before
    try:
        worker.kill()
        successor = another_w0(fleet)
        eventually(lambda: assert_registered(client, successor.pid), seconds=20)
        assert fork.is_running()
    finally:
        fork.kill()
    assert_clean(client, fleet)


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
    """Check that the entry is that of a process, which has loaded its modules."""
    assert [pid] == [member.pid for member in client.workers() if member.state != LOADING]

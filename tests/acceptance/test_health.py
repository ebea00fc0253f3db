"""Workers that tell how they are: to operators with each beat, over HTTP, and to the watchdog before it judges."""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fleet import Fleet, horse_of
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.fleet import Member
from helpers import eventually, expect
from redis import Redis
from redis_server import RedisServer
from rq.queue import Queue

from .conftest import asked, assert_clean, assert_told, ended, running, serve_health, watched

pytestmark = pytest.mark.slow


@pytest.fixture
def place(fleet: Fleet, client: Client) -> str:
    """A watchdog, a worker w0 that answers for its health, and where it does so."""
    return serve_health(fleet)


def started(client: Client, trace: Path) -> str:
    """Start a task that runs until it is stopped, and wait until it does."""
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 10_000}).task_id
    running(trace, 2)
    return task_id


def judged(client: Client, task_id: str) -> str:
    """Return what the watchdog wrote when it took the task away."""

    def check() -> str:
        found = [entry for entry in client.history(task_id) if entry.event == "TIMEOUT"]
        assert found
        assert found[0].actor.startswith("watchdog:")
        return found[0].message

    return eventually(check, seconds=25)


def member(client: Client) -> Member:
    """Return what is known of the only worker."""
    (found,) = client.workers()
    return found


def test_the_record_tells_what_a_worker_does(client: Client, fleet: Fleet, trace: Path, place: str) -> None:
    """Within a beat: the task at hand, since when, its horse and its types; and another horse once that died."""
    task_id = started(client, trace)

    def check() -> None:
        record = member(client).record
        assert record
        assert (task_id, 1) == (record.task_id, record.attempt)
        assert client.get(task_id).started_at == record.since
        assert record.lease_age is not None
        assert record.lease_age < record.lease == 1500
        assert (horse_of(fleet.processes[1]).pid, place) == (record.horse_pid, record.health)
        assert (record.horse_rss or 0) > 10**7
        assert "life.steps" in record.types
        assert record.version

    eventually(check)
    assert asked(place).text == f"200 busy with {task_id}"
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    old = horse_of(fleet.processes[1])
    old.kill()
    eventually(lambda: assert_new_horse(client, old.pid), seconds=20)
    assert asked(place).text == "200 idle"
    assert_clean(client, fleet, task_id)


def assert_new_horse(client: Client, old: int) -> None:
    """Check that another horse is told."""
    record = member(client).record
    assert record
    assert record.horse_pid not in (None, old)
    assert record.types


def test_a_killed_worker(client: Client, fleet: Fleet, trace: Path, place: str) -> None:
    """Its host refuses the connection, and the history says so."""
    task_id = started(client, trace)
    fleet.processes[1].kill()
    assert judged(client, task_id) == "no heartbeat from worker w0; health: connection refused"
    client.cancel(task_id)
    fleet.worker("default", name="w1", tasks="lifecycle")  # who also tidies up behind it
    assert_clean(client, fleet, task_id)


def test_a_frozen_worker(client: Client, fleet: Fleet, trace: Path, place: str) -> None:
    """It accepts and does not answer; meanwhile `workers` shows it as silent, and the watchdog is not held up."""
    task_id = started(client, trace)
    eventually(lambda: assert_beaten(client))
    fleet.processes[1].send_signal(signal.SIGSTOP)
    assert re.fullmatch(r"no heartbeat from worker w0; health: did not answer in 0\.\d+ s", judged(client, task_id))
    eventually(lambda: assert_silent(client))
    client.cancel(task_id)
    fleet.processes[1].send_signal(signal.SIGCONT)
    assert_clean(client, fleet, task_id)


def assert_beaten(client: Client) -> None:
    """Check that the worker's beats carry Redis' time."""
    record = member(client).record
    assert record
    assert record.beat_at


def assert_silent(client: Client) -> None:
    """Check that the worker is not shown as busy."""
    assert member(client).state == "silent"
    assert (member(client).silent_for or 0) > 1500


def test_a_worker_that_cannot_renew(client: Client, fleet: Fleet, trace: Path) -> None:
    """It lives and answers: what it says of itself is in the history, but only the lease decides."""
    client.store.redis.execute_command("ACL SETUSER w0 on >secret ~* &* +@all")
    place = serve_health(fleet, url=fleet.url.replace("//", "//w0:secret@"))
    task_id = started(client, trace)
    client.store.redis.execute_command("ACL SETUSER w0 -@all")
    message = judged(client, task_id)
    assert message.startswith("no heartbeat from worker w0; health: 503 ")
    assert "; no successful call to Redis for " in message
    client.cancel(task_id)
    client.store.redis.execute_command("ACL SETUSER w0 +@all")
    eventually(lambda: assert_told(place, "200 idle"))
    assert_clean(client, fleet, task_id)


def test_an_outage_of_redis(client: Client, fleet: Fleet, trace: Path, place: str, server: RedisServer) -> None:
    """Red while Redis is away; green again, and a new task started, when it is back."""
    server.stop()
    eventually(lambda: assert_told(place, "503 idle; no successful call to Redis for"))
    server.start()
    eventually(lambda: assert_told(place, "200"))
    task_id = client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id
    ended(client, task_id, "SUCCESS")
    assert_clean(client, fleet, task_id)


def test_connections_that_are_cut_again_and_again(client: Client, fleet: Fleet, trace: Path) -> None:
    """Red, although each call succeeds on a new one; green again, and a new task started, when they last."""
    fleet.environment |= {"GHOSTLESS_BEAT": "1", "GHOSTLESS_LEASE": "5"}
    place = serve_health(fleet)
    with watched(place) as answers:
        for _ in range(5):
            client.store.redis.client_kill_filter(_type="normal")
            client.store.redis.client_kill_filter(_type="pubsub")
            time.sleep(0.3)  # the fault itself
        task_id = client.submit("life.once", {"trace": str(trace)}).task_id
    assert any("connections to Redis are cut" in answer for answer in answers), answers
    ended(client, task_id, "SUCCESS", seconds=10)
    eventually(lambda: assert_told(place, "200 idle"))
    assert_clean(client, fleet, task_id)


def test_the_command_for_container_checks(
    client: Client, fleet: Fleet, place: str, server: RedisServer, run_verb: Callable[..., tuple[int, str]]
) -> None:
    """`ghostless health` asks the worker of its own machine; exit code 0 or 1, also while Redis is away."""
    port = place.rpartition(":")[2]
    assert (0, "200 idle\n") == run_verb("health", GHOSTLESS_HEALTH_PORT=port)
    assert (0, "200 idle\n") == run_verb("health", place)
    code, shown = run_verb("workers", "w0", "--json")
    assert (0, place) == (code, json.loads(shown)["record"]["health"])
    server.stop()
    eventually(lambda: assert_told(place, "503"))
    code, shown = run_verb("health", GHOSTLESS_HEALTH_PORT=port)
    assert 1 == code
    assert "Error: 503 idle; no successful call to Redis" in shown
    server.start()


@pytest.fixture
def run_verb(fleet: Fleet) -> Callable[..., tuple[int, str]]:
    """Run a verb to its end; return its exit code and what it printed."""

    def run(*arguments: str, **variables: str) -> tuple[int, str]:
        fleet.environment.update(variables)
        process = fleet.start(*arguments)
        code = process.wait(30)
        for name in variables:
            del fleet.environment[name]
        return code, max(fleet.folder.glob("*.log"), key=lambda path: int(path.name.split("-")[0])).read_text()

    return run


def test_a_plain_job_does_not_keep_the_port(client: Client, fleet: Fleet, place: str) -> None:
    """The fork that runs a plain rq job outlives a killed worker, but nobody may take it for that worker."""
    worker = psutil.Process(fleet.processes[1].pid)
    with Redis.from_url(fleet.url) as redis:
        Queue("default", connection=redis).enqueue("time.sleep", 60)
    job = eventually(lambda: the_fork_of(worker))
    try:
        assert asked(place).text == "200 busy"
        worker.kill()
        eventually(lambda: assert_told(place, "connection refused"))
        assert job.is_running()
    finally:
        job.kill()


def the_fork_of(worker: psutil.Process) -> psutil.Process:
    """Return the child of a worker that runs a plain job."""
    forks = [child for child in worker.children() if child.cmdline() == worker.cmdline()]
    assert forks
    return forks[0]


def test_a_full_redis(client: Client, fleet: Fleet, trace: Path, place: str) -> None:
    """A worker that cannot write its record still reaches Redis, and is no less healthy for it."""
    task_id = started(client, trace)
    with connect(client.settings) as redis:
        redis.config_set("maxmemory", 1)
        await_beats(redis)
        assert asked(place).text == f"200 busy with {task_id}"
        client.cancel(task_id)
        ended(client, task_id, "CANCELLED")
        await_beats(redis)
        assert asked(place).text == "200 idle"
        redis.config_set("maxmemory", 0)
    assert_clean(client, fleet, task_id)


def await_beats(redis: Redis, number: int = 3) -> None:
    """Wait until Redis refused so many beats; each tries to write two fields of its own."""

    def refused() -> int:
        return redis.info("commandstats").get("cmdstat_hset", {}).get("rejected_calls", 0)

    before = refused()
    eventually(lambda: expect(refused() - before >= 2 * number))

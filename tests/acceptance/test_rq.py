"""At home among rq's own tools: stock workers run tasks, our worker runs plain jobs."""

import sys
from collections.abc import Callable

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually
from redis import Redis
from redis_server import RedisServer
from rq import Queue
from rq.job import JobStatus
from rq.suspension import resume, suspend

from .conftest import assert_clean, ended, story

pytestmark = pytest.mark.slow


def published(client: Client, fleet: Fleet) -> None:
    """Publish the types as a deploy step does, with no worker of ours about."""
    assert fleet.start("types", "publish", "--tasks", "lifecycle").wait(timeout=20) == 0
    assert "life.flaky" in client.types()


def rq_worker(fleet: Fleet, server: RedisServer, *options: str, queues: tuple[str, ...] = ("default",)) -> None:
    """Start rq's own command."""
    fleet.environment["GHOSTLESS_TASKS"] = "lifecycle"
    fleet.spawn([sys.executable, "-m", "rq.cli", "worker", *queues, "--url", server.url, *options])


def test_stock_worker(server: RedisServer, client: Client, fleet: Fleet, rq_redis: Redis, tmp_path: object) -> None:
    """A stock rq worker that takes a task's ticket runs it by the same rules, and leaves no rq job behind."""
    published(client, fleet)
    fleet.watchdog()
    rq_worker(fleet, server, "--name", "stock")
    task_id = client.submit("life.flaky", {"trace": f"{tmp_path}/trace"}).task_id
    assert ended(client, task_id, "SUCCESS").result == {"attempt": 2}
    assert story(client, task_id) == ["SUBMIT", "START", "FAIL", "RETRY", "RELEASE", "START", "COMPLETE"]
    assert {entry.actor for entry in client.history(task_id) if entry.event == "START"} == {"worker:stock"}
    eventually(lambda: assert_no_rq_job(rq_redis))
    assert_clean(client, fleet, task_id)


def assert_no_rq_job(redis: Redis) -> None:
    """Check that rq holds no job any more, in whatever registry."""
    assert list(redis.scan_iter("rq:job:*")) == []


def test_rq_command(server: RedisServer, client: Client, fleet: Fleet, tmp_path: object) -> None:
    """`rq worker -w ghostless.jobs.worker.Worker` is our worker; with --burst it ends when all is done."""
    published(client, fleet)
    task_id = client.submit("life.flaky", {"trace": f"{tmp_path}/trace", "good_from": 1}).task_id
    rq_worker(fleet, server, "-w", "ghostless.jobs.worker.Worker", "--burst")
    assert fleet.processes[-1].wait(timeout=30) == 0
    assert ended(client, task_id, "SUCCESS").attempt == 1
    assert_clean(client, fleet, task_id)


def test_max_jobs(server: RedisServer, client: Client, fleet: Fleet, tmp_path: object) -> None:
    """A worker with --max-jobs ends after so many tasks and holds none beyond them."""
    published(client, fleet)
    ids = [client.submit("life.flaky", {"trace": f"{tmp_path}/trace", "good_from": 1}).task_id for _ in range(5)]
    rq_worker(fleet, server, "-w", "ghostless.jobs.worker.Worker", "--max-jobs", "3")
    assert fleet.processes[-1].wait(timeout=30) == 0
    states = [client.get(task_id).state for task_id in ids]
    assert states == ["SUCCESS"] * 3 + ["PENDING"] * 2
    assert [client.get(task_id).attempt for task_id in ids] == [1, 1, 1, 0, 0]
    assert_clean(client, fleet, *ids)


def test_plain_jobs(
    serving: Callable[..., None], server: RedisServer, client: Client, fleet: Fleet, rq_redis: Redis, tmp_path: object
) -> None:
    """Plain rq jobs and tasks in one queue are all done once, by one worker, each by its own rules."""
    serving()
    queue = Queue("default", connection=rq_redis)
    jobs, ids = [], []
    for number in range(10):
        jobs.append(queue.enqueue("operator.add", number, 1))
        ids.append(client.submit("life.flaky", {"trace": f"{tmp_path}/trace", "good_from": 1}).task_id)
    for task_id in ids:
        assert ended(client, task_id, "SUCCESS").attempt == 1
    eventually(lambda: assert_finished(jobs))
    assert [job.return_value() for job in jobs] == list(range(1, 11))
    assert rq_redis.llen("rq:queue:default:intermediate") == 0
    assert_clean(client, fleet, *ids)


def assert_finished(jobs: list[object]) -> None:
    """Check that rq calls every job finished."""
    assert {job.get_status() for job in jobs} == {JobStatus.FINISHED}  # type: ignore[attr-defined]


def test_suspension(
    serving: Callable[..., None], client: Client, fleet: Fleet, rq_redis: Redis, tmp_path: object
) -> None:
    """`rq suspend` lets no task start, not even one, also with an idle worker waiting; `rq resume` does."""
    serving()
    suspend(rq_redis)
    task_id = client.submit("life.flaky", {"trace": f"{tmp_path}/trace", "good_from": 1}).task_id
    eventually(lambda: assert_worker_state(rq_redis, b"suspended"))
    assert client.get(task_id).state == "PENDING"
    resume(rq_redis)
    ended(client, task_id, "SUCCESS")
    assert_clean(client, fleet, task_id)


def assert_worker_state(redis: Redis, state: bytes) -> None:
    """Check what rq's listing says of the only worker."""
    (key,) = redis.smembers("rq:workers")
    assert redis.hget(key, "state") == state

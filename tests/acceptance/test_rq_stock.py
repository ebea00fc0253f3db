"""Stock rq workers that take tickets: tasks run by the same rules in a cold horse, and rq keeps nothing of them."""

import signal
import time
from pathlib import Path

import psutil
import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually, is_running
from redis import Redis
from rq import Queue, Worker
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry, StartedJobRegistry

from .conftest import (
    assert_clean,
    attempts_in,
    ended,
    publish,
    rq,
    rq_worker,
    running,
    seconds_between,
    story,
)

pytestmark = pytest.mark.slow

STOCK = {"forking": (), "simple": ("-w", "rq.SimpleWorker")}


@pytest.fixture(params=STOCK)
def stock(request: pytest.FixtureRequest, client: Client, fleet: Fleet) -> None:
    """A stock worker and a watchdog; nothing of ours serves the queue."""
    publish(fleet)
    fleet.watchdog()
    rq_worker(fleet, *STOCK[request.param], "--name", "stock")


def test_endings(stock: None, client: Client, fleet: Fleet, rq_redis: Redis, trace: Path) -> None:
    """Success, retry, failure, time-out and cancel are those of our own worker; the history names the stock one."""
    steps, doomed, busy, flaky = (
        client.submit("life.steps", {"trace": str(trace), "count": 100_000}).task_id,
        client.submit("life.doomed").task_id,
        client.submit("life.busy", {"trace": f"{trace}-busy"}, timeout=1.0).task_id,
        client.submit("life.flaky", {"trace": f"{trace}-flaky"}).task_id,
    )
    running(trace, 2)
    client.cancel(steps)
    ended(client, steps, "CANCELLED")
    assert seconds_between(client, steps, "CANCEL", "STOPPED") < 5, "a cancel is heard within a beat"
    assert ended(client, flaky, "SUCCESS").result == {"attempt": 2}
    assert story(client, flaky) == ["SUBMIT", "START", "FAIL", "RETRY", "RELEASE", "START", "COMPLETE"]
    assert 1 <= seconds_between(client, flaky, "RETRY", "RELEASE"), "rq deletes its job first"
    assert "no hope" in (ended(client, doomed, "FAILED").error or "")
    assert story(client, busy) == ["SUBMIT", "START", "TIMEOUT", "GIVE_UP"]
    for task_id in (steps, doomed, busy, flaky):
        actors = {entry.actor for entry in client.history(task_id) if entry.event in ("START", "COMPLETE", "STOPPED")}
        assert actors == {"worker:stock"}
    eventually(lambda: assert_rq_keeps_nothing(rq_redis))
    assert_clean(client, fleet, steps, doomed, busy, flaky)


def assert_rq_keeps_nothing(redis: Redis) -> None:
    """Check that rq has no job in any registry, and that what else it holds expires or is about workers."""
    Worker(["default"], connection=redis, name="cleaner").clean_registries()
    assert list(redis.scan_iter("rq:job:*")) == []
    names = ("wip", "failed", "finished", "canceled", "deferred", "scheduled", "ready")
    assert {name: redis.zcard(f"rq:{name}:default") for name in names} == dict.fromkeys(names, 0)
    lasting = {key.decode() for key in redis.scan_iter("rq:*") if redis.ttl(key) == -1}
    assert lasting <= {"rq:queues", "rq:workers", "rq:workers:default"}


def test_a_handler_that_holds_the_interpreter(client: Client, fleet: Fleet) -> None:
    """The lease is renewed by another process than the handler's, so a native call of three leases loses nothing."""
    publish(fleet)
    fleet.watchdog()
    for name, options in STOCK.items():
        rq_worker(fleet, *options, "--name", name)
    ids = [client.submit("life.hold_the_interpreter", {"seconds": 5}).task_id for _ in STOCK]
    for task_id in ids:
        assert ended(client, task_id, "SUCCESS").attempt == 1
        assert story(client, task_id) == ["SUBMIT", "START", "COMPLETE"]
    assert {client.history(task_id)[1].actor for task_id in ids} == {f"worker:{name}" for name in STOCK}
    assert_clean(client, fleet, *ids)


def test_a_simple_worker_is_left_as_it_was(client: Client, fleet: Fleet, rq_redis: Redis, trace: Path) -> None:
    """rq's SimpleWorker runs tickets in its own process: tasks and plain jobs in turn find it as it was before."""
    publish(fleet)
    fleet.watchdog()
    queue = Queue("default", connection=rq_redis)
    ids: list[str] = []
    queue.enqueue("plain.add", 1, 2, result_ttl=0)  # rq opens its connections with the first job that it deletes
    jobs = [queue.enqueue("plain.state_of_the_process")]
    for _ in range(2):
        ids += [client.submit("life.talk", {"lines": 3}).task_id]
        jobs += [queue.enqueue("plain.state_of_the_process")]
    rq_worker(fleet, *STOCK["simple"], "--burst")
    assert fleet.processes[-1].wait(timeout=40) == 0
    for task_id in ids:
        assert ended(client, task_id, "SUCCESS").attempt == 1
        assert "out 2" in client.reads.log(task_id)
    assert {job.get_status() for job in jobs} == {JobStatus.FINISHED}
    before, *after = [job.return_value() for job in jobs]
    assert after == [before] * 2
    assert_clean(client, fleet, *ids)


def test_killed_in_the_middle(client: Client, fleet: Fleet, rq_redis: Redis, trace: Path, end: Path) -> None:
    """When a stock worker or its work horse is killed, another worker does the task, and rq's part ends with it."""
    publish(fleet)
    fleet.watchdog()
    for name, kind in {"horse": "forking", "both": "forking", "simple": "simple"}.items():
        rq_worker(fleet, *STOCK[kind], "--name", name)
    traces = {
        client.submit("life.until", {"trace": f"{trace}{number}", "end": str(end)}).task_id: Path(f"{trace}{number}")
        for number in range(3)
    }
    for path in traces.values():
        running(path, 2)
    rq(fleet, "suspend")  # so that the one that lives takes no more
    families = [process for stock in fleet.processes[-3:] for process in psutil.Process(stock.pid).children(True)]
    for stock, dies in zip(fleet.processes[-3:], (False, True, True), strict=True):
        for process in (*psutil.Process(stock.pid).children(), *([stock] if dies else [])):
            process.kill()
    for task_id in traces:
        ended(client, task_id, "RETRY_WAITING", "PENDING")
    assert not any(is_running(process.pid) for process in families), "no handler runs on"
    fleet.processes[-3].terminate()
    fleet.worker("default", name="ours", tasks="lifecycle")
    rq(fleet, "resume")
    end.touch()
    for task_id in traces:
        task = ended(client, task_id, "SUCCESS")
        assert (task.attempt, task.losses, task.failures) == (2, 1, 0)
    StartedJobRegistry("default", connection=rq_redis).cleanup(timestamp=time.time() + 3600)
    eventually(lambda: assert_rq_keeps_nothing(rq_redis))
    assert_clean(client, fleet, *traces)


def test_maintenance_of_a_job_that_rq_gave_up(client: Client, fleet: Fleet, rq_redis: Redis, trace: Path) -> None:
    """A task that rq lists as failed and requeues by hand is run once all the same: the task's state decides."""
    publish(fleet)
    fleet.watchdog()
    task_id = client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id
    job = Job.fetch(task_id, connection=rq_redis)
    FailedJobRegistry("default", connection=rq_redis).add(job, ttl=600, exc_string="made up")
    FailedJobRegistry("default", connection=rq_redis).requeue(task_id)
    assert rq_redis.lrange("rq:queue:default", 0, -1) == [task_id.encode()] * 2
    rq_worker(fleet, "--burst")
    assert fleet.processes[-1].wait(timeout=40) == 0
    assert ended(client, task_id, "SUCCESS").attempt == 1
    assert attempts_in(trace) == [1]
    eventually(lambda: assert_rq_keeps_nothing(rq_redis))
    assert_clean(client, fleet, task_id)


def test_a_stock_worker_that_is_told_to_stop(client: Client, fleet: Fleet, rq_redis: Redis, trace: Path) -> None:
    """A stock worker ends its task before it stops, as it does with any job."""
    publish(fleet)
    rq_worker(fleet, "--name", "stock")
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 10}).task_id
    running(trace)
    fleet.processes[-1].send_signal(signal.SIGTERM)
    assert fleet.processes[-1].wait(timeout=20) == 0
    assert ended(client, task_id, "SUCCESS").attempt == 1
    assert_clean(client, fleet, task_id)

"""Plain rq jobs on our worker: what becomes of them is what becomes of them on rq's own."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.statemachine import Event
from helpers import eventually
from redis import Redis
from rq import Queue, Retry
from rq.job import Callback, Dependency, Job
from rq.results import Result

from .conftest import assert_clean, ended, publish, rq_worker

pytestmark = pytest.mark.slow

EACH = 200
"""Tasks, and plain jobs, in the mixed queue."""


def enqueue_all(redis: Redis, queue: str, folder: Path) -> dict[str, Job]:
    """Enqueue one job of each kind; the names are those of the jobs without the queue's."""
    jobs: dict[str, Job] = {}

    def add(name: str, function: str, *args: Any, **options: Any) -> None:
        jobs[name] = Queue(queue, connection=redis).enqueue(
            function, *args, job_id=f"{queue}-{name.replace(' ', '_')}", **options
        )

    told = {"meta": {"path": f"{folder}/{queue}-told"}}
    add("sum", "plain.add", 1, 2, result_ttl=500, meta={"who": "tester"})
    add("no result", "plain.add", 1, 2, result_ttl=0)
    add("for ever", "plain.add", 1, 2, result_ttl=-1)
    add("meta", "plain.keep_meta")
    add("retried", "plain.fail_until", f"{folder}/{queue}-runs", 3, retry=Retry(max=2))
    add("failed", "plain.fail", retry=Retry(max=1), failure_ttl=600)
    add("unknown", "plain.nothing_of_the_kind")
    add("vanished", "plain.vanish")
    add("timed out", "plain.sleep", 30, job_timeout=1)
    add("succeeds", "plain.add", 3, 4, on_success=Callback("plain.on_success"), **told)
    add("fails", "plain.fail", on_failure=Callback("plain.on_failure"), **told)
    add("after", "plain.add", 5, 6, depends_on=jobs["sum"])
    add("after failure", "plain.add", 7, 8, depends_on=jobs["failed"])
    add("all the same", "plain.add", 9, 10, depends_on=Dependency(jobs["fails"], allow_failure=True))
    return jobs


def account(redis: Redis, queue: str, jobs: dict[str, Job], folder: Path) -> dict[str, Any]:
    """Tell all that a user of rq can see of the jobs and their worker, without times and names."""
    registries = ("wip", "finished", "failed", "deferred", "scheduled", "canceled", "ready")
    return {
        **{name: state_of(redis, job.id) for name, job in jobs.items()},
        "registries": {name: sorted(_bare(redis, f"rq:{name}:{queue}", queue)) for name in registries},
        "queue": [redis.llen(f"rq:queue:{queue}"), redis.llen(f"rq:queue:{queue}:intermediate")],
        "told": sorted((folder / f"{queue}-told").read_text().splitlines()),
        "counts": redis.hmget(f"rq:worker:{queue}", "successful_job_count", "failed_job_count"),
        "keys": sorted({_family(key.decode(), queue) for key in redis.scan_iter("rq:*") if queue in key.decode()}),
    }


def _bare(redis: Redis, registry: str, queue: str) -> list[str]:
    return [member.decode().removeprefix(f"{queue}-").split(":")[0] for member in redis.zrange(registry, 0, -1)]


def _family(key: str, queue: str) -> str:
    return key.replace(queue, "QUEUE")


def state_of(redis: Redis, job_id: str) -> dict[str, Any] | None:
    """Tell what rq keeps of a job."""
    if not redis.exists(f"rq:job:{job_id}"):
        return None
    job = Job.fetch(job_id, connection=redis)
    results = Result.all(job)
    return {
        "status": job.get_status(),
        "result": str(job.return_value()).replace(job_id, "ID"),
        "errors": [(result.exc_string or "").strip().splitlines()[-1:] for result in results],
        "types": [result.type for result in results],
        "meta": {name: value for name, value in job.meta.items() if name != "path"},
        "retries": [job.retries_left, job.number_of_retries],
        "life": (redis.ttl(f"rq:job:{job_id}") + 60) // 100,
        "times": [bool(job.started_at), bool(job.ended_at), bool(job.worker_name)],
    }


def test_plain_jobs_end_as_on_a_worker_of_rq(client: Client, fleet: Fleet, rq_redis: Redis, tmp_path: Path) -> None:
    """Results, retries, failures, time-outs, callbacks, dependencies, lives and counters are the same."""
    workers = {"theirs": (), "oursss": ("-w", "ghostless.jobs.worker.Worker")}
    accounts = []
    for queue, options in workers.items():
        jobs = enqueue_all(rq_redis, queue, tmp_path)
        rq_worker(fleet, *options, "--burst", "--name", queue, queues=(queue,))
        assert fleet.processes[-1].wait(timeout=40) == 0
        accounts.append(account(rq_redis, queue, jobs, tmp_path))
    theirs, ours = accounts
    assert {name: (ours[name], expected) for name, expected in theirs.items() if ours[name] != expected} == {}
    assert theirs["retried"]["result"] == "3", "the jobs did what they were made for"


def test_a_mixed_queue(client: Client, fleet: Fleet, rq_redis: Redis, tmp_path: Path) -> None:
    """Tasks and plain jobs of one queue, drained by our workers and a stock one at a time, are all done once."""
    publish(fleet)
    fleet.watchdog()
    queue, plain, tasks = Queue("default", connection=rq_redis), tmp_path / "plain", tmp_path / "tasks"
    ids = []
    for number in range(EACH):
        ids.append(client.submit("life.once", {"trace": str(tasks)}).task_id)
        queue.enqueue("plain.note", str(plain), str(number), result_ttl=60)
    rq_worker(fleet, "--name", "stock")
    for number in range(2):
        fleet.worker("default", name=f"ours{number}", tasks="lifecycle")
    eventually(lambda: assert_lines(plain, EACH), seconds=60)
    eventually(lambda: assert_lines(tasks, EACH), seconds=30)
    assert {client.get(task_id).attempt for task_id in ids if ended(client, task_id, "SUCCESS")} == {1}
    assert Counter(tasks.read_text().split()) == Counter(ids)
    assert Counter(plain.read_text().split()) == Counter(map(str, range(EACH)))
    # A stock worker that is slow to begin is not waited for: the ticket was made anew then.
    workers = {next(entry.actor for entry in client.history(task_id) if entry.event == Event.START) for task_id in ids}
    assert workers == {"worker:stock", "worker:ours0", "worker:ours1"}
    assert_clean(client, fleet, *ids)


def assert_lines(path: Path, number: int) -> None:
    """Check that a file has so many lines."""
    assert path.exists()
    assert len(path.read_text().splitlines()) == number

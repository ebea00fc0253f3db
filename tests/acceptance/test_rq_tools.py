"""rq's own commands and options on our worker: what users of rq know keeps working."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet, horse_of
from ghostless.jobs.client import Client
from helpers import eventually, is_running
from redis import Redis
from rq import Queue
from rq.command import send_command, send_kill_horse_command, send_shutdown_command, send_stop_job_command
from rq.exceptions import NoSuchJobError
from rq.job import Job, JobStatus

from .conftest import assert_clean, ended, publish, rq, rq_worker, running, story

pytestmark = pytest.mark.slow

OURS = ("-w", "ghostless.jobs.worker.Worker")


def test_info_and_suspend(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """`rq info` shows our worker with its state and queues; `rq suspend` and `rq resume` stop and start it."""
    serving()
    eventually(lambda: assert_said(fleet, "worker w0 idle default"))
    rq(fleet, "suspend")
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 10_000}).task_id
    eventually(lambda: assert_said(fleet, "worker w0 suspended default"))
    assert "1 workers" in rq(fleet, "info", "--only-workers")
    assert client.get(task_id).state == "PENDING", "also an idle worker that was waiting has not started one"
    rq(fleet, "resume")
    running(trace)
    eventually(lambda: assert_said(fleet, "worker w0 busy default"))
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    assert_clean(client, fleet, task_id)


def assert_said(fleet: Fleet, line: str) -> None:
    """Check that `rq info --raw` has the line, with the host left out."""
    said = rq(fleet, "info", "--raw")
    assert any(all(word in shown for word in line.split()) for shown in said.splitlines()), said


def test_the_shutdown_command(
    serving: Callable[..., None], client: Client, fleet: Fleet, rq_redis: Redis, trace: Path
) -> None:
    """rq's shutdown command ends our worker in order: its task goes back to the queue with its checkpoint."""
    serving()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 10_000}).task_id
    running(trace, 2)
    send_shutdown_command(rq_redis, "w0")
    assert fleet.processes[1].wait(timeout=15) == 0
    assert story(client, task_id) == ["SUBMIT", "START", "SUSPEND", "RESUME"]
    assert client.store.redis.exists(client.store.keys.checkpoint(task_id))
    assert_clean(client, fleet, task_id)


def test_commands_for_a_plain_job(
    serving: Callable[..., None], client: Client, fleet: Fleet, rq_redis: Redis, trace: Path
) -> None:
    """Kill-horse fails a plain job and stop-job stops it, as in rq; the worker and its warm horse live on."""
    serving()
    warm = horse_of(fleet.processes[1]).pid
    killed, stopped = (begun(rq_redis, trace, "send_kill"), begun(rq_redis, trace, "send_stop"))
    running(trace)
    send_kill_horse_command(rq_redis, "w0")
    eventually(lambda: assert_status(killed, JobStatus.FAILED))
    running(trace, 2)
    send_stop_job_command(rq_redis, stopped.id)
    eventually(lambda: assert_status(stopped, JobStatus.STOPPED))
    assert "stopped by user" in (stopped.latest_result().exc_string or "")  # type: ignore[union-attr]
    task_id = client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id
    ended(client, task_id, "SUCCESS")
    assert is_running(warm)
    assert_clean(client, fleet, task_id)


def begun(redis: Redis, trace: Path, job_id: str) -> Job:
    """Enqueue a plain job that notes that it began, and goes on for long."""
    return Queue("default", connection=redis).enqueue("plain.sleep", 600, str(trace), job_id=job_id)


def assert_status(job: Job, status: JobStatus) -> None:
    """Check what rq says of a job."""
    assert job.get_status() == status


def test_commands_that_name_a_task(
    serving: Callable[..., None], client: Client, fleet: Fleet, rq_redis: Redis, trace: Path
) -> None:
    """A running task is no rq job: rq's tools find none, and a command that names it is refused in the log."""
    serving()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 60}).task_id
    running(trace, 2)
    with pytest.raises(NoSuchJobError):
        send_stop_job_command(rq_redis, task_id)
    send_command(rq_redis, "w0", "stop-job", job_id=task_id)
    send_kill_horse_command(rq_redis, "w0")
    task = ended(client, task_id, "SUCCESS")
    assert (task.attempt, story(client, task_id)) == (1, ["SUBMIT", "START", "COMPLETE"])
    assert f"Not working on job {task_id}, command ignored" in fleet.logs()
    assert "Worker is not working, kill horse command ignored" in fleet.logs()
    assert_clean(client, fleet, task_id)


def test_rq_command(client: Client, fleet: Fleet, trace: Path) -> None:
    """`rq worker -w ghostless.jobs.worker.Worker` is our worker; with --burst it ends when all is done."""
    publish(fleet)
    task_id = client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id
    rq_worker(fleet, *OURS, "--burst")
    assert fleet.processes[-1].wait(timeout=30) == 0
    assert ended(client, task_id, "SUCCESS").attempt == 1
    assert_clean(client, fleet, task_id)


def test_options_that_end_a_worker(client: Client, fleet: Fleet, rq_redis: Redis, trace: Path) -> None:
    """--max-jobs counts tasks and plain jobs and leaves the rest; --max-idle-time ends a worker that did the rest."""
    publish(fleet)
    ids = [client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id for _ in range(2)]
    job = Queue("default", connection=rq_redis).enqueue("plain.add", 1, 2)
    ids += [client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id for _ in range(2)]
    fleet.start("worker", "default", "--tasks", "lifecycle", "--max-jobs", "4")
    assert fleet.processes[-1].wait(timeout=30) == 0
    assert (job.get_status(), job.return_value()) == (JobStatus.FINISHED, 3)
    assert [client.get(task_id).state for task_id in ids] == ["SUCCESS"] * 3 + ["PENDING"]
    rq_worker(fleet, *OURS, "--max-idle-time", "1", "--name", "theirs")
    fleet.start("worker", "elsewhere", "--tasks", "lifecycle", "--max-idle-time", "1")
    assert [process.wait(timeout=30) for process in fleet.processes[-2:]] == [0, 0]
    assert [entry.actor for entry in client.history(ids[3])][1:] == ["worker:theirs"] * 2
    assert_clean(client, fleet, *ids)


ORDERS = {"default": "high high high low low low", "round_robin": "high low high low high low", "random": None}


def test_queue_order(client: Client, fleet: Fleet, trace: Path) -> None:
    """The first queue is served first, or the queues in turn, or in any order, as --dequeue-strategy says."""
    publish(fleet)
    orders = {strategy: submit_to_both(client, strategy, trace) for strategy in ORDERS}
    for strategy in ORDERS:
        queues = (f"high.{strategy}", f"low.{strategy}")
        rq_worker(fleet, *OURS, "--burst", "--dequeue-strategy", strategy, queues=queues)
    assert [process.wait(timeout=30) for process in fleet.processes[-3:]] == [0, 0, 0]
    for strategy, ids in orders.items():
        starts = [entry for task_id in ids for entry in client.history(task_id) if entry.event == "START"]
        starts.sort(key=lambda entry: tuple(map(int, entry.id.split("-"))))
        assert len(starts) == len(ids)
        assert ORDERS[strategy] in (None, " ".join(entry.queue.split(".")[0] for entry in starts))
    assert_clean(client, fleet, *(task_id for ids in orders.values() for task_id in ids))


def submit_to_both(client: Client, strategy: str, trace: Path) -> list[str]:
    """Submit three tasks to the second queue and then three to the first one."""
    return [
        client.submit("life.once", {"trace": str(trace)}, queue=f"{name}.{strategy}").task_id
        for name in ("low", "low", "low", "high", "high", "high")
    ]

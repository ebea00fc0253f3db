"""Pools of real workers: a death is told at once and mended, and nothing of a pool outlives it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fleet import Fleet, workers_of
from ghostless.jobs.client import Client
from ghostless.jobs.fleet import LOADING, members
from ghostless.jobs.record import GpuMemory
from helpers import eventually, is_running
from redis import Redis
from redis_server import RedisServer
from rq import Queue
from rq.job import Job, JobStatus

from .conftest import (
    assert_clean,
    assert_gone,
    attempts_in,
    begun,
    ended,
    entry_of,
    logged_pids,
    publish,
    running,
    story,
)

pytestmark = pytest.mark.slow

Pool = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def pool(fleet: Fleet, client: Client) -> Pool:
    """Start a watchdog and a pool, and return when so many workers have registered; no lease ends in a test."""
    fleet.environment["GHOSTLESS_LEASE"] = "60"

    def start(*options: str, size: int = 2, tasks: str = "lifecycle") -> subprocess.Popen[bytes]:
        fleet.watchdog()
        started = fleet.pool(*(options or ("-n", str(size))), tasks=tasks)
        eventually(lambda: assert_registered(client, size), seconds=30)
        return started

    return start


def assert_registered(client: Client, size: int) -> None:
    """Check that rq's registry lists so many living workers that have loaded their modules."""
    fleet = [member for member in members(client.store.redis, client.store.keys) if member.state != LOADING]
    living = [member.name for member in fleet if is_running(member.pid or 0)]
    assert size == len(living), living


def worker_of(client: Client, pool: subprocess.Popen[bytes], task_id: str) -> psutil.Process:
    """Return the process of the worker that runs a task."""
    return workers_of(pool)[client.get(task_id).worker_id or ""]


def test_a_killed_worker_is_reported_at_once_and_started_again(
    pool: Pool, client: Client, fleet: Fleet, trace: Path, end: Path
) -> None:
    """The history says worker_lost and how, long before the lease is over; the others go on undisturbed."""
    parent = pool(size=4)
    task_id = client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id
    other = client.submit("life.busy", {"trace": str(trace.with_name("other")), "end": str(end)}).task_id
    running(trace, 3)
    victim = worker_of(client, parent, task_id)
    family, name = [victim, *victim.children(recursive=True)], client.get(task_id).worker_id
    seconds, micros = client.store.redis.time()
    victim.kill()
    begun(trace, 2)
    end.touch()
    task = ended(client, task_id, "SUCCESS")
    lost = entry_of(client, task_id, "TIMEOUT")
    assert (lost.reason, lost.actor, task.attempt) == ("worker_lost", "pool:w", 2)
    assert lost.message == f"worker {name} was killed by signal 9 (Killed)"
    assert int(lost.id.split("-")[0]) - (seconds * 1000 + micros // 1000) < 15_000, "a quarter of the lease"
    assert_gone(*(process.pid for process in family))
    eventually(lambda: assert_registered(client, 4), seconds=20)
    assert {"w-1", "w-2", "w-3", "w-4"} == workers_of(parent).keys()
    assert all(f"[{worker}] rq.worker: Worker {worker}: started" in fleet.logs() for worker in workers_of(parent))
    assert ended(client, other, "SUCCESS").attempt == 1
    assert_clean(client, fleet, task_id, other)


def test_what_the_dead_started_ends_with_it(pool: Pool, client: Client, fleet: Fleet) -> None:
    """Children, grandchildren and those in a session of their own are gone before the task runs anew."""
    parent = pool(tasks="handlers")
    task_id = client.submit("test.children").task_id
    pids = logged_pids(client, task_id)
    worker_of(client, parent, task_id).kill()
    eventually(lambda: assert_told(client, task_id))
    assert_gone(*pids)
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    assert_clean(client, fleet, task_id)


def test_what_was_there_before_the_pool_is_not_its_to_end(client: Client, fleet: Fleet) -> None:
    """A container's entry script may start something and then become the pool."""
    command = f"sleep 3600 & exec {sys.executable} -m ghostless.jobs.cli worker default --tasks lifecycle -n 1 --name w"
    parent = fleet.spawn(["sh", "-c", command])
    eventually(lambda: assert_registered(client, 1), seconds=30)
    (sidecar,) = [child for child in psutil.Process(parent.pid).children() if "sleep" in child.cmdline()]
    (victim,) = workers_of(parent).values()
    victim.kill()
    eventually(lambda: assert_registered(client, 0))
    eventually(lambda: assert_registered(client, 1), seconds=30)
    assert is_running(sidecar.pid)
    sidecar.kill()
    assert_clean(client, fleet)


def assert_told(client: Client, task_id: str) -> None:
    """Check that the loss of a task stands in its history."""
    assert "TIMEOUT" in story(client, task_id)


def test_poison_ends_after_its_losses(pool: Pool, client: Client, fleet: Fleet, trace: Path) -> None:
    """A handler that kills its worker is started max_losses + 1 times, and the pool is whole again after it."""
    pool()
    assert_given_up(client, trace, "worker_lost", task_id := poison(client, trace, "life.poison"), losses=3)
    eventually(lambda: assert_registered(client, 2), seconds=20)
    assert_clean(client, fleet, task_id)


def test_poison_ends_without_a_pool_too(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path
) -> None:
    """Then each death is told by the lease, and the last worker is left in peace."""
    serving(workers=3)
    assert_given_up(client, trace, "heartbeat_lost", task_id := poison(client, trace, "life.fatal"), losses=1)
    assert_clean(client, fleet, task_id)


def poison(client: Client, trace: Path, task_type: str) -> str:
    """Submit a task that always kills its worker."""
    return client.submit(task_type, {"trace": str(trace), "kills": "worker"}).task_id


def assert_given_up(client: Client, trace: Path, reason: str, task_id: str, losses: int) -> None:
    """Check that it was started once more than it may be lost, and that its history tells why it ended (B39)."""
    task = ended(client, task_id, "TIMEOUT_CANCELLED")
    assert attempts_in(trace) == [*range(1, losses + 2)]
    assert (task.losses, task.attempt) == (losses + 1, losses + 1)
    life = ["START", "TIMEOUT"]
    assert story(client, task_id) == ["SUBMIT", *[*life, "RETRY", "RELEASE"] * losses, *life, "GIVE_UP"]
    assert client.history(task_id)[-1].message == f"losses used up: {losses} retries allowed"
    assert {reason} == {entry.reason for entry in client.history(task_id) if entry.event == "TIMEOUT"}


def test_redis_away_keeps_no_worker_from_its_start(
    pool: Pool, client: Client, fleet: Fleet, server: RedisServer, trace: Path, end: Path
) -> None:
    """A death during an outage is mended meanwhile, and reported when Redis answers again."""
    parent = pool()
    task_id = client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id
    running(trace, 3)
    victim = worker_of(client, parent, task_id)
    server.stop()
    victim.kill()
    eventually(lambda: assert_started_again(parent, victim.pid))
    server.start()
    begun(trace, 2)
    end.touch()
    assert ended(client, task_id, "SUCCESS").attempt == 2
    assert entry_of(client, task_id, "TIMEOUT").reason == "worker_lost"
    eventually(lambda: assert_registered(client, 2), seconds=20)
    assert_clean(client, fleet, task_id)


def test_an_outage_ends_no_worker_and_no_pool(
    pool: Pool, client: Client, fleet: Fleet, server: RedisServer, rq_redis: Redis, trace: Path
) -> None:
    """A plain job that ends while Redis is away is rq's to clean up; its worker goes on, and so do the others."""
    parent = pool()
    queue = Queue("default", connection=rq_redis)
    queue.enqueue("plain.sleep", 2, str(trace))
    running(trace)
    family = workers_of(parent)
    (fork,) = [child for worker in family.values() for child in worker.children() if "--parent" in child.cmdline()]
    server.stop()
    eventually(lambda: assert_gone(fork.pid))
    server.start()
    following = client.submit("life.flaky", {"trace": str(trace.with_name("other")), "good_from": 1}).task_id
    ended(client, following, "SUCCESS")
    queue.enqueue("plain.note", str(trace), "after")
    running(trace, 2)
    assert family == workers_of(parent)
    assert_clean(client, fleet, following)


def test_a_worker_that_ends_during_an_outage_ends_no_pool(
    pool: Pool, client: Client, fleet: Fleet, server: RedisServer
) -> None:
    """Not even in its first life: the pool knows without Redis that its workers had begun."""
    fleet.environment["GHOSTLESS_GRACE"] = "1"
    parent = pool(tasks="handlers")
    task_id = client.submit("test.hang", {"how": "native"}).task_id
    eventually(lambda: _assert(client.reads.log(task_id)))
    victim = worker_of(client, parent, task_id)
    client.store.redis.hset(client.store.keys.rq_worker(client.get(task_id).worker_id or ""), "incarnation", "another")
    eventually(lambda: _assert("this one ends" in fleet.logs()))
    server.stop()
    eventually(lambda: assert_gone(victim.pid), seconds=20)
    eventually(lambda: _assert("ended with exit code 1" in fleet.logs()))
    server.start()
    eventually(lambda: assert_registered(client, 2), seconds=30)
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    assert_clean(client, fleet, task_id)


def _assert(holds: object) -> None:
    assert holds


def assert_started_again(pool: subprocess.Popen[bytes], before: int) -> None:
    """Check that a pool of two is whole again, without the process it had before."""
    pids = {worker.pid for worker in workers_of(pool).values()}
    assert 2 == len(pids - {before})


def test_a_worker_that_gives_up_is_started_again(pool: Pool, client: Client, fleet: Fleet, trace: Path) -> None:
    """In its first life too, once it had registered: what ended it is no mistake in how the pool was started."""
    parent = pool("-n", "1", size=1)
    (victim,) = workers_of(parent).values()
    shutil.rmtree(fleet.temporary)
    (fleet.folder / "tmp").touch()  # no attempt can have a folder, so the worker runs none
    ids = [client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id for _ in range(3)]
    eventually(lambda: assert_gone(victim.pid), seconds=20)
    (fleet.folder / "tmp").unlink()
    for task_id in ids:
        ended(client, task_id, "SUCCESS")
    assert ["w-1"] == [*workers_of(parent)]
    assert "worker w-1 ended with exit code 1" in fleet.logs()
    assert_clean(client, fleet, *ids)


def test_a_living_workers_horse_is_left_alone(pool: Pool, client: Client, fleet: Fleet, trace: Path) -> None:
    """Also when what it was forked from is gone, and another worker dies."""
    parent = pool("-n", "2", "--horse", "fork")
    task_id = client.submit("life.busy", {"trace": str(trace)}).task_id
    horse = psutil.Process(int(running(trace)[0].split()[2]))
    living = worker_of(client, parent, task_id)
    zygote = horse.parent()
    assert zygote
    zygote.kill()
    eventually(lambda: assert_gone(zygote.pid))
    (victim,) = [worker for worker in workers_of(parent).values() if worker != living]
    victim.kill()
    eventually(lambda: assert_started_again(parent, victim.pid))
    running(trace, len(running(trace)) + 5)
    assert (True, 1) == (horse.is_running(), client.get(task_id).attempt)
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    assert_clean(client, fleet, task_id)


def test_plain_jobs_of_a_dead_worker_are_found_at_once(pool: Pool, client: Client, fleet: Fleet) -> None:
    """rq's own clean-up, which each worker runs when it starts, finds the job, without its time-out of minutes."""
    parent = pool("-n", "1", size=1)
    with Redis.from_url(client.settings.redis_url, protocol=2) as rq_redis:
        job = Queue("default", connection=rq_redis).enqueue(time.sleep, 3600)
        eventually(lambda: assert_status(job, JobStatus.STARTED))
        (victim,) = workers_of(parent).values()
        family = [victim, *victim.children(recursive=True)]
        victim.kill()
        eventually(lambda: assert_status(job, JobStatus.FAILED), seconds=20)
    assert_gone(*(process.pid for process in family))


def assert_status(job: Job, status: JobStatus) -> None:
    """Check the status of a plain job."""
    assert status == job.get_status()


def test_a_signal_lets_the_workers_drain(pool: Pool, client: Client, fleet: Fleet, trace: Path) -> None:
    """A service manager that sends it to every process stops them once, not twice; a later one gives the task back."""
    fleet.environment["GHOSTLESS_DRAIN"] = "60"
    parent = pool()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 10_000}).task_id
    running(trace, 3)
    family = list(workers_of(parent).values())
    for process in family:
        process.terminate()
    parent.terminate()
    eventually(lambda: assert_at_most_one(family))
    seen = len(running(trace))
    running(trace, seen + 20)
    assert "PROCESSING" == client.get(task_id).state
    parent.send_signal(signal.SIGINT)
    assert 0 == parent.wait(timeout=20)
    task = ended(client, task_id, "PENDING")
    assert (0, "shutdown") == (task.losses, client.history(task_id)[-1].reason)
    assert_gone(*(process.pid for process in family))
    assert_clean(client, fleet, task_id)


def assert_at_most_one(processes: list[psutil.Process]) -> None:
    """Check that of these processes at most one still runs."""
    assert 1 >= sum(is_running(process.pid) for process in processes)


def test_the_workers_of_a_killed_pool_drain(pool: Pool, client: Client, fleet: Fleet, trace: Path) -> None:
    """They are nobody's any more: each gives back what it holds, and ends."""
    parent = pool()
    task_id = client.submit("life.steps", {"trace": str(trace), "count": 10_000}).task_id
    running(trace, 3)
    family = psutil.Process(parent.pid).children(recursive=True)
    parent.kill()
    task = ended(client, task_id, "PENDING")
    assert (0, "shutdown") == (task.losses, client.history(task_id)[-1].reason)
    eventually(lambda: assert_gone(*(process.pid for process in family)))
    assert_clean(client, fleet, task_id)


def test_a_module_that_is_broken_ends_the_pool(fleet: Fleet, client: Client) -> None:
    """With the worker's exit code and message: to start it again and again would help nobody."""
    (fleet.folder / "broken_tasks.py").write_text("1 / 0\n")
    parent = fleet.pool("-n", "2", tasks="broken_tasks")
    assert 1 == parent.wait(timeout=30)
    assert "broken_tasks could not be loaded: ZeroDivisionError" in fleet.logs()
    assert [] == client.workers()
    assert_clean(client, fleet)


def test_a_burst_ends_when_the_queue_is_empty(fleet: Fleet, client: Client, trace: Path) -> None:
    """Each worker ends for good, and the pool with the last one."""
    publish(fleet)
    ids = [client.submit("life.flaky", {"trace": str(trace), "good_from": 1}).task_id for _ in range(6)]
    assert 0 == fleet.pool("-n", "2", "--burst").wait(timeout=30)
    assert {"SUCCESS"} == {client.get(task_id).state for task_id in ids}
    assert_clean(client, fleet, *ids)


@pytest.mark.parametrize(("wish", "there"), [("all", "2"), ("0,1", "3")])
def test_each_worker_sees_a_gpu_of_its_own(pool: Pool, fleet: Fleet, client: Client, wish: str, there: str) -> None:
    """What a handler sees is the device after which its worker is called, and whose memory its record tells."""
    tests = Path(__file__).parents[1]
    fleet.environment |= {"PYTHONPATH": f"{tests}{os.pathsep}{tests / 'fake_nvml'}", "FAKE_GPUS": there}
    pool("--gpus", wish)
    ids = [client.submit("life.device", {"seconds": 0.3}).task_id for _ in range(6)]
    seen = {}
    for task_id in ids:
        result = ended(client, task_id, "SUCCESS").result
        actor = entry_of(client, task_id, "START").actor
        seen.setdefault(actor, result)
        assert result == seen[actor]
    assert seen == {
        f"worker:w-gpu{number}": {"CUDA_VISIBLE_DEVICES": str(number), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        for number in range(2)
    }
    for number in range(2):
        used = GpuMemory(1000 + number, 80_000, str(number))
        eventually(lambda number=number, used=used: assert_recorded(client, f"w-gpu{number}", used))
    listing = shown(fleet, "workers")
    assert re.search(r"w-gpu0 .* 0: 1% ", listing), listing
    assert re.search(r"w-gpu1 .* 1: 1% ", listing), listing
    one = shown(fleet, "workers", "w-gpu1")
    assert re.search(r"gpu 1 +1\.0 kB of 80\.0 kB", one), one
    assert_clean(client, fleet, *ids)


def assert_recorded(client: Client, name: str, gpu: GpuMemory) -> None:
    """Check which GPU a worker tells of, and how full."""
    (member,) = [member for member in client.workers() if member.name == name]
    assert member.record
    assert member.record.gpus == (gpu,)


def shown(fleet: Fleet, *arguments: str) -> str:
    """Return what a verb of the command line prints on a wide screen."""
    command = [sys.executable, "-m", "ghostless.jobs.cli", *arguments]
    environment = fleet.surroundings | {"COLUMNS": "200"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

"""What rq keeps about tickets whose stock worker died: nothing that contradicts us, nothing that stays."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from audit import audit
from ghostless.jobs.messages import Claim, Claimed, Ending, Submission, Swept
from ghostless.jobs.store import Store
from ghostless.lua import BATCH
from ghostless.statemachine import Event, Policy, Reason, State
from helpers import eventually
from redis import Redis
from rq import Queue, Worker
from rq.job import Job
from rq.registry import FailedJobRegistry, StartedJobRegistry, clean_registries

TASKS = 50
IN_AN_HOUR = 3600


@pytest.fixture
def raw(redis: Redis, redis_server: object) -> Iterator[Redis]:
    """The same database as rq wants its connection."""
    with Redis(unix_socket_path=str(redis_server.socket), protocol=2) as connection:  # type: ignore[attr-defined]
        yield connection


def submit(store: Store, number: int = TASKS) -> list[str]:
    """Accept tasks that are retried at once."""
    ids = [f"t{index}" for index in range(number)]
    for task_id in ids:
        store.submit(Submission(task_id, "demo.add", "q", Policy(backoff_base=0, backoff_cap=0), "{}", "fingerprint"))
    return ids


def begin_and_die(raw: Redis, store: Store, index: int) -> None:
    """Do what a stock worker does with a ticket up to the middle of its task."""
    worker = Worker(["q"], connection=raw, name=f"dead{index}")
    job, _ = Queue.dequeue_any(worker.queues, None, connection=raw, job_class=Job)  # type: ignore[misc]
    worker.prepare_execution(job)
    worker.prepare_job_execution(job, remove_from_intermediate_queue=True)
    assert isinstance(store.start(job.id, worker.name, f"{index:04x}"), Claimed)


def moved(sweep: Callable[[], Swept], number: int) -> int:
    """Let a watchdog go on as often as so many tasks demand; return how many it moved."""
    swept = [sweep() for _ in range(-(-number // BATCH))]
    assert [] == [one.problems for one in swept if one.problems]
    return sum(one.moved for one in swept)


def lose_leases(store: Store, ids: list[str]) -> None:
    """Let every lease be over, and the watchdog see it for the second time."""
    seconds, _ = store.redis.time()  # type: ignore[misc]
    for task_id in ids:
        store.redis.delete(store.keys.heartbeat(task_id))
        store.redis.zadd(store.keys.deadlines, {task_id: 0})
        store.redis.hset(store.keys.task(task_id), "second_look_at", seconds * 1000)
    store.redis.hset(store.keys.watchdog, mapping={"swept_at": seconds * 1000, "judge_from": 0})
    assert moved(lambda: store.sweep("watchdog"), len(ids)) == len(ids)


def lose_all(store: Store, ids: list[str]) -> None:
    """Let the watchdog take every task away and put it into the queue again."""
    lose_leases(store, ids)
    assert moved(lambda: store.release("watchdog"), len(ids)) == len(ids)


def maintain(raw: Redis) -> None:
    """Do rq's maintenance at a time when every execution of a dead worker is over."""
    StartedJobRegistry("q", connection=raw).cleanup(timestamp=time.time() + IN_AN_HOUR)
    clean_registries(Queue("q", connection=raw))


def finish_all(store: Store, ids: list[str]) -> None:
    """Let a worker of ours do what is in the queue."""
    for number in range(len(ids)):
        claimed = store.claim(Claim("ours", ("q",), f"aa{number:04x}", ("demo.add",)))
        assert isinstance(claimed, Claimed)
        store.finish(claimed.held, Ending(Event.COMPLETE, Reason.POLICY, text="1"), "worker:ours")


def assert_nothing_stays(raw: Redis) -> None:
    """Check that rq lists none of the tasks, and that what it still holds expires."""
    registries = [StartedJobRegistry("q", connection=raw), FailedJobRegistry("q", connection=raw)]
    for registry in registries:
        registry.cleanup()
    assert [raw.zcard(registry.key) for registry in registries] == [0, 0]
    assert [key for key in raw.scan_iter("rq:job:*")] == []
    lasting = {key.decode() for key in raw.scan_iter("rq:*") if raw.ttl(key) == -1}
    assert lasting <= {"rq:queues"}


@pytest.mark.parametrize("order", ["rq first", "watchdog first"])
def test_rq_keeps_nothing_of_a_stock_worker_that_died(raw: Redis, store: Store, order: str) -> None:
    """Whoever notices first, the tasks are done by another worker, and rq's records of them are gone within seconds."""
    ids = submit(store)
    for index in range(TASKS):
        begin_and_die(raw, store, index)
    steps = [lambda: maintain(raw), lambda: lose_all(store, ids)]
    for step in steps if order == "rq first" else reversed(steps):
        step()
    assert audit(store.redis, store.keys, ids) == []
    finish_all(store, ids)
    assert store.redis.zcard(store.keys.state(State.SUCCESS)) == TASKS
    eventually(lambda: assert_nothing_stays(raw))
    assert audit(store.redis, store.keys, ids) == []


def test_rq_cannot_fail_a_ticket_that_waits_again(raw: Redis, store: Store) -> None:
    """The execution of a dead worker ends in rq's registry while the new ticket waits: the ticket stays as it is."""
    (task_id,) = ids = submit(store, 1)
    begin_and_die(raw, store, 0)
    lose_all(store, ids)
    before = raw.hgetall(f"rq:job:{task_id}")
    maintain(raw)
    assert raw.hgetall(f"rq:job:{task_id}") == before
    assert FailedJobRegistry("q", connection=raw).get_job_ids() == []
    begin_and_die(raw, store, 1)
    assert store.redis.hget(store.keys.task(task_id), "attempt") == "2"


def test_rq_that_lists_a_running_task_as_failed_forgets_it(raw: Redis, store: Store) -> None:
    """A dead stock worker's execution runs out while another one runs the task: nobody is hurt, and it passes."""
    ids = submit(store, 1)
    begin_and_die(raw, store, 0)
    lose_all(store, ids)
    begin_and_die(raw, store, 1)
    maintain(raw)
    eventually(lambda: assert_nothing_stays(raw))
    assert audit(store.redis, store.keys, ids) == []
    assert store.redis.hget(store.keys.task(ids[0]), "state") == State.PROCESSING


def test_a_purged_task_leaves_no_rq_job(raw: Redis, store: Store) -> None:
    """A stock worker that dies just after its task ended leaves a job, which goes with the task at the latest."""
    (task_id,) = submit(store, 1)
    store.cancel(task_id, "tester")
    Job(task_id, connection=raw).heartbeat(datetime.now(), ttl=1)
    assert raw.hkeys(f"rq:job:{task_id}") == [b"last_heartbeat"]
    store.redis.zadd(store.keys.retention, {task_id: 0})
    assert store.purge().moved == 1
    assert list(raw.scan_iter("rq:job:*")) == []


def test_rq_never_lists_a_given_up_task_as_failed(raw: Redis, store: Store) -> None:
    """A task that waits for nobody any more has no job that rq's maintenance could move, not even for a second."""
    (task_id,) = ids = submit(store, 1)
    begin_and_die(raw, store, 0)
    store.pause(task_id, "tester")
    lose_leases(store, ids)
    assert store.redis.hget(store.keys.task(task_id), "state") == State.PAUSED
    maintain(raw)
    assert [raw.zcard(f"rq:{name}:q") for name in ("wip", "failed")] == [0, 0]


def test_the_execution_of_a_dead_worker_is_no_trouble_for_the_next(raw: Redis, store: Store) -> None:
    """rq ends a job by reading all its executions: one whose record expired must not be among them."""
    (task_id,) = ids = submit(store, 1)
    begin_and_die(raw, store, 0)
    lose_all(store, ids)
    raw.delete(*raw.scan_iter("rq:execution:*"))
    begin_and_die(raw, store, 1)
    Job.fetch(task_id, connection=raw).cleanup(0, remove_from_queue=False)
    assert list(raw.scan_iter("rq:job:*")) == []

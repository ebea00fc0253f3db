"""rq's registries that disagree with us about a ticket: our state stands, whatever rq's own maintenance makes of it."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from audit import audit
from ghostless.jobs.messages import Claimed
from ghostless.statemachine import Event, State
from redis import Redis
from redis_server import RedisServer
from rq import Queue
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.job import JobStatus
from rq.registry import (
    BaseRegistry,
    CanceledJobRegistry,
    DeferredJobRegistry,
    FailedJobRegistry,
    FinishedJobRegistry,
    ScheduledJobRegistry,
    StartedJobRegistry,
    clean_registries,
)
from rq.scheduler import RQScheduler
from scripts.seeding import ID, QUEUE, Scene, ending, put, scene, submission, wish
from scripts.snapshot import difference, snapshot

CLAIMS: dict[type[BaseRegistry], JobStatus] = {
    StartedJobRegistry: JobStatus.STARTED,
    FailedJobRegistry: JobStatus.FAILED,
    DeferredJobRegistry: JobStatus.DEFERRED,
    ScheduledJobRegistry: JobStatus.SCHEDULED,
    FinishedJobRegistry: JobStatus.FINISHED,
    CanceledJobRegistry: JobStatus.CANCELED,
}
"""What each registry says of a job that stands in it."""

STATES = (
    State.PENDING, State.PROCESSING, State.CANCELLING, State.PAUSED, State.RETRY_WAITING, State.SUCCESS, State.FAILED,
)  # fmt: skip


@pytest.fixture
def raw(redis: Redis, redis_server: RedisServer) -> Iterator[Redis]:
    """The same database as rq wants its connection."""
    with Redis(unix_socket_path=str(redis_server.socket), protocol=2) as connection:
        yield connection


def disagree(stage: Scene, raw: Redis, registry: type[BaseRegistry], *, with_job: bool) -> None:
    """Put the task into a registry, with a job of that status or without one, and two tickets into the list."""
    there = registry(QUEUE, connection=raw)
    raw.zadd(there.key, {f"{ID}:execution" if registry is StartedJobRegistry else ID: 1})
    if with_job:
        stage.redis.hset(stage.keys.rq_job(ID), mapping={**ticket(stage), "status": CLAIMS[registry]})
    else:
        stage.redis.delete(stage.keys.rq_job(ID))
    stage.redis.rpush(stage.keys.rq_queue(QUEUE), ID, ID)


def ticket(stage: Scene) -> dict[str, str]:
    """Return what the ticket of another task holds, which is what any ticket holds."""
    stage.store.submit(submission("other"))
    found = stage.redis.hgetall(stage.keys.rq_job("other"))
    stage.store.cancel("other", "tester")
    return found  # type: ignore[return-value]


def maintain(raw: Redis) -> None:
    """Do all that rq's workers, its scheduler and its command line do with what stands in registries."""
    queue = Queue(QUEUE, connection=raw)
    clean_registries(queue)
    scheduler = RQScheduler([queue], connection=raw)
    scheduler.acquire_locks()
    scheduler.enqueue_scheduled_jobs()
    scheduler.release_locks()
    for job_id in FailedJobRegistry(QUEUE, connection=raw).get_job_ids():
        with suppress(NoSuchJobError, InvalidJobOperation):
            FailedJobRegistry(QUEUE, connection=raw).requeue(job_id)


@pytest.mark.parametrize("with_job", [True, False], ids=["job", "no job"])
@pytest.mark.parametrize("registry", CLAIMS, ids=lambda registry: registry.__name__)
@pytest.mark.parametrize("state", STATES)
def test_our_state_stands(redis: Redis, raw: Redis, state: State, registry: type[BaseRegistry], with_job: bool) -> None:
    """Nothing of ours changes by what rq says or does; a task that waits runs once, and no other starts again."""
    stage = scene(redis)
    put(stage, state)
    disagree(stage, raw, registry, with_job=with_job)
    before = snapshot(redis)
    maintain(raw)
    changed = difference(before, snapshot(redis))
    assert [] == [key for key in changed if key.startswith(stage.keys.prefix)]
    assert (1 if state is State.PENDING else 0) == run_all(stage)
    if state is State.PENDING:
        assert ("1", State.SUCCESS) == (stage.task["attempt"], stage.task["state"])
    assert [] == stage.queue
    redis.delete(*(kind(QUEUE, connection=raw).key for kind in CLAIMS))
    assert [] == audit(redis, stage.keys, [ID])


def run_all(stage: Scene) -> int:
    """Let a worker of ours do all that is in the queue; return how many tasks it started."""
    number = 0
    while isinstance(claimed := stage.store.claim(wish("w2", f"{number:04x}")), Claimed):
        stage.store.finish(claimed.held, ending(Event.COMPLETE), "worker:w2")
        number += 1
    return number

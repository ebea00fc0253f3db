"""Tickets of tasks that are gone: no worker takes them for plain rq jobs, and the doctor finds those in no list."""

from datetime import datetime

import pytest
from audit import audit
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.messages import NothingToClaim
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import State
from redis import Redis
from redis_server import RedisServer
from rq.job import Job
from scripts.seeding import ID, QUEUE, Scene, make_outdated, put, scene, wish
from scripts.snapshot import difference, snapshot


@pytest.fixture
def stage(redis: Redis) -> Scene:
    """An empty database."""
    return scene(redis)


def diagnosed(stage: Scene, settings: Settings, actor: str = "") -> list[str]:
    """Return what the doctor tells, which repairs for an actor."""
    with connect(settings, exact=True) as exact:
        return [str(problem) for problem in Doctor(Store(exact, settings), actor).audit()]


def assert_found_and_removed(stage: Scene, settings: Settings) -> None:
    """Check that the doctor names the ticket, and takes it and nothing else away."""
    [told] = [line for line in diagnosed(stage, settings) if f"rq:job:{ID}" in line]
    assert "--repair removes it" in told
    assert stage.redis.exists(stage.keys.rq_job(ID))
    diagnosed(stage, settings, "tester")
    assert not stage.redis.exists(stage.keys.rq_job(ID))
    assert [] == diagnosed(stage, settings)
    assert [] == audit(stage.redis, stage.keys)


def test_a_ticket_of_a_lost_task_in_no_list(stage: Scene, settings: Settings) -> None:
    """Redis evicted the record and the queue's list, say."""
    put(stage, State.PENDING)
    stage.redis.delete(stage.keys.task(ID), stage.keys.rq_queue(QUEUE))
    assert_found_and_removed(stage, settings)


def test_a_stock_worker_that_beats_on_when_its_task_is_purged(
    stage: Scene, settings: Settings, redis_server: RedisServer
) -> None:
    """rq's beat makes a record without a call anew, which is nobody's any more."""
    put(stage, State.SUCCESS)
    make_outdated(stage)
    stage.store.purge()
    with Redis(unix_socket_path=str(redis_server.socket), protocol=2) as raw:
        Job(ID, connection=raw).heartbeat(datetime.now(), ttl=60)
    assert_found_and_removed(stage, settings)


def test_plain_jobs_are_left_alone(stage: Scene, settings: Settings) -> None:
    """Those that have a call, and those of which only a beat is left, where no task had the id."""
    stage.redis.hset(stage.keys.rq_job("plain"), mapping={"origin": QUEUE, "data": "some call"})
    stage.redis.hset(stage.keys.rq_job("beating"), mapping={"last_heartbeat": "now"})
    stage.redis.set(stage.keys.rq_job("odd"), "of another type")
    before = snapshot(stage.redis)
    assert [] == diagnosed(stage, settings, "tester")
    assert {} == difference(before, snapshot(stage.redis))


def test_a_worker_drops_the_ticket_of_a_lost_task(backend: Redis) -> None:
    """It would run it as a plain job, or, if it takes tasks only, pass over it for ever."""
    stage = scene(backend)
    put(stage, State.PENDING)
    backend.delete(stage.keys.task(ID))
    assert stage.store.claim(wish("w2", "bb22")) == NothingToClaim("empty")
    assert [] == stage.queue
    assert not backend.exists(stage.keys.rq_job(ID))

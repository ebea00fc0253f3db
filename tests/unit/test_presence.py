"""Who is there: connections that bear a worker's name, and what a newcomer makes of them."""

import threading
from collections.abc import Iterator

import pytest
from ghostless.jobs import lost, registered
from ghostless.jobs.connection import connect, connect_like
from ghostless.jobs.errors import InvalidSetting, RedisFull, RedisUnavailable
from ghostless.jobs.lost import report_dead, report_lost
from ghostless.jobs.messages import Ending
from ghostless.jobs.presence import client_name, present
from ghostless.jobs.registered import RegisteredWorker
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import Event, Reason
from redis import Redis
from rq.worker_registration import REDIS_WORKER_KEYS
from scripts.seeding import ID, claimed, submission

ENTRY, FORMER = "rq:worker:w1", "former"


@pytest.fixture
def rq_redis(redis: Redis, settings: Settings) -> Iterator[Redis]:
    """The connection as rq wants it, to an empty database."""
    with Redis.from_url(settings.redis_url, protocol=2) as client:
        yield client


def connected(redis: Redis, worker: str, incarnation: str) -> Redis:
    """Open a connection as a life of a worker does."""
    client = connect_like(redis, client_name(worker, incarnation))
    client.ping()
    return client


def register_former(redis: Redis) -> None:
    """Write the entry of a worker that did not say goodbye."""
    redis.hset(ENTRY, mapping={"incarnation": FORMER, "queues": "q,p", "pid": 1})
    redis.sadd(REDIS_WORKER_KEYS, ENTRY)
    redis.sadd("rq:workers:q", ENTRY)
    redis.sadd("rq:workers:p", ENTRY)


def test_a_worker_is_there_as_long_as_it_is_connected(redis: Redis) -> None:
    """Each life by its own name, also one with blanks; a name that only begins alike is another's."""
    with connected(redis, "my worker", "a1"), connected(redis, "my worker", "b2"), connected(redis, "my", "c3"):
        assert {"a1", "b2"} == present(redis, "my worker", 60)
        assert {"c3"} == present(redis, "my", 60)
    assert set() == present(redis, "my worker", 60)


def test_who_is_silent_for_too_long_is_gone(redis: Redis) -> None:
    """A connection whose host vanished stays in the list for minutes."""
    with connected(redis, "w1", "a1"):
        assert set() == present(redis, "w1", 0)


def test_another_database_is_another_fleet(redis: Redis, settings: Settings) -> None:
    """CLIENT LIST shows the connections to all databases of a server."""
    with connect(Settings(redis_url=settings.redis_url.replace("/0", "/1"))) as other, connected(other, "w1", "a1"):
        assert set() == present(redis, "w1", 60)
        assert {"a1"} == present(other, "w1", 60)


@pytest.mark.parametrize("forbidden", ["-client|list", "-client|setname", "-client"])
def test_where_names_are_forbidden_nobody_is_seen_and_all_else_works(redis: Redis, forbidden: str) -> None:
    """Connections are made without a name, and a list that cannot be had is empty."""
    redis.execute_command("ACL", "SETUSER", "shy", "on", ">secret", "~*", "&*", "+@all", forbidden)
    try:
        with connect_like(redis) as shy:
            shy.connection_pool.connection_kwargs.update(username="shy", password="secret")
            with connected(shy, "w1", "a1") as named:
                assert named.ping()
                assert set() == present(named, "w1", 60)
    finally:
        redis.execute_command("ACL", "DELUSER", "shy")


@pytest.mark.parametrize("is_back", [False, True])
def test_a_former_worker_gets_the_time_to_come_back(
    redis: Redis, rq_redis: Redis, monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    """One whose connections were cut a moment ago lives: the newcomer looks a second time before it takes over."""
    monkeypatch.setattr(registered, "RECONNECT", 0.3)
    register_former(redis)
    newcomer = RegisteredWorker(["q"], "w1", connection=rq_redis)
    returning = threading.Timer(0.1, lambda: lives.append(connected(redis, "w1", FORMER)))
    lives: list[Redis] = []
    if is_back:
        returning.start()
        with pytest.raises(InvalidSetting, match="--name: expected a name that no live worker has"):
            newcomer.register_birth()
        returning.join()
        assert FORMER == redis.hget(ENTRY, "incarnation")
    else:
        newcomer.register_birth()
        assert newcomer.incarnation == redis.hget(ENTRY, "incarnation")
        assert set() == redis.smembers("rq:workers:p"), "the former's queues are not the newcomer's"
    for client in (*lives, newcomer.store.redis):
        client.close()


def test_a_worker_that_said_goodbye_is_not_waited_for(redis: Redis, rq_redis: Redis) -> None:
    """Its connections may be open for another moment."""
    register_former(redis)
    redis.hset(ENTRY, "death", "2026-01-01T00:00:00Z")
    newcomer = RegisteredWorker(["q"], "w1", connection=rq_redis)
    with connected(redis, "w1", FORMER), newcomer.store.redis:
        newcomer.register_birth()
    assert newcomer.incarnation == redis.hget(ENTRY, "incarnation")


def test_a_living_stock_worker_keeps_its_name(redis: Redis, rq_redis: Redis) -> None:
    """It bears no name that could be looked for, so rq's own rule holds: its entry lives."""
    redis.hset(ENTRY, mapping={"queues": "q", "pid": 1})
    with pytest.raises(InvalidSetting):
        RegisteredWorker(["q"], "w1", connection=rq_redis).register_birth()


def test_the_dead_are_reported_whole(store: Store) -> None:
    """The task is lost with the reason, the entry is gone from every list, and a second report changes nothing."""
    store.submit(submission())
    claimed(store)
    register_former(store.redis)
    for _ in range(2):
        report_lost(store, "w1", FORMER, "pool:p", "worker w1 was killed", is_dead=True)
    task = store.redis.hgetall(store.keys.task(ID))
    assert ("RETRY_WAITING", "1") == (task["state"], task["losses"])
    assert not store.redis.exists(ENTRY, REDIS_WORKER_KEYS, "rq:workers:q", "rq:workers:p")


def test_what_a_successor_holds_is_its_own(store: Store) -> None:
    """A report that comes after another worker took the name touches neither its task nor its entry."""
    store.submit(submission())
    claimed(store)
    register_former(store.redis)
    report_lost(store, "w1", "an earlier life", "pool:p", "worker w1 was killed", is_dead=True)
    assert "PROCESSING" == store.redis.hget(store.keys.task(ID), "state")
    assert store.redis.sismember(REDIS_WORKER_KEYS, ENTRY)


EXECUTION, STARTED = "job:execution", "rq:wip:q"


def begin_plain_job(redis: Redis) -> None:
    """Write what rq keeps of a plain job that the former worker runs, as if somebody renewed it."""
    redis.sadd("rq:worker:w1:executions", EXECUTION)
    redis.zadd(STARTED, {EXECUTION: 1e12})


def test_the_plain_job_of_the_dead_is_left_to_rqs_next_clean_up(store: Store) -> None:
    """At once, and not after a minute or two; a second report changes nothing."""
    register_former(store.redis)
    begin_plain_job(store.redis)
    for _ in range(2):
        report_dead(store, "w1", FORMER, "pool:p", "worker w1 was killed")
    assert 1 == store.redis.zscore(STARTED, EXECUTION)


def test_a_successors_plain_job_is_its_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the successor takes the name and begins it while the report is under way."""
    register_former(store.redis)

    def succeed(*_args: object) -> dict[str, int]:
        store.redis.hset(ENTRY, "incarnation", "successor")
        begin_plain_job(store.redis)
        return {}

    monkeypatch.setattr(lost.Reads, "held_by", succeed)
    report_dead(store, "w1", FORMER, "pool:p", "worker w1 was killed")
    assert 1e12 == store.redis.zscore(STARTED, EXECUTION)


def test_the_dead_are_reported_at_a_full_redis(store: Store) -> None:
    """What needs memory comes after the task is lost, and is made up for when there is some again."""
    store.submit(submission())
    claimed(store)
    register_former(store.redis)
    begin_plain_job(store.redis)
    store.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisFull):
            report_dead(store, "w1", FORMER, "pool:p", "worker w1 was killed")
    finally:
        store.redis.config_set("maxmemory", 0)
    assert "RETRY_WAITING" == store.redis.hget(store.keys.task(ID), "state")
    report_dead(store, "w1", FORMER, "pool:p", "worker w1 was killed")
    assert not store.redis.exists(ENTRY)
    assert 1 == store.redis.zscore(STARTED, EXECUTION)


@pytest.fixture
def worker(redis: Redis, rq_redis: Redis) -> Iterator[RegisteredWorker]:
    """A worker that has registered, without its threads."""
    registered = RegisteredWorker(["q"], "w1", connection=rq_redis)
    registered.register_birth()
    with registered.store.redis:
        yield registered


COMPLETE, FAIL = Ending(Event.COMPLETE, Reason.POLICY), Ending(Event.FAIL, Reason.EXCEPTION)


def test_a_displaced_worker_leaves_its_successors_entry_alone(redis: Redis, worker: RegisteredWorker) -> None:
    """Not one beat is written to it, and it stays displaced also when the successor is gone."""
    successor = {"incarnation": "another", "last_heartbeat": "then", "successful_job_count": "7"}
    redis.delete(ENTRY)
    redis.hset(ENTRY, mapping=successor)
    worker.count_attempt(COMPLETE)
    worker.beat()
    assert (True, successor, -1) == (worker.is_displaced, redis.hgetall(ENTRY), redis.ttl(ENTRY))
    redis.delete(ENTRY)
    worker.beat()
    assert worker.is_displaced
    assert not redis.exists(ENTRY)


def test_attempts_are_counted_once_over_an_outage(
    redis: Redis, worker: RegisteredWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat that Redis did not take is made up for by the next one."""
    worker.beat()
    for ending in (COMPLETE, COMPLETE, FAIL):
        worker.count_attempt(ending)
    with monkeypatch.context() as away:
        away.setitem(worker.store.redis.connection_pool.connection_kwargs, "port", 1)
        worker.store.redis.connection_pool.disconnect()
        away.setattr(worker.store.redis.connection_pool, "_available_connections", [])
        with pytest.raises(RedisUnavailable):
            worker.beat()
    worker.count_attempt(FAIL)
    worker.beat()
    worker.beat()
    assert ["2", "2"] == redis.hmget(ENTRY, "successful_job_count", "failed_job_count")

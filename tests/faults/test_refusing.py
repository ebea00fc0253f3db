"""A Redis that answers and does nothing: every verb is told so, changes nothing, and works afterwards (B52, B57)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from audit import audit
from ghostless.jobs.connection import connect
from ghostless.jobs.errors import RedisFull, RedisUnavailable
from ghostless.jobs.settings import Settings
from helpers import eventually
from proxy import Proxy
from redis import Redis
from redis.exceptions import ResponseError
from redis_server import RedisServer
from scripts.seeding import ALL, PURGE, Carrier, Scene, SpiedStore, fire, scene, set_up
from scripts.snapshot import difference, snapshot

each_verb = pytest.mark.parametrize("carrier", ALL, ids=[f"{number}-{call.verb}" for number, call in enumerate(ALL)])
NEEDS_MEMORY = {"submit", "requeue", "subscribe"}
"""Verbs that only add something, and are refused by a full Redis."""


@pytest.fixture
def stage(redis: Redis) -> Scene:
    """An empty database."""
    return scene(redis)


@each_verb
def test_a_read_only_redis(stage: Scene, carrier: Carrier) -> None:
    """Redis became a replica, as after a failover to the wrong side."""
    set_up(stage, carrier)
    before = snapshot(stage.redis)
    stage.redis.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(RedisUnavailable, match="read only"):
            carrier.call(stage)
        assert {} == difference(before, snapshot(stage.redis))
    finally:
        stage.redis.replicaof("NO", "ONE")
    assert_works(stage, carrier)


@each_verb
def test_a_busy_redis(stage: Scene, redis_server: RedisServer, carrier: Carrier) -> None:
    """Somebody's script does not end."""
    set_up(stage, carrier)
    before = snapshot(stage.redis)
    with busy(stage.redis, redis_server), pytest.raises(RedisUnavailable, match="[Bb]usy"):
        carrier.call(stage)
    assert {} == difference(before, snapshot(stage.redis))
    assert_works(stage, carrier)


@contextmanager
def busy(redis: Redis, redis_server: RedisServer) -> Iterator[None]:
    """Let a script run that never ends, and kill it."""
    redis.config_set("busy-reply-threshold", 1)
    with Redis(unix_socket_path=str(redis_server.socket)) as somebody:
        connection = somebody.connection_pool.get_connection()
        connection.send_command("EVAL", "while true do end", 0)
        eventually(lambda: assert_busy(redis))
        try:
            yield
        finally:
            redis.script_kill()
            with pytest.raises(ResponseError, match="killed"):
                connection.read_response()
            somebody.connection_pool.release(connection)
            redis.config_set("busy-reply-threshold", 5000)


def assert_busy(redis: Redis) -> None:
    """Check that Redis answers nothing else."""
    with pytest.raises(ResponseError, match="BUSY"):
        redis.get("anything")


@each_verb
def test_a_loading_redis(stage: Scene, redis_server: RedisServer, carrier: Carrier) -> None:
    """Redis has just been started and reads its data."""
    set_up(stage, carrier)
    before = snapshot(stage.redis)
    with behind_a_proxy(stage, redis_server) as (proxy, behind):
        behind.redis.ping()
        proxy.mode = "loading"
        with pytest.raises(RedisUnavailable, match="loading"):
            carrier.call(behind)
    assert {} == difference(before, snapshot(stage.redis))
    assert_works(stage, carrier)


@contextmanager
def behind_a_proxy(stage: Scene, redis_server: RedisServer) -> Iterator[tuple[Proxy, Scene]]:
    """Yield a proxy, and the same scene seen through it."""
    proxy = Proxy(redis_server.port)
    with connect(Settings(redis_url=proxy.url)) as redis:
        yield proxy, replace(stage, redis=redis, store=SpiedStore(redis))
    proxy.close()


@each_verb
def test_a_full_redis_that_forgot_the_scripts(stage: Scene, carrier: Carrier) -> None:
    """What is there goes on, what only adds is refused whole, and loading a script is no trouble (B54)."""
    set_up(stage, carrier)
    before = snapshot(stage.redis)
    stage.redis.script_flush("SYNC")
    stage.redis.config_set("maxmemory", 1)
    try:
        if carrier.verb in NEEDS_MEMORY:
            with pytest.raises(RedisFull):
                carrier.call(stage)
            assert {} == difference(before, snapshot(stage.redis))
        else:
            assert fire(stage, carrier) in ("moved", "claimed")
    finally:
        stage.redis.config_set("maxmemory", 0)
    if carrier.verb in NEEDS_MEMORY:
        assert_works(stage, carrier)
    else:
        assert_sound(stage, carrier)


def assert_works(stage: Scene, carrier: Carrier) -> None:
    """Check that the same call does its work now."""
    assert fire(stage, carrier) in ("moved", "claimed")
    assert_sound(stage, carrier)


def assert_sound(stage: Scene, carrier: Carrier) -> None:
    """Check the database against the audit."""
    assert [] == audit(stage.redis, stage.keys, [] if carrier is PURGE else [stage.held.task_id])

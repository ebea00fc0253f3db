"""Connections: one set of options, whatever they are made from."""

import os

import pytest
from ghostless.jobs.connection import REPLY_TIMEOUT, connect, connect_like, dedicated, pop_unless_woken
from ghostless.jobs.settings import Settings
from helpers import free_port
from proxy import Proxy
from redis import Redis
from redis.exceptions import ConnectionError


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@cache.example:6380/3",
        "unix:///run/redis.sock?db=2",
        "rediss://ann:secret@cache.example/0?ssl_check_hostname=false&ssl_cert_reqs=none&ssl_ca_data=abc",
    ],
)
def test_a_like_connection_reaches_the_same_database(url: str) -> None:
    """A connection made like rq's has its address, credentials and TLS options, and our time-outs and replies."""
    theirs = Redis.from_url(url, socket_timeout=415, decode_responses=False)
    ours = connect_like(theirs).connection_pool
    assert ours.connection_class is theirs.connection_pool.connection_class
    kept = theirs.connection_pool.connection_kwargs
    changed = {name for name, value in kept.items() if ours.connection_kwargs.get(name) != value}
    owned = {"socket_timeout", "socket_connect_timeout", "decode_responses", "encoding_errors", "protocol", "retry"}
    notices = {"maint_notifications_config", "maint_notifications_pool_handler"}  # of RESP3 only
    assert changed <= owned | notices | {"health_check_interval"}
    assert ours.connection_kwargs["socket_timeout"] == REPLY_TIMEOUT


def test_every_connection_is_patient_for_the_same_time() -> None:
    """The default connection has the same time-out as one made like another."""
    pool = connect(Settings()).connection_pool
    assert pool.connection_kwargs["socket_timeout"] == REPLY_TIMEOUT
    assert pool.connection_kwargs["decode_responses"] is True


def test_what_accepts_and_closes_is_not_reachable() -> None:
    """A proxy without a Redis behind it is told as such at once; the check of a new connection never checks itself."""
    between = Proxy(free_port())
    with connect_like(Redis.from_url(between.url), "worker") as redis, pytest.raises(ConnectionError):
        redis.ping()
    between.close()


def test_a_dedicated_client_keeps_its_connection(redis: Redis) -> None:
    """It takes one with its first command, for waiting too, and another one when that is lost."""
    pool = connect_like(redis).connection_pool
    one = dedicated(Redis(connection_pool=pool))
    assert not pool._in_use_connections
    number = one.client_id()
    wakeup, other_end = os.pipe()
    pop_unless_woken(one, ["nothing"], 0.01, wakeup)
    assert number == one.client_id()
    assert 1 == len(pool._in_use_connections)
    redis.client_kill_filter(_id=number)
    assert number != one.client_id()
    assert 1 == len(pool._in_use_connections)
    os.close(wakeup)
    os.close(other_end)
    one.close()
    pool.disconnect()

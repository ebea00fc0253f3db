"""Waiting for a hint: until there is one, until the time is over, or until somebody else has something to say."""

import os
import time
from collections.abc import Iterator

import pytest
from ghostless.jobs.errors import CorruptRecord
from ghostless.jobs.store import Store
from helpers import eventually
from redis import Redis


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The ends of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_hint_is_taken(store: Store, redis: Redis, pipe: tuple[int, int]) -> None:
    """A hint in any of the queues ends the wait, and is gone then."""
    redis.rpush(store.keys.wake("b"), "")
    began = time.monotonic()
    store.wait_for_hint(["a", "b"], 5, pipe[0])
    assert time.monotonic() - began < 2
    assert not redis.exists(store.keys.wake("b"))


def test_no_hint_ends_with_the_time(store: Store, pipe: tuple[int, int]) -> None:
    """Without a hint the wait lasts as long as it was to."""
    began = time.monotonic()
    store.wait_for_hint(["a"], 0.2, pipe[0])
    assert 0.1 < time.monotonic() - began < 2


def test_a_wake_up_ends_the_wait_and_nobody_waits_on_in_redis(
    store: Store, redis: Redis, pipe: tuple[int, int]
) -> None:
    """The connection of a wait that was cut short is closed, so that it takes no later hint and no later reply."""
    os.write(pipe[1], b"x")
    began = time.monotonic()
    store.wait_for_hint(["a"], 5, pipe[0])
    assert time.monotonic() - began < 2
    eventually(lambda: assert_nobody_is_blocked(redis))
    redis.rpush(store.keys.wake("a"), "")
    assert store.redis.ping()
    assert redis.llen(store.keys.wake("a")) == 1


def assert_nobody_is_blocked(redis: Redis) -> None:
    """Check that no client waits in Redis."""
    assert redis.info("clients")["blocked_clients"] == 0


def test_an_error_is_told_as_ours(store: Store, redis: Redis, pipe: tuple[int, int]) -> None:
    """What Redis refuses is told, and the next wait works."""
    redis.set(store.keys.wake("a"), "no list")
    with pytest.raises(CorruptRecord, match="WRONGTYPE"):
        store.wait_for_hint(["a"], 5, pipe[0])
    redis.delete(store.keys.wake("a"))
    store.wait_for_hint(["a"], 0.1, pipe[0])

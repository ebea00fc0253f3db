"""Whatever is done to all of very many tasks: no command of it holds Redis up, and nobody loses a lease (B58)."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from audit import audit
from faults.crowds import fill, nth
from faults.holders import beating
from faults.sizes import CROWD, PATIENCE
from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import State
from helpers import noting_slow_commands
from redis import Redis
from redis_server import RedisServer
from scripts.seeding import TYPE, claimed, scene

pytestmark = pytest.mark.timeout(PATIENCE)

CLOCKS = {"GHOSTLESS_BEAT": "0.5", "GHOSTLESS_LEASE": "5", "GHOSTLESS_GRACE": "0.5"}
"""A lease that ends within the test, and that this process can renew while it does everything else."""

SLOW = 20_000
"""Microseconds that no single command may take."""

CANCEL_ALL = BulkRequest("cancel", BulkFilter(type=TYPE, state=State.PENDING), limit=100_000)

OFTEN = 0.01
"""Of all rounds, how many may have such a command on a machine that has other things to do as well."""


@pytest.fixture
def client(redis: Redis, redis_server: RedisServer) -> Iterator[Client]:
    """The core beside very many tasks of one queue, of which one runs; commands that take long are noted."""
    settings = Settings.from_environment({**CLOCKS, "GHOSTLESS_REDIS_URL": redis_server.url})
    fill(scene(redis, settings), CROWD)
    with noting_slow_commands(redis, SLOW):
        yield Client(settings, redis)


def assert_no_long_rounds(client: Client, act: Callable[[], object], until: Callable[[], bool]) -> None:
    """Do a round of something until it is over; check that hardly any had a command that took long."""
    redis, rounds = client.store.redis, 0
    redis.slowlog_reset()
    while not until():
        act()
        rounds += 1
    assert redis.slowlog_len() <= max(1, OFTEN * rounds), (rounds, redis.slowlog_get(3))


def slow_commands_of_the_doctor(client: Client) -> set[str]:
    """Let the doctor find all in order; return its commands that took too long."""
    client.store.redis.slowlog_reset()
    with connect(client.settings, exact=True) as exact:
        assert [] == list(Doctor(Store(exact, client.settings)).audit())
    return {str(entry["command"]) for entry in client.store.redis.slowlog_get(10_000)}


def assert_audited_quickly(client: Client) -> None:
    """Check that no command of the doctor takes long each time."""
    always_slow = slow_commands_of_the_doctor(client)
    for _ in range(3):
        always_slow &= slow_commands_of_the_doctor(client) if always_slow else set()
    assert always_slow == set()


def assert_listed_quickly(client: Client, state: State) -> None:
    """Check that no command for a page of a state takes long each time."""
    assert any(slow_commands_of_a_page(client, state) == 0 for _ in range(3))


def slow_commands_of_a_page(client: Client, state: State) -> int:
    """Ask for a page; return how many commands took too long."""
    client.store.redis.slowlog_reset()
    assert len(client.list(Filter(state=state), limit=100).tasks) == 100
    return client.store.redis.slowlog_len()


def test_what_is_done_to_all_is_bounded(client: Client) -> None:
    """All tasks are cancelled, listed, audited and purged, while one runs and keeps its lease."""
    store, redis = client.store, client.store.redis
    held = claimed(store).held
    with beating(client, [held]) as lost:
        assert_listed_quickly(client, State.PENDING)
        assert_audited_quickly(client)
        spread = [nth(number) for number in range(1, CROWD, CROWD // 500)]
        assert_no_long_rounds(client, lambda: client.cancel(spread.pop()), until=lambda: not spread)
        while client.counts()[State.PENDING]:
            cancel = client.bulk.begin(CANCEL_ALL).bulk_id
            assert_no_long_rounds(client, client.bulk.work_off, until=partial(client.bulk.is_over, cancel))
        assert client.counts()[State.CANCELLED] == CROWD - 1
        assert_listed_quickly(client, State.CANCELLED)
        assert_audited_quickly(client)
        watchdog = Watchdog(store, "w")
        assert_no_long_rounds(client, watchdog.sweep_all, until=lambda: not redis.exists(store.keys.retention))
    assert lost == []
    assert redis.hget(store.keys.ledger, "purged") == str(CROWD - 1)
    assert redis.hmget(store.keys.task(held.task_id), "state", "attempt") == [State.PROCESSING, "1"]
    assert [] == audit(redis, store.keys, map(nth, range(CROWD)))

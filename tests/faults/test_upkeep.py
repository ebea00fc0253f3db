"""A missing single index entry of each sort is found by the watchdogs' audit within a minute, and repaired (B03, B06).

The clocks here are ten times as fast as those of production. A minute is counted in sweeps, each of which is a whole
round of the audit beside so few keys: so a slow machine has longer ones, not fewer.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path
from typing import Any, cast

import pytest
from audit import audit
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.keys import LISTED_SINCE
from ghostless.jobs.messages import Claim, Ending, Submission
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import Event, Policy, Reason, State
from helpers import eventually, expect
from redis import Redis
from redis_server import RedisServer

pytestmark = pytest.mark.slow

A_MINUTE = 60
"""Sweeps of a minute."""

TYPE = "up.keep"


@pytest.fixture
def server(own_server: Callable[..., RedisServer]) -> RedisServer:
    """A Redis of this test's own."""
    return own_server()


@pytest.fixture
def fleet(server: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    """Processes on that Redis, of which nothing is left."""
    running = Fleet(server.url, tmp_path)
    yield running
    assert running.end() == []


@pytest.fixture
def redis(server: RedisServer) -> Iterator[Redis]:
    """A connection to that Redis."""
    with connect(Settings(redis_url=server.socket_url)) as client:
        yield client


@pytest.fixture
def store(redis: Redis) -> Store:
    """What writes tasks; its workers have leases that outlive the test."""
    return Store(redis, Settings(lease=600.0))


def submit(store: Store, name: str, **wishes: Any) -> None:
    """Accept a task that has a queue for itself."""
    store.submit(Submission(name, TYPE, name, Policy(backoff_base=10**9, backoff_cap=10**9), "{}", "f", **wishes))


def run(store: Store, name: str) -> None:
    """Accept a task and start it."""
    submit(store, name)
    store.claim(Claim(f"w-{name}", (name,), "aa", (TYPE,)))


def end(store: Store, name: str, event: Event, **how: bool) -> None:
    """Accept a task and bring its first attempt to an end."""
    submit(store, name)
    claimed = store.claim(Claim(f"w-{name}", (name,), "aa", (TYPE,)))
    store.finish(claimed.held, Ending(event, Reason.EXCEPTION, text="{}", **how), "worker:w")  # type: ignore[union-attr]


def park(store: Store, name: str) -> None:
    """Accept a task that no worker serves."""
    submit(store, name)
    store.claim(Claim("w", (name,), "bb", ("another",)))


def losses(store: Store) -> dict[str, Callable[[], object]]:
    """Bring one task into each state, and return how each loses one entry."""
    redis, keys = store.redis, store.keys
    for name in ("queued", "unlisted", "unticketed", "unqueued", "emptied", "unfound", "unnamed"):
        submit(store, name)
    submit(store, "unowned", owner="ann")
    submit(store, "scheduled", delay=10**7)
    for name in ("running", "undated", "abandoned", "leaseless"):
        run(store, name)
    end(store, "waiting", Event.FAIL)
    end(store, "done", Event.COMPLETE)
    for name in ("parked", "untyped"):
        park(store, name)
    for name in ("awaited", "telling"):
        submit(store, name, delay=10**7)
        store.submit(Submission(f"behind-{name}", TYPE, "behind", Policy(), "{}", "f", depends_on=(name,)))
    end(store, "failed", Event.FAIL, retryable=False)
    submit(store, "cancelled")
    store.cancel("cancelled", "tester")
    return {
        "queued": lambda: redis.zrem(keys.state(State.PENDING), "queued"),
        "unlisted": lambda: redis.zrem(keys.pending("unlisted"), "unlisted"),
        "unticketed": lambda: redis.lrem(keys.rq_queue("unticketed"), 0, "unticketed"),
        "unowned": lambda: redis.delete(keys.owned("ann")),
        "unqueued": lambda: redis.hdel(keys.queues, "unqueued"),
        "emptied": lambda: redis.delete(keys.rq_job("emptied")),
        "scheduled": lambda: redis.zrem(keys.due, "scheduled"),
        "running": lambda: redis.zrem(keys.state(State.PROCESSING), "running"),
        "undated": lambda: redis.zrem(keys.deadlines, "undated"),
        "abandoned": lambda: abandon(store, "abandoned"),
        "waiting": lambda: redis.zrem(keys.due, "waiting"),
        "behind-awaited": lambda: redis.zrem(keys.dependents("awaited"), "behind-awaited"),
        "telling": lambda: end_untold(store, "telling"),
        "leaseless": lambda: lose_lease(store, "leaseless"),
        "failed": lambda: redis.zrem(keys.retention, "failed"),
        "cancelled": lambda: redis.zrem(keys.retention, "cancelled"),
        "done": lambda: redis.zrem(keys.retention, "done"),
        "parked": lambda: redis.zrem(keys.parked(f"parked:{TYPE}"), "parked"),
        "untyped": lambda: redis.delete(keys.parked_types("untyped")),
        "unfound": lambda: redis.zrem(keys.listed(f"unfound:{TYPE}"), "unfound"),
        "unnamed": lambda: redis.srem(keys.listed_places, f"unnamed:{TYPE}"),
    }


def abandon(store: Store, name: str) -> None:
    """Lose the lease and the deadline of a running task, and let the watchdog's own terms hold for it."""
    store.redis.hdel(store.keys.task(name), "lease")
    store.redis.zrem(store.keys.deadlines, name)
    store.redis.delete(store.keys.heartbeat(name))


def lose_lease(store: Store, name: str) -> None:
    """Lose only the lease of a running task whose deadline comes, and let the watchdog's own terms hold for it."""
    store.redis.hdel(store.keys.task(name), "lease")
    store.redis.delete(store.keys.heartbeat(name))
    store.redis.zadd(store.keys.deadlines, {name: 1})


BY_OTHERS = {"leaseless", "behind-awaited"}
"""What the watchdogs' other duties put right, the first by a timeout, mostly before the audit comes by."""


def end_untold(store: Store, name: str) -> None:
    """End a task as a script does that cannot tell all who wait for it, and lose the note that they are to be told."""
    store.redis.hdel(store.keys.task(name), "dependents")
    store.cancel(name, "tester")
    store.redis.hset(store.keys.task(name), "dependents", 1)


def rounds(store: Store) -> int:
    """Return how many rounds of the audit there were."""
    return int(cast(str | None, store.redis.hget(store.keys.patrol, "round")) or 0)


def unrepaired(store: Store, names: Iterable[str]) -> set[str]:
    """Return the tasks whose history tells of no repair."""
    entries = [entry for _, entry in store.redis.xrange(store.keys.history)]
    return {*names} - {entry["task"] for entry in entries if entry["reason"] == Reason.REPAIR}


def not_taken_away(store: Store, names: Iterable[str]) -> set[str]:
    """Return the running tasks that do not wait for their next attempt."""
    return {name for name in names if store.redis.hget(store.keys.task(name), "state") != State.RETRY_WAITING}


def wrong(store: Store, lost: Set[str]) -> list[object]:
    """Return what was not put right, or not told."""
    left: list[object] = [*unrepaired(store, lost - BY_OTHERS), *not_taken_away(store, ("abandoned", "leaseless"))]
    return left or [*audit(store.redis, store.keys, lost)]


def test_each_lost_entry_is_found_and_repaired(redis: Redis, store: Store, fleet: Fleet) -> None:
    """By watchdogs that run all the time: nothing is started after the loss, and the histories tell of it."""
    for _ in range(2):
        fleet.watchdog()
    eventually(lambda: expect(redis.hexists(store.keys.limits, LISTED_SINCE)), 20)
    lose = losses(store)
    assert [] == audit(redis, store.keys, lose)
    last = rounds(store) + A_MINUTE
    for loss in lose.values():
        loss()
    # The oracle does not ask for the name of a queue, nor for a lease.
    assert len(audit(redis, store.keys, lose)) >= len(lose) - 2
    eventually(lambda: expect(not wrong(store, lose.keys()) or rounds(store) >= last), 60)
    assert [] == wrong(store, lose.keys())
    assert redis.hexists(store.keys.queues, "unqueued")


def test_nothing_is_repaired_that_is_only_in_motion(
    redis: Redis, store: Store, server: RedisServer, fleet: Fleet, tmp_path: Path
) -> None:
    """Tasks that are submitted, run and end under three busy watchdogs have no repair in their histories."""
    fleet.environment["GHOSTLESS_SWEEP"] = "0.05"
    for _ in range(3):
        fleet.watchdog()
    for number in range(2):
        fleet.worker("default", name=f"w{number}", tasks="lifecycle")
    client = Client(Settings(redis_url=server.url))
    eventually(lambda: expect("life.once" in client.types()), 20)
    trace = {"trace": str(tmp_path / "trace")}
    ids = [client.submit("life.once", trace, delay=number % 3 / 10).task_id for number in range(150)]
    eventually(lambda: expect(client.counts()[State.SUCCESS] == len(ids)), 40)
    repairs = [entry for _, entry in redis.xrange(store.keys.history) if entry["reason"] == Reason.REPAIR]
    assert ([], []) == (repairs, audit(redis, store.keys, ids, effects=fleet.effects()))

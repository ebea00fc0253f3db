"""What is stored costs a sweep nothing, and the doctor no more than its number: beside few tasks, and beside very many.

Beside how many the doctor is tried says `faults/sizes.py`: with GHOSTLESS_FULL_SIZE=1 two hundred thousand too.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from faults.sizes import EXAMINED, IS_FULL, PATIENCE
from ghostless.benchmarks.copies import Crowd
from ghostless.benchmarks.observed import SlowCommands, counted_trips
from ghostless.benchmarks.tools import private_redis
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.messages import Swept
from ghostless.jobs.store import Store
from ghostless.jobs.upkeep import PATROL_SHARE, Upkeep
from ghostless.jobs.watchdog import Watchdog
from redis import Redis

pytestmark = [pytest.mark.timeout(PATIENCE), pytest.mark.usefixtures("redis_server")]

FEW, MANY = 2_000, 200_000
"""Stored tasks: more than any step looks at, and very many."""

SWEPT_IN, EXAMINED_IN = 5_000, 60
"""What is promised at full size: microseconds of Redis' time for a sweep with nothing due, seconds for the doctor."""

TRIES = 3
"""Looks, of which one that nothing else on the machine disturbed is enough."""


class Databases(NamedTuple):
    """A small database, the one for the doctor and a large one, filled alike: of ten tasks one waits for a worker."""

    few: Store
    examined: Store
    many: Store


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    """Servers of these tests' own."""
    with private_redis() as small, private_redis() as middle, private_redis() as large:
        stores = Databases(*(Store(connect(settings), settings) for settings in (small, middle, large)))
        for store, number in zip(stores, (FEW, EXAMINED, MANY), strict=True):
            Crowd(store).grow(number, number // 10)
        yield stores


def busy(redis: Redis) -> int:
    """Return how long Redis was busy with scripts and with looks at queues since its statistics began, in µs."""
    stats = redis.info("commandstats")
    return sum(stats[name]["usec"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats)


class Cost(NamedTuple):
    """What a sweep takes: round trips, and Redis' time in µs."""

    trips: int
    spent: int


def cost(store: Store, watchdog: Watchdog) -> Cost:
    """Return what one sweep costs."""
    store.redis.config_resetstat()
    with counted_trips() as trips:
        watchdog.sweep_all()
    return Cost(trips.number, busy(store.redis))


def test_a_sweep_with_nothing_due_costs_the_same(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep is the duties that move what is due; the two walks of the audit, which have a share of their own, come on
    top. It takes as many round trips, and twice Redis' time at most; at full size the promised 5 ms are asserted too.
    """
    for walk in ("audit", "prune"):
        monkeypatch.setattr(Watchdog, walk, lambda _: Swept(0, 0, ()))
    stores = (databases.few, databases.many)
    watchdogs = [Watchdog(store) for store in stores]
    for watchdog in watchdogs:
        watchdog.sweep_all()
    found = [[cost(*pair) for pair in zip(stores, watchdogs, strict=True)] for _ in range(20)]
    few, many = (min(costs) for costs in zip(*found, strict=True))
    assert few.trips == many.trips
    assert many.spent <= 2 * few.spent, (few, many)
    assert not IS_FULL or many.spent < SWEPT_IN


def test_the_walk_of_the_audit_keeps_to_its_share(databases: Databases) -> None:
    """Behind each step comes a pause of so many times what it took, but for the little of it that it cannot measure."""
    store, trace = databases.many, databases.many.keys.patrol
    upkeep, paused, spent = Upkeep(store), 0, 0
    for _ in range(100):
        store.redis.hdel(trace, "at")
        store.redis.config_resetstat()
        before = _now(store.redis)
        upkeep.patrol("watchdog")
        paused += 1_000 * (int(store.redis.hget(trace, "at") or 0) - before)
        spent += busy(store.redis)
    assert spent * PATROL_SHARE <= 1.5 * paused, (spent, paused)


def _now(redis: Redis) -> int:
    seconds, microseconds = redis.time()
    return 1_000 * seconds + microseconds // 1_000


class Look(NamedTuple):
    """What a look of the doctor takes: seconds, commands for each task, and its longest one (µs)."""

    seconds: float
    commands: float
    longest: int


def look(store: Store) -> Look:
    """Let the doctor find that all is well; return what that took."""
    redis, slow = store.redis, SlowCommands(store.redis)
    with connect(store.settings, exact=True) as exact:
        doctor = Doctor(Store(exact, store.settings))
        redis.config_resetstat()
        slow.watch(500)
        started_at = time.perf_counter()
        assert [] == list(doctor.audit())
    seconds, longest = time.perf_counter() - started_at, max([500, *slow.durations("")])
    stats = redis.info("commandstats").values()
    print(f"the doctor looked at {doctor.tasks:,} tasks in {seconds:.1f} s; its longest command took {longest} µs")
    return Look(seconds, sum(row["calls"] for row in stats) / doctor.tasks, longest)


def test_the_doctor_takes_no_more_for_each_task(databases: Databases) -> None:
    """As many commands, so that its time follows their number, and none of them takes longer the more there are.

    At full size the promised minute is asserted too.
    """
    few = [look(databases.few) for _ in range(TRIES)]
    longest = max(found.longest for found in few)
    for _ in range(TRIES):
        many = look(databases.examined)
        assert many.commands <= 1.1 * min(found.commands for found in few)
        assert not IS_FULL or many.seconds < EXAMINED_IN
        if many.longest <= 3 * longest:
            break
    assert many.longest <= 3 * longest

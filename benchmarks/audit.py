"""What the doctor and the watchdogs' audit cost on a large database: a part of `size.py`."""

import time
from collections.abc import Callable, Iterator
from statistics import median, quantiles

from redis import Redis

from ..jobs.connection import connect
from ..jobs.doctor import Doctor
from ..jobs.store import Store
from ..jobs.upkeep import PATROL_SHARE, PRUNE_SHARE, ROUND, Upkeep
from .observed import SlowCommands

SLOW = 2_000
"""Microseconds from which on a command is told."""


def examine(store: Store) -> None:
    """Let the doctor look at everything, and print what that cost."""
    slow, redis = SlowCommands(store.redis), store.redis
    slow.watch(SLOW)
    busy, started_at = float(redis.info("cpu")["used_cpu_user"]), time.perf_counter()
    with connect(store.settings, exact=True) as exact:
        doctor = Doctor(Store(exact, store.settings))
        problems = list(doctor.audit())
    seconds = time.perf_counter() - started_at
    busy = float(redis.info("cpu")["used_cpu_user"]) - busy
    print(f"doctor: {doctor.tasks:,} tasks, {doctor.entries:,} entries, {len(problems)} problems: {problems[:3]}")
    print(
        f"  {seconds:.1f} s, Redis busy for {busy:.1f} s of it; the longest of its commands:",
        *slow.longest(5),
        sep="\n  ",
    )


def walk_round(store: Store) -> None:
    """Let the watchdogs' walks go round once without a pause, and print what that cost Redis and how long it takes."""
    upkeep, keys = Upkeep(store), store.keys
    walks = {
        "audit of tasks": (upkeep.patrol, keys.patrol, PATROL_SHARE),
        "look through indices": (upkeep.prune, keys.prune, PRUNE_SHARE),
    }
    for name, (sweep, trace, share) in walks.items():
        steps = list(_steps_of_a_round(store.redis, sweep, trace))
        busy = sum(steps) / 1e6
        print(
            f"{name}: {len(steps):,} steps, median {median(steps):.0f} µs, p99 {quantiles(steps, n=100)[-1]:.0f} µs;"
            f" a round takes Redis {busy:.1f} s, and {max(ROUND, share * busy):.0f} s in all"
        )


def _steps_of_a_round(redis: Redis, sweep: Callable[[str], object], trace: str) -> Iterator[int]:
    """Yield the time that Redis took for each step, µs; a sweep may make several."""
    slow = SlowCommands(redis)
    redis.delete(trace)
    while redis.hget(trace, "round") in (None, "0"):
        redis.hdel(trace, "at")
        slow.watch(0)
        sweep("bench")
        yield from slow.durations("EVALSHA")

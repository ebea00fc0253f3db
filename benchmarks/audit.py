"""What the doctor and the watchdogs' audit cost on a large database: a part of `size.py`."""

import time
from statistics import median

from ..jobs.connection import connect
from ..jobs.doctor import Doctor
from ..jobs.store import Store
from ..jobs.upkeep import PATROLLED, Upkeep
from .observed import SlowCommands
from .tools import timed

STEPS = 300
"""Steps of the audit that are timed."""

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


def patrol(store: Store) -> None:
    """Time the steps of the continuous audit."""
    upkeep, steps = Upkeep(store), list[float]()
    for _ in range(STEPS):
        store.redis.hdel(store.keys.patrol, "at")
        steps.append(timed(lambda: upkeep.patrol("bench")) / 1000)
    print(f"audit step: median {median(steps):.2f} ms, longest {max(steps):.2f} ms; one pass over")
    minutes = store.redis.dbsize() / PATROLLED * store.settings.sweep / 60
    print(f"  {store.redis.dbsize():,} keys takes {minutes:.0f} minutes")

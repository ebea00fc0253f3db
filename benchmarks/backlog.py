"""A backlog worked off at full speed, and what a busy worker notices of it: a part of `size.py`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from statistics import median, quantiles
from typing import cast

from ..jobs.reads import Reads
from ..jobs.settings import Settings
from ..jobs.store import Store
from .copies import Hand
from .observed import SlowCommands
from .tools import timed

CALLS = 3_000
"""Calls of a worker by which it is told how long they take while all is quiet."""

LOOK_EVERY = 10
"""Calls of a worker between two looks at whether the backlog is worked off."""

LONG_AGO = 1
"""A time that is over, in ms."""

SLOW = 5_000
"""Microseconds that no command may take."""


@contextmanager
def watched(settings: Settings, reads: Reads) -> Generator[None]:
    """Run a watchdog, a process of its own, once it sweeps: its start takes a CPU for a while."""
    environment = {**os.environ, "GHOSTLESS_REDIS_URL": settings.redis_url}
    command = [sys.executable, "-m", "ghostless.jobs.cli", "watchdog"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not str((reads.watchdog() or {}).get("actor")).endswith(f"-{process.pid}"):
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def latencies(hand: Hand, is_over: Callable[[int], bool]) -> list[float]:
    """Finish a task and claim the next, again and again; return how long each such call took, in µs."""
    times: list[float] = []
    hand.claim()
    while not is_over(len(times)):
        times += [timed(hand.finish_and_claim) for _ in range(LOOK_EVERY)]
    hand.finish()
    return times


def release(store: Store, number: int) -> None:
    """Let so many tasks become due at once, beside a worker, and print what it noticed."""
    hand, reads = Hand(store), Reads(store.redis, store.keys)
    with watched(store.settings, reads):
        quiet = latencies(hand, lambda done: done >= CALLS)
        tasks = make_due(store, number)
        latencies(hand, lambda _: number_due(store) < len(tasks))  # until the next sweep
        started_at = time.perf_counter()
        busy = latencies(hand, lambda _: not number_due(store))
        seconds = time.perf_counter() - started_at
    print(f"{len(tasks):,} tasks due at once: released in {seconds:.1f} s, {len(tasks) / seconds:,.0f} a second")
    for name, times in (("quiet", quiet), ("meanwhile", busy)):
        print(
            f"  finish + claim, {name}: median {median(times):.0f} µs, p99 {p99(times):.0f} µs of {len(times):,} calls"
        )
    print(f"  p99 meanwhile / quiet: {p99(busy) / p99(quiet):.1f}")


def make_due(store: Store, number: int) -> list[str]:
    """Let the time of so many tasks come, or of all that there are; return them."""
    tasks = first(store, store.keys.due, number)
    with store.redis.pipeline() as pipeline:
        for task_id in tasks:
            pipeline.hset(store.keys.task(task_id), "due_at", LONG_AGO)
        pipeline.zadd(store.keys.due, dict.fromkeys(tasks, LONG_AGO))
        pipeline.execute()
    return tasks


def first(store: Store, index: str, number: int) -> list[str]:
    """Return so many tasks of an index, those whose time comes first."""
    return cast("list[str]", store.redis.zrange(index, 0, number - 1))


def number_due(store: Store) -> int:
    """Return how many of them were not released yet."""
    return store.redis.zcount(store.keys.due, "-inf", LONG_AGO)


def p99(times: list[float]) -> float:
    """Return the 99th percentile."""
    return quantiles(times, n=100)[-1]


def purge(store: Store, number: int) -> None:
    """Let the retention of so many tasks be over at once, purge them, and print what Redis noticed."""
    retention = store.keys.retention
    tasks = first(store, retention, number)
    store.redis.zadd(retention, dict.fromkeys(tasks, LONG_AGO))
    slow, times = SlowCommands(store.redis), list[float]()
    slow.watch(SLOW)
    while store.redis.zcount(retention, "-inf", LONG_AGO):
        times.append(timed(store.purge) / 1000)
    print(
        f"{len(tasks):,} tasks purged in {sum(times) / 1000:.1f} s, {len(times):,} calls: median {median(times):.2f},"
    )
    print(f"  p99 {p99(times):.2f}, longest {max(times):.1f} ms; {slow.number()} commands kept Redis for 5 ms or more")
    print("  ", *slow.longest(3))

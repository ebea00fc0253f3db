"""How soon a death is noticed, and its task runs again: `python -m ghostless.benchmarks.recovery [DEATH ...]`.

Starts a Redis of its own, a watchdog and workers, kills again and again what runs a task, and prints for each kind of
death the time by Redis' clock until the history told of it, and until the next attempt began: median and spread, in
leases. The clocks are a tenth of the usual ones, and there is no backoff. A kind takes half a minute at most.
"""

import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from statistics import median

import click
import psutil
from rich.console import Console
from rich.table import Table

from ..jobs.client import Client
from ..jobs.connection import connect
from .recovery_field import BEAT, CLOCKS, LEASE, Field, Recovery
from .recovery_http import over_http
from .tools import private_redis

DEATHS = 10
"""Deaths of each kind."""

TOGETHER = 5
"""Workers that die at one instant: all that run a task, and more than three."""

Kill = Callable[[Field, str], int]
"""Kills what a worker of this name runs, or the worker; returns from when its recovery counts, ms by Redis' clock."""


def kill_handler(field: Field, worker: str) -> int:
    """Kill the process of its handlers."""
    died_at = field.now()
    for child in psutil.Process(field.pid_of(worker)).children():
        child.kill()
    return died_at


def kill_worker(field: Field, worker: str) -> int:
    """Kill a worker."""
    died_at = field.now()
    os.kill(field.pid_of(worker), signal.SIGKILL)
    return died_at


def kill_while_redis_is_away(field: Field, worker: str) -> int:
    """Kill a worker while Redis stands still; what counts is when Redis is back."""
    redis, pid = int(field.client.store.redis.info("server")["process_id"]), field.pid_of(worker)
    os.kill(redis, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    time.sleep(LEASE)
    os.kill(redis, signal.SIGCONT)
    return field.now()


def one_by_one(field: Field, kill: Kill, prepare: Callable[[], object]) -> list[Recovery]:
    """Run a task, and kill again and again what runs it, at any moment between two beats."""
    (task,), found = field.submit(1), list[Recovery]()
    for _ in range(DEATHS):
        worker = field.worker_of(task)
        prepare()
        time.sleep(random.uniform(0, BEAT))
        found.append(field.recovery(task, kill(field, worker)))
    return found


def handlers(field: Field) -> list[Recovery]:
    """Let the process of a handler die; its worker starts another one."""
    field.work(1)
    return one_by_one(field, kill_handler, lambda: None)


def in_a_pool(field: Field) -> list[Recovery]:
    """Let workers of a pool die, which knows of it, and starts others."""
    (pool,) = field.work(1, pooled=3)
    return one_by_one(field, kill_worker, lambda: field.await_idle([pool], 2))


def alone(field: Field) -> list[Recovery]:
    """Let workers die that nobody watches but the watchdog."""
    field.work(1)
    return one_by_one(field, kill_worker, lambda: field.work(1))


def while_redis_is_away(field: Field) -> list[Recovery]:
    """Let workers die while nobody can notice."""
    field.work(1)
    return one_by_one(field, kill_while_redis_is_away, lambda: field.work(1))


def together(field: Field) -> list[Recovery]:
    """Let all die at once that run a task; as many idle ones are there."""
    field.work(2 * TOGETHER)
    tasks, found = field.submit(TOGETHER), list[Recovery]()
    for _ in range(DEATHS // TOGETHER):
        workers = [field.worker_of(task) for task in tasks]
        time.sleep(random.uniform(0, BEAT))
        died_at = [kill_worker(field, worker) for worker in workers]
        found += [field.recovery(task, at) for task, at in zip(tasks, died_at, strict=True)]
        field.work(TOGETHER)
    return found


KINDS: Mapping[str, Callable[[Field], list[Recovery]]] = {
    "handler": handlers,
    "pool": in_a_pool,
    "worker": alone,
    "http": lambda field: over_http(field, DEATHS),
    "together": together,
    "away": while_redis_is_away,
}


@contextlib.contextmanager
def prepared() -> Generator[Field]:
    """Run a Redis and a watchdog."""
    with private_redis() as settings, tempfile.TemporaryDirectory() as folder:
        client = Client(replace(settings, **CLOCKS), connect(settings))
        field = Field(client, folder)
        try:
            field.start("watchdog", "watchdog")
            yield field
        finally:
            field.end()


def spread(leases: Sequence[float]) -> tuple[str, str]:
    """Return median and spread."""
    return f"{median(leases):.2f}", f"{min(leases):.2f} - {max(leases):.2f}"


@click.command()
@click.argument("deaths", nargs=-1, type=click.Choice(list(KINDS)))
def main(deaths: Sequence[str]) -> None:
    """Measure these kinds of death, or all."""
    table = Table(f"leases of {LEASE} s", "n", "noticed after", "spread", "ran again after", "spread")
    for kind in deaths or KINDS:
        with prepared() as field:
            found = KINDS[kind](field)
        noticed, restarted = spread([one.noticed for one in found]), spread([one.restarted for one in found])
        table.add_row(kind, str(len(found)), *noticed, *restarted)
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.exit(main())

"""What a task costs a worker, beside the bare round trip, in one run: `python -m ghostless.benchmarks.worker`.

Starts a Redis of its own and one real worker with a warm horse, lets it run tasks that do nothing, and prints tasks
per second, also as PINGs a task; the CPU of worker and horse; the commands on the wire; and how soon a task starts on
an idle worker, beside a bare BLPOP. `--help` tells of Redis' address, of its AOF and of the CPUs.
"""

import contextlib
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
import psutil
from redis import Redis
from rich.console import Console
from rich.table import Table

from ..jobs.cli.ports import free_port
from ..jobs.connection import connect
from ..jobs.messages import Submission
from ..jobs.settings import Settings
from ..jobs.store import Store
from ..statemachine import Policy
from .noop import MOMENT, STARTS
from .tools import FSYNC, durable, private_redis, timed

PINGS = 3000
WARM_UP = 200
COUNTED = 200
"""Tasks of the round in which commands are counted: Redis is slower while it tells them."""

GAP = 0.01
"""Seconds after which a worker that has run its task is idle."""

OTHER_QUEUES = ("bench1", "bench2", "bench3")


@dataclass(frozen=True)
class Bench:
    """One worker and what it is measured with."""

    store: Store
    starts: Path
    worker: psutil.Process

    @property
    def horse(self) -> psutil.Process:
        """The process of the handlers, a worker's only child."""
        return self.worker.children()[0]

    def submit(self, tasks: int, queue: str = "bench") -> None:
        """Submit tasks, a hundred in one round trip."""
        for first in range(0, tasks, 100):
            self.store.submit_many([_submission(queue) for _ in range(min(100, tasks - first))])

    def started(self) -> int:
        """Return how many tasks have started since the worker began."""
        return self.starts.stat().st_size // MOMENT.size

    def await_starts(self, number: int) -> list[float]:
        """Wait until so many tasks have started; return the moments."""
        while self.started() < number:
            time.sleep(0.02)
        return [moment for (moment,) in MOMENT.iter_unpack(self.starts.read_bytes())]


def _submission(queue: str) -> Submission:
    return Submission(os.urandom(10).hex(), "bench.noop", queue, Policy(), "{}", "f")


@contextlib.contextmanager
def running_worker(settings: Settings, *queues: str) -> Generator[Bench]:
    """Run a worker with a warm horse."""
    with tempfile.TemporaryDirectory() as folder:
        starts = Path(folder) / "starts"
        starts.touch()
        command = [
            sys.executable,
            "-m",
            "ghostless.jobs.cli",
            "worker",
            *queues,
            "--tasks",
            "ghostless.benchmarks.noop",
        ]
        own = {STARTS: str(starts), "GHOSTLESS_REDIS_URL": settings.redis_url, "GHOSTLESS_ARTIFACTS": folder}
        process = subprocess.Popen(command, env={**os.environ, **own}, cwd=folder, stderr=subprocess.DEVNULL)
        try:
            bench = Bench(Store(connect(settings), settings), starts, psutil.Process(process.pid))
            bench.submit(WARM_UP)
            bench.await_starts(WARM_UP)
            yield bench
        finally:
            process.terminate()
            process.wait()


# Full speed


def full_speed(bench: Bench, tasks: int) -> float:
    """Let the worker run so many tasks that are there already; return the seconds of one."""
    before = bench.started()
    bench.store.pause_queue("bench")
    bench.submit(tasks)
    bench.store.resume_queue("bench")
    moments = bench.await_starts(before + tasks)[before:]
    return (moments[-1] - moments[0]) / (tasks - 1)


def ping(redis: Redis) -> float:
    """Return the seconds of one bare round trip by redis-py, on one connection."""
    return statistics.mean(timed(lambda: redis.ping()) for _ in range(PINGS)) / 1e6


def bare_ping(redis: Redis) -> float:
    """Return the seconds of one bare round trip with nothing around it."""
    connection = redis.connection_pool.get_connection()

    def call() -> None:
        connection.send_command("PING", check_health=False)
        connection.read_response()

    try:
        return statistics.mean(timed(call) for _ in range(PINGS)) / 1e6
    finally:
        redis.connection_pool.release(connection)


def cpu(process: psutil.Process) -> float:
    """Return the seconds of CPU that a process has used."""
    times = process.cpu_times()
    return times.user + times.system


def commands(bench: Bench) -> Counter[str]:
    """Return what clients send while the worker runs tasks, by the commands' names; what scripts call is left out."""
    seen = Counter[str]()
    before = bench.started()
    bench.store.pause_queue("bench")
    bench.submit(COUNTED)
    time.sleep(0.5)  # until the worker has followed all hints to a queue that is paused
    with bench.store.redis.monitor() as monitor:
        bench.store.resume_queue("bench")
        bench.await_starts(before + COUNTED)
        bench.store.redis.echo("over")
        for told in cast("Iterable[Any]", monitor.listen()):
            if told["client_type"] != "lua":
                seen[told["command"].split()[0].upper()] += 1
            if told["command"] == "ECHO over":
                return seen
    return seen


# An idle worker


def pop(url: str, starts: str) -> None:
    """Be the bare counterpart of a worker: pop, and note the moment."""
    redis = connect(Settings(redis_url=url))
    descriptor = os.open(starts, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    while redis.blpop(["bare"], 1) != ("bare", "end"):
        os.write(descriptor, MOMENT.pack(time.monotonic()))


@contextlib.contextmanager
def popping(bench: Bench) -> Generator[Path]:
    """Run that counterpart."""
    path = bench.starts.with_name("pops")
    path.touch()
    popper = multiprocessing.get_context("fork").Process(target=pop, args=(bench.store.settings.redis_url, str(path)))
    popper.start()
    yield path
    bench.store.redis.rpush("bare", "end")
    popper.join()


def latency(give: Callable[[], object], moments: Path) -> float:
    """Return the seconds from the call that gives something to do until its taker starts."""
    before = moments.stat().st_size
    asked_at = time.monotonic()
    give()
    while moments.stat().st_size == before:
        time.sleep(GAP)
    time.sleep(GAP)
    return MOMENT.unpack(moments.read_bytes()[before : before + MOMENT.size])[0] - asked_at


def idle_starts(bench: Bench, samples: int) -> dict[str, list[float]]:
    """Return how long it takes until a task starts and until a bare pop has its value, and a PING after such a pause.

    One after the other, so that all of them meet the same machine.
    """

    def give() -> object:
        return bench.store.submit(_submission("bench"))

    redis, found = bench.store.redis, dict[str, list[float]](start=[], submit=[], pop=[], ping=[])
    with popping(bench) as pops:
        time.sleep(0.5)
        for _ in range(samples):
            found["start"].append(latency(lambda: found["submit"].append(timed(give) / 1e6), bench.starts))
            found["pop"].append(latency(lambda: redis.rpush("bare", "go"), pops))
            found["ping"].append(timed(lambda: redis.ping()) / 1e6)
            time.sleep(2 * GAP)
    return found


# What is printed


def spread(values: Sequence[float], scale: float = 1e6) -> tuple[str, str]:
    """Return the median of some seconds, and from where to where they go, in µs."""
    return f"{statistics.median(values) * scale:.1f}", f"{min(values) * scale:.1f} - {max(values) * scale:.1f}"


def at(values: Sequence[float], percent: int) -> float:
    """Return a percentile."""
    return statistics.quantiles(values, n=100)[percent - 1]


def print_full_speed(settings: Settings, rounds: int, tasks: int) -> None:
    """Measure and print what a task costs a worker that has enough to do."""
    with running_worker(settings, "bench") as bench:
        redis = bench.store.redis
        processes = bench.worker, bench.horse
        used = [cpu(process) for process in processes]
        figures: dict[str, list[float]] = {"a task": [], "PING by redis-py": [], "bare PING": []}
        for _ in range(rounds):
            figures["a task"].append(full_speed(bench, tasks))
            figures["PING by redis-py"].append(ping(redis))
            figures["bare PING"].append(bare_ping(redis))
        used = [cpu(process) - before for process, before in zip(processes, used, strict=True)]
        table = Table("full speed", "median µs", "spread µs")
        for name, values in figures.items():
            table.add_row(name, *spread(values))
        for name, seconds in zip(("worker", "horse"), used, strict=True):
            table.add_row(f"CPU of the {name} a task", f"{seconds / rounds / tasks * 1e6:.1f}", "")
        Console().print(table)
        task, by_redis_py, bare = (statistics.median(values) for values in figures.values())
        print(
            f"{1 / task:.0f} tasks/s; a task is {task / by_redis_py:.1f} PINGs by redis-py, {task / bare:.1f} bare ones"
        )
        sent = ", ".join(f"{name} {number}" for name, number in commands(bench).most_common())
        print(f"commands of clients during {COUNTED} tasks: {sent}\n")


def print_idle(settings: Settings, samples: int) -> None:
    """Measure and print how soon a task starts on an idle worker."""
    table = Table("idle worker, µs", *("submit to start", "p99", "bare BLPOP", "p99", "submit", "PING", "PINGs above"))
    for queues in (("bench",), (*OTHER_QUEUES, "bench")):
        with running_worker(settings, *queues) as bench:
            found = idle_starts(bench, samples)
        start, pop, submit, cost = (at(found[name], 50) for name in ("start", "pop", "submit", "ping"))
        figures = start, at(found["start"], 99), pop, at(found["pop"], 99), submit, cost
        row = [f"{figure * 1e6:.0f}" for figure in figures]
        table.add_row(f"{len(queues)} queues", *row, f"{(start - pop) / cost:.1f}")
    Console().print(table)


@contextlib.contextmanager
def redis_for(tcp: bool, aof: str) -> Generator[Settings]:
    """Run a server as the options say."""
    port = free_port(0)
    with private_redis("--port", str(port), *durable(aof)) as settings:
        yield Settings(redis_url=f"redis://127.0.0.1:{port}") if tcp else settings


@click.command()
@click.option("--tcp", is_flag=True, help="Reach Redis by TCP instead of a Unix socket.")
@click.option("--aof", type=click.Choice(FSYNC), default="off", help="How Redis keeps its data.")
@click.option("--free", is_flag=True, help="Let the system choose the CPUs; else all processes share one.")
@click.option("--rounds", default=5, help="Rounds of full speed.")
@click.option("--tasks", default=1000, help="Tasks of a round.")
@click.option("--samples", default=150, help="Tasks given to an idle worker; 0 for none.")
def main(tcp: bool, aof: str, free: bool, rounds: int, tasks: int, samples: int) -> None:
    """Measure what a task costs a worker."""
    if not free:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"{'TCP' if tcp else 'Unix socket'}, AOF {aof}, {'CPUs as they come' if free else 'one CPU'}")
    with redis_for(tcp, aof) as settings:
        print_full_speed(settings, rounds, tasks)
        if samples:
            print_idle(settings, samples)


if __name__ == "__main__":
    main()

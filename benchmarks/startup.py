"""What starting costs, beside a bare interpreter, each time a fresh process: `python -m ghostless.benchmarks.startup`.

Prints for each command the CPU time that it and its children used, and the time until it ended; then how long a worker
takes until it has run its first task, which waits for it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from ..jobs.connection import connect
from ..jobs.messages import Submission
from ..jobs.reads import Reads
from ..jobs.settings import Settings
from ..jobs.store import Store
from ..statemachine import Policy, State
from .tools import private_redis

ROUNDS = 11

PYTHON = (sys.executable, "-c")
CLI = (sys.executable, "-m", "ghostless.jobs.cli")
COMMANDS: Mapping[str, Sequence[str]] = {
    "python -c pass": (*PYTHON, "pass"),
    "import ghostless.jobs": (*PYTHON, "import ghostless.jobs"),
    "import its Client": (*PYTHON, "from ghostless.jobs import Client"),
    "ghostless --help": (*CLI, "--help"),
    "ghostless worker --help": (*CLI, "worker", "--help"),
}


def spent(command: Sequence[str]) -> tuple[float, float]:
    """Run a command to its end; return the CPU time that it used and the time it took, in ms."""
    started_at = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return 1000 * (usage.ru_utime + usage.ru_stime), 1000 * (time.perf_counter() - started_at)


def first_task(settings: Settings) -> float:
    """Start a worker; return how long it took until a task that waited for it had run, in ms."""
    store = Store(connect(settings), settings)
    store.redis.flushall()
    store.submit(Submission("t", "bench.noop", "bench", Policy(), "{}", "f"))
    reads, environment = Reads(store.redis, store.keys), {**os.environ, "GHOSTLESS_REDIS_URL": settings.redis_url}
    command = [*CLI, "worker", "bench", "--tasks", "ghostless.benchmarks.noop"]
    started_at = time.perf_counter()
    worker = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        while reads.task("t").state != State.SUCCESS:
            time.sleep(0.002)
        return 1000 * (time.perf_counter() - started_at)
    finally:
        worker.terminate()
        worker.wait()


def main() -> None:
    """Run each command several times in turn, and print the table."""
    figures: dict[str, list[tuple[float, float]]] = {}
    with private_redis() as settings:
        for _ in range(ROUNDS):
            for name, command in COMMANDS.items():
                figures.setdefault(name, []).append(spent(command))
        firsts = [first_task(settings) for _ in range(ROUNDS)]
    table = Table(f"median of {ROUNDS}, ms", "CPU", "spread", "until it ended", "spread")
    for name, times in figures.items():
        used, elapsed = zip(*times, strict=True)
        table.add_row(name, *cells(used), *cells(elapsed))
    table.add_row("worker until its first task is over", "", "", *cells(firsts))
    Console(width=120).print(table)


def cells(times: Sequence[float]) -> tuple[str, str]:
    """Return median and spread."""
    return f"{median(times):.0f}", f"{min(times):.0f} - {max(times):.0f}"


if __name__ == "__main__":
    main()

"""What each script costs, beside the bare round trip, in one run: `python -m ghostless.benchmarks.scripts`.

Starts a Redis of its own on a Unix socket, drives tasks through their life, and prints for each verb the median and
spread of several rounds, as time and as a multiple of a bare EVALSHA; then the bytes that a task keeps.
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

from redis import Redis
from rich.console import Console
from rich.table import Table

from ..jobs.connection import connect
from ..jobs.messages import Claim, Claimed, ClaimReply, Ending, Submission
from ..jobs.settings import Settings
from ..jobs.store import Store
from ..statemachine import Event, Policy, Reason

ROUNDS = 7
TASKS = 300
"""Tasks in one round; each round's figure is the mean of its calls."""


@contextlib.contextmanager
def private_redis(*options: str) -> Generator[Settings]:
    """Run a server on a socket in a temporary folder; without options it keeps nothing."""
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/redis.sock"
        command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder, *options]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not Path(socket).exists():
                time.sleep(0.01)
            yield Settings(redis_url=f"unix://{socket}")
        finally:
            server.terminate()
            server.wait()


def timed(call: Callable[[], object]) -> float:
    """Return how long a call takes, in µs."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e6


def next_task(store: Store) -> ClaimReply:
    """Claim a task."""
    return store.claim(Claim.new("bench", ["bench"], ["bench.noop"]))


def finish(store: Store, claimed: Claimed) -> ClaimReply | None:
    """Finish a task and claim the next one in the same call."""
    ending = Ending(Event.COMPLETE, Reason.POLICY, text='{"ok":true}')
    return store.finish(claimed.held, ending, "worker:bench", Claim.new("bench", ["bench"], ["bench.noop"]))[1]


def one_round(store: Store, number: int) -> dict[str, float]:
    """Drive tasks through their life; return the mean time of each verb in µs."""
    times: dict[str, list[float]] = {}

    def note(verb: str, call: Callable[[], object]) -> None:
        times.setdefault(verb, []).append(timed(call))

    bare = store.redis.register_script("return 1")
    for index in range(TASKS):
        note("bare PING", lambda: store.redis.ping())
        note("bare EVALSHA", bare)
        task = Submission(f"{number}-{index}", "bench.noop", "bench", Policy(), '{"x":1}', "f")
        note("submit", lambda task=task: store.submit(task))
    claimed = next_task(store)
    while isinstance(claimed, Claimed):
        held = claimed.held
        note("heartbeat", lambda held=held: store.heartbeat(held))
        note("progress", lambda held=held: store.progress(held, 0.5, "half"))
        started = time.perf_counter()
        claimed = finish(store, claimed)
        times.setdefault("finish + claim", []).append((time.perf_counter() - started) * 1e6)
    note("sweep, nothing due", lambda: store.sweep("bench"))
    note("release, nothing due", lambda: store.release("bench"))
    return {verb: statistics.mean(values) for verb, values in times.items()}


def used(redis: Redis) -> int:
    """Return the bytes that Redis holds."""
    return int(redis.info("memory")["used_memory"])


def memory(redis: Redis, store: Store, tasks: int = 2000) -> dict[str, float]:
    """Return the bytes that one more task keeps, queued and finished."""
    redis.flushall()
    empty = used(redis)
    params = '{"prompt":"' + "x" * 137 + '"}'
    for index in range(tasks):
        store.submit(Submission(f"m-{index:05}", "bench.noop", "bench", Policy(), params, "f"))
    queued = used(redis)
    claimed: ClaimReply | None = next_task(store)
    while isinstance(claimed, Claimed):
        claimed = finish(store, claimed)
    return {"queued": (queued - empty) / tasks, "finished": (used(redis) - empty) / tasks}


def main() -> int:
    """Run the rounds and print the table."""
    with private_redis() as settings:
        redis = connect(settings)
        store = Store(redis, settings)
        one_round(store, 0)  # warm up
        rounds = [one_round(store, number) for number in range(1, ROUNDS + 1)]
        kept = memory(redis, store)
    table = Table("verb", "median µs", "spread µs", "of a bare EVALSHA")
    bare = statistics.median(figures["bare EVALSHA"] for figures in rounds)
    for verb in rounds[0]:
        values = [figures[verb] for figures in rounds]
        middle = statistics.median(values)
        table.add_row(verb, f"{middle:.0f}", f"{min(values):.0f} - {max(values):.0f}", f"{middle / bare:.2f}")
    Console().print(table)
    print(f"bytes a task: {kept['queued']:.0f} queued, {kept['finished']:.0f} finished (150 bytes of params)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

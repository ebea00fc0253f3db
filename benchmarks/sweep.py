"""What watching costs by what is stored and by what is due: `python -m ghostless.benchmarks.sweep`.

Starts a Redis of its own, fills it step by step, and prints for each number of stored tasks how long the duties of a
watchdog take with nothing due, as median and spread of many rounds; then how a backlog is worked off, batch by batch,
which is how long a heartbeat may have to wait. The number of tasks may be given: 200000 when it is not.
"""

import itertools
import statistics
import sys
from collections.abc import Callable, Iterator

from redis import Redis
from rich.console import Console
from rich.table import Table

from ..jobs.connection import connect
from ..jobs.messages import Claim, Claimed, Held, Submission
from ..jobs.store import Store
from ..jobs.watchdog import Watchdog
from ..statemachine import Policy
from .scripts import private_redis, timed

ROUNDS = 50
RUNNING = 200
TOGETHER = 1_000
"""Tasks submitted in one round trip."""

AN_HOUR = 3_600_000
POLICY = Policy(retention=10 * AN_HOUR)


def fill(store: Store, numbers: range) -> None:
    """Store tasks: of four, two wait in their queue, one waits for its time, and one is over."""
    for first in numbers[::TOGETHER]:
        some = range(first, min(first + TOGETHER, numbers.stop))
        store.submit_many([task(number, AN_HOUR if number % 4 == 2 else 0) for number in some])
        for number in some[3::4]:
            store.cancel(f"t{number}", "bench")


def task(number: int, delay: int = 0) -> Submission:
    """Return a small task."""
    return Submission(f"t{number}", "bench.noop", f"bench{number % 4}", POLICY, '{"x":1}', "f", delay=delay)


def start(store: Store, number: int) -> list[Held]:
    """Let so many tasks run, each on a worker of its own."""
    store.submit_many([task(-4 * index) for index in range(1, number + 1)])
    claims = [Claim.new(f"w{index}", ["bench0"], ["bench.noop"]) for index in range(number)]
    return [reply.held for reply in map(store.claim, claims) if isinstance(reply, Claimed)]


def duties(watchdog: Watchdog) -> dict[str, Callable[[], object]]:
    """Return what a watchdog does, by name."""
    return {
        "sweep_deadlines": watchdog.sweep_deadlines,
        "release_due": watchdog.release_due,
        "requeue_missing": watchdog.requeue_missing,
        "purge": watchdog.purge,
        "a whole round": watchdog.sweep_all,
    }


def with_nothing_due(watchdog: Watchdog, held: list[Held]) -> dict[str, list[float]]:
    """Return how long each duty takes, in µs."""
    times: dict[str, list[float]] = {}
    renew(watchdog.store, held)
    while watchdog.sweep_all():  # what became due while tasks were stored
        pass
    for _ in range(ROUNDS):
        renew(watchdog.store, held)
        for name, duty in duties(watchdog).items():
            times.setdefault(name, []).append(timed(duty))
    return times


def renew(store: Store, held: list[Held]) -> None:
    """Renew every lease."""
    for attempt in held:
        store.heartbeat(attempt)


def backlog(store: Store, index: str, step: Callable[[], object], held: list[Held]) -> Iterator[tuple[float, float]]:
    """Make all in an index due, and work it off; yield how long each batch took, and the heartbeat after it, in µs."""
    redis: Redis = store.redis
    redis.zunionstore(index, {index: 0})
    for attempt in itertools.cycle(held):
        if not redis.zcard(index):
            return
        yield timed(step), timed(lambda attempt=attempt: store.heartbeat(attempt))


def row(name: str, times: list[float]) -> list[str]:
    """Return the cells of one measurement, in ms."""
    middle, most = statistics.median(times) / 1000, max(times) / 1000
    return [name, f"{middle:.2f}", f"{min(times) / 1000:.2f} - {most:.2f}"]


def main(stored: int) -> int:
    """Measure at a hundredth, a tenth and the whole of what is to be stored, and print the tables."""
    with private_redis() as settings:
        store = Store(connect(settings), settings)
        watchdog, held = Watchdog(store), start(store, RUNNING)
        idle = Table("stored", "duty, nothing due", "median ms", "spread ms")
        for fewer, more in itertools.pairwise((0, stored // 100, stored // 10, stored)):
            fill(store, range(fewer, more))
            for name, times in with_nothing_due(watchdog, held).items():
                idle.add_row(f"{more:,}", *row(name, times))
        Console().print(idle)
        busy = Table("backlog", "step", "median ms", "spread ms")
        for index, step in ((store.keys.due, watchdog.release_due), (store.keys.retention, watchdog.purge)):
            number = f"{store.redis.zcard(index):,}"
            batches, beats = zip(*backlog(store, index, step, held), strict=True)
            busy.add_row(number, *row(f"{step.__name__}, a batch", list(batches)))
            busy.add_row(number, *row("the heartbeat after it", list(beats)))
        Console().print(busy)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000))

"""What a page of a listing costs by how many tasks are stored: `python -m ghostless.benchmarks.listing`.

Starts a Redis of its own, fills it step by step, and prints for each number of stored tasks how long one page takes, as
median, 95th percentile and spread of many pages, each with its own cursor: walked from the newest task on, and again
from the top at the end. Filters that no index answers look at a bounded number of records for a page. Then what the
index of owners holds in memory. The number of tasks may be given: 200000 when it is not.
"""

import itertools
import statistics
import sys
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from ..jobs.client import Client
from ..jobs.connection import connect
from ..jobs.listing import PAGE_LIMIT, Filter
from ..jobs.messages import Submission
from ..jobs.store import Store
from ..statemachine import Policy, State
from .scripts import private_redis, timed
from .sweep import AN_HOUR, TOGETHER

ROUNDS = 100
RARE = 20_000
"""One task in so many is of the rare owner and the rare type."""

POLICY = Policy(retention=10 * AN_HOUR)

WANTED: Mapping[str, tuple[Filter, int]] = {
    "all": (Filter(), 50),
    f"all, {PAGE_LIMIT} a page": (Filter(), PAGE_LIMIT),
    "by state": (Filter(state=State.CANCELLED), 50),
    "PENDING of a queue": (Filter(state=State.PENDING, queue="bench1"), 50),
    "by type, one in two": (Filter(type="bench.noop"), 50),
    "by owner, one in ten": (Filter(owner="often"), 50),
    "by owner and type": (Filter(type="bench.noop", owner="often"), 50),
    f"by owner, one in {RARE:,}": (Filter(owner="rare"), 50),
    "by type, none": (Filter(type="bench.none"), 50),
    f"by owner, none, {PAGE_LIMIT} a page": (Filter(owner="nobody"), PAGE_LIMIT),
}


def fill(store: Store, numbers: range) -> None:
    """Store tasks: of four, two wait in their queue, one waits for its time, and one is over."""
    for first in numbers[::TOGETHER]:
        some = range(first, min(first + TOGETHER, numbers.stop))
        store.submit_many([task(number) for number in some])
        for number in some[3::4]:
            store.cancel(f"t{number}", "bench")


def task(number: int) -> Submission:
    """Return a small task."""
    kind = ("bench.noop", "bench.other")[number // 4 % 2]
    owner = "rare" if number % RARE == 0 else "often" if number % 10 == 0 else ""
    delay = AN_HOUR if number % 4 == 2 else 0
    return Submission(f"t{number}", kind, f"bench{number % 4}", POLICY, '{"x":1}', "f", owner=owner, delay=delay)


def pages(client: Client, wanted: Filter, limit: int) -> list[float]:
    """Return how long each of many pages takes, in µs."""
    times: list[float] = []
    cursor: str | None = None
    for _ in range(ROUNDS):

        def page(cursor: str | None = cursor) -> None:
            nonlocal following
            following = client.list(wanted, limit=limit, cursor=cursor).cursor

        following: str | None = None
        times.append(timed(page))
        cursor = following
    return times


def row(stored: int, name: str, times: list[float]) -> list[str]:
    """Return the cells of one measurement, in ms."""
    middle, tail = statistics.median(times) / 1000, statistics.quantiles(times, n=20)[-1] / 1000
    spread = f"{min(times) / 1000:.1f} - {max(times) / 1000:.1f}"
    return [f"{stored:,}", name, f"{middle:.1f}", f"{tail:.1f}", spread]


def main(stored: int) -> int:
    """Measure at a hundredth, a tenth and the whole of what is to be stored, and print the table."""
    table = Table("stored", "one page", "median ms", "95% ms", "spread ms")
    with private_redis() as settings:
        client = Client(settings, connect(settings))
        for fewer, more in itertools.pairwise((0, stored // 100, stored // 10, stored)):
            fill(client.store, range(fewer, more))
            for name, (wanted, limit) in WANTED.items():
                table.add_row(*row(more, name, pages(client, wanted, limit)))
        index = client.store.keys.owned("often")
        memory, owned = client.store.redis.memory_usage(index, samples=0) or 0, client.store.redis.zcard(index)
    Console().print(table)
    print(f"{owned:,} tasks of one owner take {memory / owned:.0f} bytes each in their index")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000))

"""What things cost beside a million stored tasks: `python -m ghostless.benchmarks.size [--stored N] [--queued N]`.

Starts two servers of its own, one with a thousand tasks and one with all of them, and compares in turn what a task's
calls cost on each. On the large one then: a round of a watchdog with nothing due, pages of listings with their round
trips, many tasks due at once beside a busy worker, the doctor, and a purge. A million tasks take 2 GB of memory and
some minutes.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations
from statistics import median, quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

from ..jobs.client import Client
from ..jobs.connection import connect
from ..jobs.listing import Filter
from ..jobs.store import Store
from ..jobs.watchdog import Watchdog
from ..statemachine import State
from .audit import examine, walk_round
from .backlog import purge, release
from .copies import ENDED, OWNER, QUEUE, TYPES, Crowd, Hand, submission
from .observed import counted_trips, on_one_cpu
from .scripts import measured
from .tools import private_redis, timed

STORED, QUEUED = 1_000_000, 200_000
FEW, FEW_QUEUED = 1_000, 200
DUE_AT_ONCE, PURGED_AT_ONCE = 10_000, 100_000
ROUNDS, TASKS = 21, 100
"""Rounds in which calls are measured, and calls in each."""
LOOKS, PAGE = 200, 50
"""How often each look is taken, and tasks on a page."""

ASKED: Mapping[str, Any] = {"state": State.SUCCESS, "type": TYPES[1], "queue": ENDED, "owner": OWNER}
"""What a listing may be filtered by, with values that some tasks have together."""

FILTERS: Mapping[str, Filter] = {
    "all": Filter(),
    **{
        "by " + " and ".join(names): replace(Filter(), **{name: ASKED[name] for name in names})
        for number in (1, 2, 4)
        for names in combinations(ASKED, number)
    },
    "PENDING of a queue": Filter(state=State.PENDING, queue=QUEUE),
    "by type, none": Filter(type="bench.none"),
    "by state, type and owner, none": Filter(state=State.FAILED, type=TYPES[1], owner=OWNER),
}
"""Each filter, each two of them, and some that find nothing."""


def calls_of_tasks(store: Store, number: int) -> Iterator[tuple[str, list[Callable[[], object]]]]:
    """Yield what a task goes through, with the calls to be timed; as many tasks come as go."""
    hands = [Hand(store) for _ in range(TASKS)]
    tasks = [submission(f"n{number}-{index}", kind=TYPES[index % 2]) for index in range(2 * TASKS)]
    yield "submit", [lambda task=task: store.submit(task) for task in tasks]
    yield "claim", [hand.claim for hand in hands]
    yield "finish + claim", [hands[0].finish_and_claim] * TASKS
    yield "finish", [hand.finish for hand in hands]


def compare(few: Store, many: Store) -> Table:
    """Return what the calls of a task cost with few tasks stored and with many, by wall and in Redis."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for number in range(ROUNDS):
        pairs = zip(calls_of_tasks(few, number), calls_of_tasks(many, number), strict=True)
        for (verb, at_few), (_, at_many) in pairs:
            one, other = measured(few.redis, at_few), measured(many.redis, at_many)
            found.setdefault(verb, []).append((one.waited, one.busy, other.waited, other.busy))
    table = Table("verb, median µs", "few", "many", "many / few", "in Redis, few", "many", "many / few")
    for verb, rounds in found.items():
        elapsed, kept, elapsed_many, kept_many = map(median, zip(*rounds, strict=True))
        table.add_row(
            *(verb, f"{elapsed:.0f}", f"{elapsed_many:.0f}", f"{elapsed_many / elapsed:.2f}"),
            *(f"{kept:.0f}", f"{kept_many:.0f}", f"{kept_many / kept:.2f}"),
        )
    return table


class Pages:
    """A listing that is read page after page, and from the start again after its last one."""

    def __init__(self, client: Client, wanted: Filter) -> None:
        self._client, self._wanted = client, wanted
        self._cursor: str | None = None

    def next(self) -> None:
        """Read a page."""
        self._cursor = self._client.list(self._wanted, limit=PAGE, cursor=self._cursor).cursor


def look(calls: Mapping[str, Callable[[], object]]) -> Table:
    """Return how many round trips each of these calls takes at most, and how long they take."""
    table = Table("look", "round trips", "median ms", "p95 ms", "longest ms")
    for name, call in calls.items():
        call()  # the first one asks for what is remembered
        trips = max(_trips(call) for _ in range(ROUNDS))
        times = [timed(call) / 1000 for _ in range(LOOKS)]
        shown = (median(times), quantiles(times, n=20)[-1], max(times))
        table.add_row(name, str(trips), *(f"{time:.2f}" for time in shown))
    return table


def _trips(call: Callable[[], object]) -> int:
    with counted_trips() as trips:
        call()
    return trips.number


def looks(client: Client) -> dict[str, Callable[[], object]]:
    """Return what is looked at with nothing due, by name."""
    pages = {f"page of {PAGE}, {name}": Pages(client, wanted).next for name, wanted in FILTERS.items()}
    watchdog = Watchdog(client.store)
    return {"bare PING": client.store.redis.ping, "a watchdog's round": watchdog.sweep_all, **pages}


def main(stored: int, queued: int) -> None:
    """Fill, measure, print."""
    with ExitStack() as stack:
        few, many = (
            Store(connect(settings), settings)
            for settings in (stack.enter_context(private_redis()), stack.enter_context(private_redis()))
        )
        Crowd(few).grow(FEW, FEW_QUEUED)
        seconds = timed(lambda: Crowd(many).grow(stored, queued)) / 1e6
        memory = many.redis.info("memory")["used_memory"] / 2**30
        print(f"{stored:,} tasks, {queued:,} of them in a queue, take {memory:.1f} GiB ({seconds:.0f} s to fill)")
        with on_one_cpu(few.redis, many.redis):
            Console(width=120).print(compare(few, many))
        Console(width=120).print(look(looks(Client(many.settings, many.redis))))
        release(many, min(DUE_AT_ONCE, stored // 100))
        walk_round(many)
        examine(many)
        purge(many, min(PURGED_AT_ONCE, stored // 10))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", type=int, default=STORED)
    parser.add_argument("--queued", type=int, default=QUEUED)
    chosen = parser.parse_args()
    main(chosen.stored, chosen.queued)

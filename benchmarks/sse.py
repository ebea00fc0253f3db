"""What a process that streams events takes on: `python -m ghostless.benchmarks.sse [OPTIONS]`.

Starts a Redis of its own and `ghostless serve` as it is by default, lets a crowd of clients follow it from another
process, moves tasks by the store's own calls, and prints what the server needs for it, how long the clients wait, and
that none of them missed anything. Then the same news from the usual design, a Redis connection for each client, in
turn with ours.

Each move says when it was written, and the clients note when it came, on the same clock: so a wait begins before the
store's call, and ends when the client read it.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ..jobs.connection import connect
from ..jobs.store import Store
from ..web.limits import raise_file_limit
from .crowd import Crowd, Digest, Tally, crowd
from .event_figures import Figures
from .event_rates import beside
from .event_servers import Server, real
from .event_writer import NEWS, Writer, steadily
from .tools import private_redis

RATE = 200
"""Moves a second where each tells one client something."""

BROADCASTS = 2
"""Moves a second that tell everybody something."""

ROUND = 5.0
"""Seconds of one round."""

IDLE = 15.0
"""Seconds in which nothing happens; each client gets a sign of life in it."""

PARTS = ["few", "all", "mixed", "polls", "beside"]
"""What can be measured."""

FIRST = 20
"""Clients that come before the memory is measured: what a process needs for the first is not counted for each."""

POLLS = 2_000
"""Long polls that wait at the same time."""

PATIENCE = 30.0
"""Seconds that the last moves may take to all clients."""

READS = ("xread", "xrange", "xinfo", "get")
"""What the connection that follows the history said last."""


@dataclass(frozen=True)
class Options:
    """What is to be measured, and for how long."""

    clients: int
    seconds: float
    rounds: int
    only: list[str]
    json: bool


class Bench:
    """One server, and one crowd that follows it."""

    def __init__(self, figures: Figures, writer: Writer, server: Server, visitors: Crowd, options: Options) -> None:
        self._figures, self._writer, self._server, self._visitors = figures, writer, server, visitors
        self._clients, self._rounds, self._seconds = options.clients, options.rounds, options.seconds

    def few(self) -> None:
        """Let each client follow its own tasks."""
        paths = [f"/api/events?owner=u{number}" for number in range(self._clients)]
        self._visitors.order("come", paths[:FIRST])
        before = self._server.memory()
        seconds = self._visitors.order("come", paths[FIRST:])
        kept = (self._server.memory() - before) / (self._clients - FIRST)
        self._figures.note(f"time until {self._clients} clients are there", seconds, "s")
        self._figures.note("memory a client", kept, "KB", most=22)
        used, _ = self._used(lambda: time.sleep(IDLE))
        self._figures.note("CPU while nothing happens", used / IDLE * 100, "%", most=2)
        for _ in range(self._rounds):
            tally = self._told(self._writer.one, RATE, 1)
            self._figures.waits(f"one client's event at {RATE}/s", tally.waits["one"], most=10)

    def all(self) -> None:
        """Let all clients follow one queue."""
        deliveries = BROADCASTS * ROUND * self._clients
        self._visitors.order("come", [f"/api/events?queue={NEWS}"] * self._clients)
        for _ in range(self._rounds):
            used, tally = self._used(lambda: self._told(self._writer.all, BROADCASTS, self._clients))
            self._figures.waits("an event for all", tally.waits["all"], most=200)
            self._figures.note("CPU a delivery", used / deliveries * 1e6, "µs", most=30)

    def mixed(self) -> None:
        """Let clients follow tasks, owners and a queue, and compare what they heard with the history."""
        sorts = (f"task=mine-{{}}&task={NEWS}", "owner=u{}", f"queue={NEWS}")
        paths = [f"/api/events?{sorts[number % len(sorts)].format(number)}" for number in range(self._clients)]
        self._visitors.order("come", paths)
        past = self._writer.digests([path for path in paths if "task=" in path], "0-0")
        settle(self._visitors, sum(digest.moves for digest in past.values()))  # streams of tasks begin with that
        self._visitors.order("forget")
        start = self._writer.place()
        steadily(self._writer.mixed, RATE, self._seconds)
        truth = self._writer.digests(paths, start)
        settle(self._visitors, sum(truth[path].moves for path in paths))
        tally, told = self._visitors.order("tell")
        self._judge(tally, told, truth)

    def _judge(self, tally: Tally, told: list[tuple[str, Digest]], truth: dict[str, Digest]) -> None:
        figures = self._figures
        figures.waits("one client's event among mixed ones", tally.waits["one"])  # it may stand behind one for all
        figures.waits("an event for all among mixed ones", tally.waits["all"], most=200)
        figures.note("moves that the clients heard", sum(heard.moves for _, heard in told))
        figures.note("progress and log lines that they heard", tally.live)
        figures.note("streams that ended and were taken up again", tally.ended)
        figures.note("moves lost", sum(max(0, truth[path].moves - heard.moves) for path, heard in told), most=0)
        figures.note("moves doubled or out of order", tally.disordered, most=0)
        figures.note("resets", tally.resets, most=0)
        figures.note(
            "clients that heard not just the history", sum(heard != truth[path] for path, heard in told), most=0
        )
        figures.note("clients there at the end", len(told), least=self._clients)

    def polls(self) -> None:
        """Let clients wait for one task's change, and count the connections to Redis meanwhile."""
        before = self._writer.reads()
        self._visitors.order("ask", [f"/api/tasks/{NEWS}?wait=60"] * POLLS)
        wait_until(lambda: self._writer.reads() >= before + POLLS)  # each knows which state it waits to end
        self._figures.note("long polls that wait", self._server.metric("ghostless_http_listeners"), least=POLLS)
        connections = self._writer.connections()
        reading = sum(one["cmd"].startswith(READS) for one in connections)
        self._figures.note(f"connections to Redis with {POLLS} long polls", len(connections) - 1)
        self._figures.note("of them, those that read the history", reading, most=1)
        self._visitors.order("forget")
        started = time.monotonic()
        self._writer.all()
        wait_until(lambda: self._visitors.order("answered") == POLLS)
        self._figures.note(f"time until {POLLS} long polls are answered", time.monotonic() - started, "s")

    def _used(self, act: Callable[[], Any]) -> tuple[float, Any]:
        """Return the seconds of CPU that the server needs meanwhile, and what comes of it."""
        time.sleep(1)
        before = self._server.processor_time()
        outcome = act()
        return self._server.processor_time() - before, outcome

    def _told(self, act: Callable[[int], None], rate: float, clients: int) -> Tally:
        """Return what came of a round in which each act tells so many clients something."""
        self._visitors.order("forget")
        steadily(act, rate, ROUND)
        settle(self._visitors, round(rate * ROUND) * clients)
        return self._visitors.order("tell")[0]


def settle(visitors: Crowd, deliveries: int) -> None:
    """Wait until so much has come. Raises TimeoutError."""
    wait_until(lambda: visitors.order("arrived") >= deliveries)


def wait_until(done: Callable[[], bool]) -> None:
    """Look again and again. Raises TimeoutError."""
    give_up_at = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > give_up_at:
            raise TimeoutError
        time.sleep(0.05)


def options_given() -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure what a process that streams events takes on.")
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20, help="of mixed events")
    parser.add_argument("--rounds", type=int, default=3, help="of each other measurement")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--json", action="store_true", help="print for programs")
    return Options(**vars(parser.parse_args()))


def main() -> int:
    """Measure and print."""
    options, figures = options_given(), Figures()
    raise_file_limit()  # for the clients
    with private_redis() as settings:
        store = Store(connect(settings), settings)
        writer = Writer(store, options.clients)
        for part in options.only:
            if part == "beside":
                beside(figures, settings.redis_url, store, options.rounds)
                continue
            with real(settings.redis_url) as server, crowd(server.port) as visitors:
                getattr(Bench(figures, writer, server, visitors, options), part)()
    if options.json:
        print(figures.as_json(asdict(options)))
    else:
        figures.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())

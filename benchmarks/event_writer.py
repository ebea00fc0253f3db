"""What happens while events are measured: moves made by the store's own calls, and the truth of them."""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from ..jobs.messages import Claim, Claimed, Ending, Submission
from ..jobs.store import Store
from ..statemachine import Event, Policy, Reason
from .crowd import Digest

NEWS = "news"
"""The task, and its queue, that everybody follows."""

LIVES = "lives"
"""The queue of the tasks that are run."""

TOGETHER = 1_000
"""Tasks submitted in one round trip."""


def stamp(told: str) -> str:
    """Return an actor that says when something was written, for one client or for all of them."""
    return f"{told}:{time.monotonic_ns()}"


class Writer:
    """Moves a task for each client, and one for all of them, again and again."""

    def __init__(self, store: Store, clients: int) -> None:
        self._store, self._clients = store, clients
        self._turns: Counter[str] = Counter()
        self._ids = itertools.count()
        tasks = [self._task(f"mine-{number}", "bench", f"u{number}") for number in range(clients)]
        for first in range(0, clients, TOGETHER):
            store.submit_many(tasks[first : first + TOGETHER])
        store.submit(self._task(NEWS, NEWS))

    @staticmethod
    def _task(task_id: str, queue: str, owner: str = "", actor: str = "bench") -> Submission:
        return Submission(task_id, "bench.noop", queue, Policy(), '{"x":1}', "f", owner, actor=actor)

    def one(self, number: int) -> None:
        """Tell one client something: those of consecutive numbers come in turn."""
        self._toggle(f"mine-{number % self._clients}", "one")

    def all(self, _number: int = 0) -> None:
        """Tell everybody something."""
        self._toggle(NEWS, "all")

    def _toggle(self, task_id: str, told: str) -> None:
        self._turns[task_id] += 1
        act = self._store.pause if self._turns[task_id] % 2 else self._store.resume
        act(task_id, stamp(told))

    def news(self, numbers: range) -> None:
        """Tell everybody so many things in one round trip."""
        self._store.submit_many([self._task(f"news-{next(self._ids)}", NEWS, actor=stamp("all")) for _ in numbers])

    def life(self, number: int) -> None:
        """Let a task of one client run, with all that comes of it: four moves, progress and a log line."""
        self._store.submit(self._task(f"life-{number}", LIVES, f"u{number % self._clients}"))
        claimed = self._store.claim(Claim.new("bench", [LIVES], ["bench.noop"]))
        assert isinstance(claimed, Claimed)
        self._store.stage(claimed.held, "bench", "half of it")
        self._store.progress(claimed.held, 0.5, "half of it")
        self._store.log(claimed.held, ["half of it"])
        self._store.finish(claimed.held, Ending(Event.COMPLETE, Reason.POLICY, text="null"), "bench")

    def mixed(self, number: int) -> None:
        """Be the next of a mixture in which, at 200 a second, everybody is told something once a second."""
        if number % 200 == 0:
            self.all()
        elif number % 20 == 0:
            self.life(number)
        else:
            self.one(number)

    # The truth

    def reads(self) -> int:
        """Return how many tasks were read by now."""
        commands = cast("dict[str, dict[str, int]]", self._store.redis.info("commandstats"))
        return commands.get("cmdstat_hgetall", {}).get("calls", 0)

    def connections(self) -> list[dict[str, Any]]:
        """Return the connections to Redis, this one too."""
        return cast("list[dict[str, Any]]", self._store.redis.client_list())

    def place(self) -> str:
        """Return where the history ends."""
        stream = self._store.redis.xinfo_stream(self._store.keys.history)
        return stream["last-generated-id"]

    def digests(self, paths: Iterable[str], after: str) -> dict[str, Digest]:
        """Return the digest of the moves after a place that each of these streams must tell."""
        followers: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for path in set(paths):
            for place in parse_qsl(urlsplit(path).query):
                followers[place].append(path)
        told = {path: Digest() for path in set(paths)}
        entries = cast(
            "list[tuple[str, dict[str, str]]]", self._store.redis.xrange(self._store.keys.history, f"({after}")
        )
        for entry, fields in entries:
            for kind in ("task", "owner", "queue"):
                for path in followers.get((kind, fields.get(kind, "")), ()):
                    told[path].add(entry.encode())
        return told


def steadily(act: Callable[[int], None], rate: float, seconds: float) -> None:
    """Do something so many times a second."""
    started = time.monotonic()
    for number in range(round(rate * seconds)):
        time.sleep(max(0.0, started + number / rate - time.monotonic()))
        act(number)

"""A chaos run: a mixed load, and a random fault every second; then nothing may be lost, doubled or untold.

`make chaos SECONDS=60 SEED=7`. The same seed chooses the same faults and the same load.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit import audit
from faults import chaos_http
from faults.chaos_faults import FAULTS, Target
from faults.chaos_report import Death, Report, effects, overlaps, told
from faults.chaos_staff import Staff
from fleet import QUICK, Fleet
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.connection import connect
from ghostless.jobs.errors import GhostlessError, RedisFull, RedisRefused, RedisUnavailable
from ghostless.jobs.model import Task
from ghostless.jobs.settings import Settings
from ghostless.jobs.submission import Request
from ghostless.statemachine import FINAL, State
from receiver import Receiver, receiving
from redis.exceptions import RedisError
from redis_server import RedisServer

PAUSE = 0.15
"""Seconds between two submits."""

KINDS = 2 * ("quick", "quick", "long", "failing", "cancelled", "paused", "chained", "together", "http") + ("native",)
PARAMS: dict[str, dict[str, Any]] = {
    "quick": {"seconds": 0.0},
    "long": {"seconds": 1.0},
    "failing": {"seconds": 0.1, "failures": 2},
    "cancelled": {"seconds": 1.0},
    "paused": {"seconds": 0.6},
    "chained": {"seconds": 0.0},
    "together": {},
    "http": {"seconds": 0.5},
    "native": {"seconds": 0.0, "native": 2},  # for longer than a lease
}
TYPES = {"together": "chaos.short", "http": chaos_http.TYPE}
TOGETHER = 4
"""How many are submitted together, in one call."""

RECENT = 10
"""How many of the last tasks a chained one may wait for; for two of them."""


@dataclass
class Chaos:
    """One run in one folder."""

    folder: Path
    seconds: float
    seed: int
    receiver: Receiver  # of callbacks
    accepted: dict[str, str] = field(default_factory=dict)  # id -> kind
    chains: dict[str, list[str]] = field(default_factory=dict)  # id -> what it depends on
    cancelled: set[str] = field(default_factory=set)  # whose cancel was answered "moved"
    faults: Counter[str] = field(default_factory=Counter)
    deaths: list[Death] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.trace = self.folder / "trace"
        self.trace.mkdir()
        redis = self.folder / "redis"
        redis.mkdir()
        self.server = RedisServer(redis, durable=True).start()
        self.fleet = Fleet(self.server.url, self.folder)
        self.target = Target(self.server, {}, {}, self.chance)
        told = self.folder / "told"
        told.mkdir()
        self.staff = Staff(self.fleet, self.target, told)
        surroundings = {**QUICK, **self.fleet.environment, "GHOSTLESS_REDIS_URL": self.server.url}
        self.settings = Settings.from_environment(surroundings)
        self._stop = threading.Event()

    def run(self) -> Report:
        """Load, break, wait until all is over, and look."""
        self.staff.keep_alive()
        _insist(self._assert_ready)
        people = [threading.Thread(target=self._submit), threading.Thread(target=self._wish)]
        for person in people:
            person.start()
        try:
            self._break_things()
        finally:
            self._stop.set()
            for person in people:
                person.join()
        began = time.monotonic()
        self._await_ends()
        return self._report(time.monotonic() - began)

    def _assert_ready(self) -> None:
        if not self.staff.is_ready(Client(self.settings)):
            raise RedisUnavailable(TimeoutError("not all that is needed is there yet"))

    def _break_things(self) -> None:
        ends_at = time.monotonic() + self.seconds
        undoings: list[tuple[float, Callable[[], object]]] = []
        while time.monotonic() < ends_at:
            fault = self.chance.choice(FAULTS)
            self.faults[fault.__name__] += 1
            kills = fault.__name__.startswith("kill_")
            held = self._held() if kills else {}
            self.target.hit, now = 0, time.time()
            undo = _attempted(lambda fault=fault: fault(self.target))
            self.deaths += [Death(fault.__name__, task_id, now) for task_id in held.get(self.target.hit, [])]
            if undo:
                undoings.append((time.monotonic() + undo[0], undo[1]))
            until = time.monotonic() + 1
            while time.monotonic() < until:
                undoings = _undone(undoings)
                self.staff.keep_alive()
                time.sleep(0.05)
        for _, undo in undoings:
            _insist(undo)

    def _held(self) -> dict[int, list[str]]:
        """Return the tasks that run, by the pid of their worker, which stands in its name."""
        held: dict[int, list[str]] = {}
        with suppress(GhostlessError), connect(self.settings) as redis:
            for task in Client(self.settings, redis).list(Filter(state=State.PROCESSING)).tasks:
                if isinstance(task, Task) and task.worker_id:
                    held.setdefault(int(task.worker_id.split("-")[-2]), []).append(task.id)
        return held

    # People

    def _submit(self) -> None:
        chance, client = random.Random(self.seed + 1), Client(self.settings)
        while not self._stop.is_set():
            kind = chance.choice(KINDS)
            earlier = list(self.accepted)[-RECENT:] if kind == "chained" else []
            earlier = chance.sample(earlier, min(2, len(earlier)))
            requests = [self._request(kind, number, earlier) for number in range(TOGETHER if kind == "together" else 1)]
            _insist(lambda: _submit_all(client, requests))  # noqa: B023
            for request in requests:
                self.accepted[str(request.id)], self.chains[str(request.id)] = kind, earlier
            time.sleep(PAUSE)

    def _request(self, kind: str, number: int, earlier: Sequence[str]) -> Request:
        return Request(
            TYPES.get(kind, "chaos.work"), PARAMS[kind] | {"trace": str(self.trace)},
            f"chaos-{len(self.accepted) + number}", depends_on=earlier,
            callback_url=self.receiver.url if kind == "quick" else None,
        )  # fmt: skip

    def _wish(self) -> None:
        """Cancel and pause what is to be; resume what was paused."""
        chance, client = random.Random(self.seed + 2), Client(self.settings)
        seen: set[str] = set()
        while not self._stop.is_set():
            time.sleep(chance.uniform(0.05, 0.4))
            for task_id, kind in list(self.accepted.items()):
                if task_id not in seen and kind in ("cancelled", "paused") and chance.random() < 0.4:
                    seen.add(task_id)
                    self._ask(client, task_id, kind)
            self._resume_paused(client)

    def _ask(self, client: Client, task_id: str, kind: str) -> None:
        try:
            answer = _insist(lambda: getattr(client, {"cancelled": "cancel", "paused": "pause"}[kind])(task_id))
        except GhostlessError:  # it has ended already
            return
        if kind == "cancelled" and answer.word in ("moved", "already") and answer.state != State.SUCCESS:
            self.cancelled.add(task_id)

    def _resume_paused(self, client: Client) -> None:
        for task in _insist(lambda: client.list(Filter(state=State.PAUSED), limit=100)).tasks:
            try:
                _insist(lambda task=task: client.resume(task.id))
            except GhostlessError:
                continue

    # The end

    def _await_ends(self, patience: float = 60.0) -> None:
        client, until = Client(self.settings), time.monotonic() + patience
        while time.monotonic() < until:
            self.staff.keep_alive()
            self._resume_paused(client)
            counts = _insist(client.counts)
            if sum(count for state, count in counts.items() if state not in FINAL) == 0:
                break
            time.sleep(0.1)
        while time.monotonic() < until and self.staff.untold(list(self.accepted)):
            self.staff.keep_alive()
            time.sleep(0.1)

    def _report(self, draining: float) -> Report:
        client, traces = Client(self.settings), sorted(self.trace.iterdir())
        with connect(self.settings) as redis:
            done = {path.name: effects(path) for path in traces}
            folders = [path for path in self.fleet.temporary.glob("ghostless-*/worker-*/*") if path.is_dir()]
            violations = audit(redis, client.store.keys, self.accepted, effects=done, folders=folders)
            stale = int(redis.hget(client.store.keys.ledger, "stale_writes") or 0)
        states, due = {task_id: client.get(task_id).state for task_id in self.accepted}, self._due_ends()
        return Report(
            accepted=len(self.accepted),
            faults=self.faults,
            states=Counter(map(str, states.values())),
            violations=violations,
            overlaps=[overlap for path in traces for overlap in overlaps(path)],
            wrong_ends=[f"{task_id} ({self.accepted[task_id]}) ended {state}" for task_id, state in states.items()
                        if state is not due[task_id]],
            stale_writes=stale,
            draining=draining,
            deaths=list(self._told(client)),
            untold=[*self.staff.untold(list(self.accepted)), *self._unplanned(client)],
        )  # fmt: skip

    def _unplanned(self, client: Client) -> list[str]:
        """Return the tasks with a callback that was not told, and is not to be told either."""
        with_callback = [task_id for task_id, kind in self.accepted.items() if kind == "quick"]
        return [f"the callback of {task_id}" for task_id in with_callback if not client.deliveries_of(task_id)]

    def _due_ends(self) -> dict[str, State]:
        """Return how each task is to end: who depends on what was cancelled is cancelled too."""
        ends: dict[str, State] = {}
        for task_id in self.accepted:  # in the order of the submits, so after all that it depends on
            is_cut = any(ends[earlier] is State.CANCELLED for earlier in self.chains[task_id])
            ends[task_id] = State.CANCELLED if is_cut or task_id in self.cancelled else State.SUCCESS
        return ends

    def _told(self, client: Client) -> Iterator[Death]:
        """Yield each death with how long it took to notice and to run the task again, or why that did not happen."""
        for death in self.deaths:
            later = [entry for entry in client.history(death.task_id) if entry.at / 1000 > death.at]
            yield told(death, later)

    def close(self) -> list[str]:
        """End every process; return what outlived it."""
        left = self.fleet.end()
        self.server.stop()
        return left


def _undone(undoings: list[tuple[float, Callable[[], object]]]) -> list[tuple[float, Callable[[], object]]]:
    """Undo what is due; return what is not, or could not be."""
    now = time.monotonic()
    left = [entry for entry in undoings if entry[0] > now]
    for at, undo in undoings:
        if at <= now and _attempted(lambda undo=undo: (undo(), True)[1]) is None:
            left.append((now + 0.2, undo))
    return left


def _attempted(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except RedisError:  # another fault is at work
        return None


def _insist(call: Callable[[], Any]) -> Any:
    """Make a call until Redis takes it, as a careful user does: the same call again is safe."""
    while True:
        try:
            return call()
        except (RedisUnavailable, RedisFull, RedisRefused, RedisError):
            time.sleep(0.1)


def _submit_all(client: Client, requests: Sequence[Request]) -> None:
    for answer in client.submit_many(requests):
        if isinstance(answer, GhostlessError):
            raise answer


def run(folder: Path, seconds: float, seed: int) -> Report:
    """Run chaos in a folder and return what it found."""
    with receiving() as receiver:
        chaos = Chaos(folder, seconds, seed, receiver)
        try:
            report = chaos.run()
        finally:
            left = chaos.close()
    report.left = left
    return report


def main() -> int:
    """Run chaos from the command line; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.seconds:g} s")
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    report = run(folder, given.seconds, given.seed)
    print(report)
    print(f"logs and traces: {folder}")
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())

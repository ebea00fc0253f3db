"""What each script costs, beside the bare round trip, in one run: `python -m ghostless.benchmarks.scripts`.

Starts a Redis of its own on a Unix socket, drives tasks through their life, and prints for each verb what a caller
waits for, how long Redis itself was busy, and how many commands it ran inside, as median and spread of several rounds;
then what Redis spends on a whole life, and what the scripts cost that go over many tasks at once.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from redis import Redis
from rich.console import Console
from rich.table import Table

from ..jobs.connection import connect
from ..jobs.messages import Claim, Claimed, ClaimReply, Ending, Submission
from ..jobs.store import Store
from ..lua import BATCH
from ..statemachine import Event, Policy, Reason
from .tools import private_redis, timed

ROUNDS = 7
TASKS = 300
"""Calls of each verb in one round."""

AT_ONCE = 5
"""Calls at the bound of a script in one round."""

MANY = 200
"""Tasks that wait for one: more than are told in one call."""

BARE = "bare EVALSHA"
LIFE = ("submit", "finish + claim")
"""The calls that take a task through its life, while there is always a next one."""

Calls = Iterable[Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call costs: µs that its caller waits, µs that Redis is busy, commands inside of it."""

    waited: float
    busy: float
    commands: float


def measured(redis: Redis, calls: Calls, command: str = "evalsha") -> Cost:
    """Make calls, each one `command`, and return what one of them costs."""
    redis.config_resetstat()
    waited = [timed(call) for call in calls]
    counts: dict[str, dict[str, float]] = redis.info("commandstats")
    busy = counts.pop(f"cmdstat_{command}")["usec"]
    inside = sum(count["calls"] for name, count in counts.items() if not name.startswith("cmdstat_config"))
    return Cost(statistics.median(waited), busy / len(waited), inside / len(waited))


def task(task_id: str, delay: int = 0) -> Submission:
    """Return a small task."""
    return Submission(task_id, "bench.noop", "bench", Policy(), '{"x":1}', "f", delay=delay)


def wish() -> Claim:
    """Return the wish for one more task."""
    return Claim.new("bench", ["bench"], ["bench.noop"])


def finish(store: Store, claimed: Claimed, following: Claim | None = None) -> ClaimReply | None:
    """Finish a task, and claim the next one in the same call when that is asked for."""
    ending = Ending(Event.COMPLETE, Reason.POLICY, text='{"ok":true}')
    return store.finish(claimed.held, ending, "worker:bench", following)[1]


def claim(store: Store) -> Claimed:
    """Claim a task that must be there."""
    reply = store.claim(wish())
    assert isinstance(reply, Claimed), reply
    return reply


class Line:
    """One worker that finishes each task by claiming the next."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._claimed = claim(store)

    def go_on(self) -> None:
        """Finish the task and claim the next."""
        reply = finish(self._store, self._claimed, wish())
        assert isinstance(reply, Claimed), reply
        self._claimed = reply


def life(store: Store) -> dict[str, Cost]:
    """Return the costs of what happens to every task, the worker claiming by itself or with each finish."""
    redis = store.redis
    costs = {"submit": measured(redis, [lambda id=f"a{n}": store.submit(task(id)) for n in range(TASKS + 1)])}
    line = Line(store)
    costs["finish + claim"] = measured(redis, [line.go_on] * TASKS)
    store.submit_many([task(f"b{n}") for n in range(TASKS)])
    claimed: list[Claimed] = []
    costs["claim"] = measured(redis, [lambda: claimed.append(claim(store))] * TASKS)
    costs["finish"] = measured(redis, [lambda one=one: finish(store, one) for one in claimed])
    return costs


def meanwhile(store: Store) -> dict[str, Cost]:
    """Return the costs of what a worker says while a task runs, of a cancel, and of duties with nothing to do."""
    redis = store.redis
    store.submit(task("held"))
    held = claim(store).held
    store.submit_many([task(f"c{n}") for n in range(TASKS)])
    verbs: dict[str, Calls] = {
        "heartbeat": [lambda: store.heartbeat(held)] * TASKS,
        "progress": [lambda: store.progress(held, 0.5, "half")] * TASKS,
        "log": [lambda: store.log(held, ["a line"])] * TASKS,
        "checkpoint": [lambda: store.checkpoint(held, '{"step":1}')] * TASKS,
        "stage": [lambda: store.stage(held, "worker:bench", "fit")] * TASKS,
        "cancel": [lambda id=f"c{n}": store.cancel(id, "bench") for n in reversed(range(TASKS))],
        "claim, nothing there": [lambda: store.claim(wish())] * TASKS,
        "sweep, nothing due": [lambda: store.sweep("bench")] * TASKS,
        "release, nothing due": [lambda: store.release("bench")] * TASKS,
        "purge, nothing due": [lambda: store.purge()] * TASKS,
    }
    return {verb: measured(redis, calls) for verb, calls in verbs.items()}


def bare(redis: Redis) -> dict[str, Cost]:
    """Return the costs of a round trip that does nothing."""
    trivial = redis.register_script("return 1")
    trivial()
    return {
        "bare PING": measured(redis, [lambda: redis.ping()] * TASKS, "ping"),
        BARE: measured(redis, [trivial] * TASKS),
    }


def at_bounds(store: Store) -> dict[str, Cost]:
    """Return the costs of scripts that have as much to do as they do in one call."""
    redis, number = store.redis, AT_ONCE * BATCH
    tasks = [f"d{n}" for n in range(number)]
    store.submit_many([task(id, delay=1) for id in tasks])
    costs = {f"release, {BATCH} due": measured(redis, [lambda: store.release("bench")] * AT_ONCE)}
    for _ in tasks:
        claim(store)
    lose(store, tasks)
    costs[f"sweep, {BATCH} lost"] = measured(redis, [lambda: store.sweep("bench", {})] * AT_ONCE)
    store.submit_many([task(f"e{n}") for n in range(number)])
    for _ in tasks:
        finish(store, claim(store))
    redis.zunionstore(store.keys.retention, {store.keys.retention: 0})
    costs[f"purge, {BATCH} due"] = measured(redis, [lambda: store.purge()] * AT_ONCE)
    store.submit(task("root"))
    waiting = [replace(task(f"f{n}"), depends_on=("root",)) for n in range(MANY)]
    store.submit_many(waiting)
    costs[f"finish, {MANY} wait for it"] = measured(redis, [partial(finish, store, claim(store))])
    return costs


def lose(store: Store, tasks: Iterable[str]) -> None:
    """Let the leases of running tasks be over, and what a watchdog notes before it judges be noted."""
    now = round(time.time() * 1000)
    for task_id in tasks:
        store.redis.delete(store.keys.heartbeat(task_id))
        store.redis.hset(store.keys.task(task_id), "second_look_at", now)
    store.redis.zunionstore(store.keys.deadlines, {store.keys.deadlines: 0})
    store.redis.hset(store.keys.watchdog, mapping={"swept_at": now, "judge_from": now})


def one_round(store: Store) -> dict[str, Cost]:
    """Return the costs of every verb."""
    store.redis.flushdb()
    return bare(store.redis) | life(store) | meanwhile(store) | at_bounds(store)


def middle(rounds: Sequence[Mapping[str, Cost]], verb: str, figure: str) -> tuple[float, str]:
    """Return the median over the rounds, and the spread as people read it."""
    values = [getattr(costs[verb], figure) for costs in rounds]
    return statistics.median(values), f"{min(values):.0f} - {max(values):.0f}"


def table(rounds: Sequence[Mapping[str, Cost]]) -> Table:
    """Return the figures of each verb as a table."""
    shown = Table(
        "verb", "caller waits µs", "spread", "Redis busy µs", "spread", "commands inside", "of a bare EVALSHA"
    )
    least, _ = middle(rounds, BARE, "waited")
    for verb in rounds[0]:
        waited, waited_spread = middle(rounds, verb, "waited")
        busy, busy_spread = middle(rounds, verb, "busy")
        commands, _ = middle(rounds, verb, "commands")
        shown.add_row(
            verb, f"{waited:.0f}", waited_spread, f"{busy:.1f}", busy_spread, f"{commands:.1f}", f"{waited / least:.2f}"
        )
    return shown


def main() -> int:
    """Run the rounds and print the table."""
    with private_redis() as settings:
        store = Store(connect(settings), settings)
        one_round(store)  # warm up
        rounds = [one_round(store) for _ in range(ROUNDS)]
    Console(width=130).print(table(rounds))
    whole = statistics.median(sum(costs[verb].busy for verb in LIFE) for costs in rounds)
    commands = statistics.median(sum(costs[verb].commands for verb in LIFE) for costs in rounds)
    print(f"Redis over the whole life of a task ({', '.join(LIFE)}): {whole:.0f} µs, {commands:.0f} commands")
    return 0


if __name__ == "__main__":
    sys.exit(main())

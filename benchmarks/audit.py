"""What the doctor and the watchdogs' audit cost on a large database: `python -m ghostless.benchmarks.doctor [TASKS]`.

Starts a Redis of its own on a Unix socket, fills it (three quarters of the tasks are finished), lets the doctor look at
it, and prints how long that took, the longest commands, and what a step of the continuous audit costs.
"""

import statistics
import sys
import time
from collections.abc import Iterator

from redis import Redis

from ..jobs.connection import connect
from ..jobs.doctor import Doctor
from ..jobs.messages import Claim, Claimed, ClaimReply, Ending, Submission
from ..jobs.settings import Settings
from ..jobs.store import Store
from ..jobs.upkeep import Upkeep
from ..jobs.watchdog import Watchdog
from ..statemachine import Event, Policy, Reason
from .scripts import private_redis

TASKS = 200_000
TOGETHER = 1_000
TYPE = "bench.noop"
STEPS = 300
"""Steps of the audit, and sweeps, that are timed."""


def submissions(tasks: int) -> Iterator[Submission]:
    """Yield tasks of four queues."""
    for number in range(tasks):
        yield Submission(f"{number:032x}", TYPE, f"q{number % 4}", Policy(), '{"x":1}', "f")


def fill(store: Store, tasks: int) -> None:
    """Submit tasks and finish those of three queues."""
    waiting = list(submissions(tasks))
    for start in range(0, tasks, TOGETHER):
        store.submit_many(waiting[start : start + TOGETHER])
    queues = ["q0", "q1", "q2"]
    claimed: ClaimReply | None = store.claim(Claim.new("bench", queues, [TYPE]))
    while isinstance(claimed, Claimed):
        ending = Ending(Event.COMPLETE, Reason.POLICY, text='{"ok":true}')
        claimed = store.finish(claimed.held, ending, "worker:bench", Claim.new("bench", queues, [TYPE]))[1]


def examine(settings: Settings, redis: Redis) -> None:
    """Let the doctor look, and print what that cost."""
    redis.config_set("slowlog-log-slower-than", 2_000)
    redis.config_set("slowlog-max-len", 10_000)
    redis.slowlog_reset()
    before = float(redis.info("cpu")["used_cpu_user"])
    started_at = time.perf_counter()
    with connect(settings, exact=True) as exact:
        doctor = Doctor(Store(exact, settings))
        problems = list(doctor.audit())
    seconds = time.perf_counter() - started_at
    busy = float(redis.info("cpu")["used_cpu_user"]) - before
    print(f"doctor: {doctor.tasks} tasks, {doctor.entries} entries, {len(problems)} problems in {seconds:.1f} s")
    print(f"  Redis was busy for {busy:.1f} s; the longest commands:")
    slowest = sorted(redis.slowlog_get(10_000), key=lambda entry: -entry["duration"])[:5]
    for entry in slowest:
        print(f"  {entry['duration'] / 1000:6.1f} ms  {str(entry['command'])[:60]}")


def patrol(store: Store, redis: Redis) -> None:
    """Time the steps of the continuous audit, and whole sweeps with nothing due."""
    upkeep, watchdog = Upkeep(store), Watchdog(store)
    steps: list[float] = []
    for _ in range(STEPS):
        redis.hdel(store.keys.patrol, "at")
        started_at = time.perf_counter()
        upkeep.patrol("bench")
        steps.append(1000 * (time.perf_counter() - started_at))
    sweeps: list[float] = []
    for _ in range(STEPS):
        redis.hdel(store.keys.patrol, "at")
        started_at = time.perf_counter()
        watchdog.sweep_all()
        sweeps.append(1000 * (time.perf_counter() - started_at))
    print(f"audit step: median {statistics.median(steps):.2f} ms, longest {max(steps):.2f} ms; a whole round of a")
    print(f"  watchdog with it: median {statistics.median(sweeps):.2f} ms, longest {max(sweeps):.2f} ms")
    print(f"  keys: {redis.dbsize()}, so one pass takes {redis.dbsize() / 200 / 60:.0f} minutes of sweeps of 1 s")


def main() -> int:
    """Fill, examine, print."""
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else TASKS
    with private_redis() as settings:
        redis = connect(settings)
        store = Store(redis, settings)
        fill(store, tasks)
        examine(settings, redis)
        patrol(store, redis)
    return 0


if __name__ == "__main__":
    sys.exit(main())

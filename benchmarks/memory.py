"""What a task keeps in Redis, queued and finished, by what holds it: `python -m ghostless.benchmarks.memory`.

Starts a Redis of its own, stores tasks with ids, params and a history as they usually are, and prints the bytes of each
key that one more task costs, as Redis counts them itself, with its encoding; beside it, in the same run, what stock rq
keeps of a job with the same params.
"""

import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from redis import Redis
from rich.console import Console
from rich.table import Table
from rq import Queue, SimpleWorker

from ..jobs.connection import connect
from ..jobs.keys import Keys
from ..jobs.messages import Claimed, Submission
from ..jobs.settings import Settings
from ..jobs.store import Store
from ..jobs.submission import new_id
from ..statemachine import Policy
from .scripts import finish, wish
from .tools import private_redis

TASKS = 1000
PARAMS = {"prompt": "x" * 136}
"""150 bytes of JSON."""

PER_TASK = ("task", "params", "result", "rq_job", "heartbeat")


@dataclass(frozen=True, slots=True)
class Kept:
    """The bytes of one more task: by what holds them, and all together as the whole of Redis grew."""

    parts: Mapping[str, float]
    whole: float


def noop(prompt: str) -> dict[str, bool]:
    """Do the work of an rq job."""
    return {"ok": prompt != ""}


def used(redis: Redis) -> int:
    """Return the bytes that Redis holds."""
    return int(redis.info("memory")["used_memory"])


def names_of(keys: Keys, task_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return what holds tasks: keys of their own, then those that they share."""
    own = {kind: [getattr(keys, kind)(task_id) for task_id in task_ids] for kind in PER_TASK}
    shared = {
        "state:PENDING": keys.state("PENDING"),
        "state:SUCCESS": keys.state("SUCCESS"),
        "pending": keys.pending("bench"),
        "rq_queue": keys.rq_queue("bench"),
        "listed": keys.listed("bench:bench.noop"),
        "retention": keys.retention,
        "history": keys.history,
    }
    return own | {kind: [name] for kind, name in shared.items()}


def parts(redis: Redis, names: Mapping[str, Iterable[str]]) -> dict[str, float]:
    """Return the bytes of a task by what holds them, named with its encoding; what is not there is left out."""
    found: dict[str, float] = {}
    for kind, keys in names.items():
        with redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.memory_usage(key, samples=0)
                pipeline.object("encoding", key)
            answers = pipeline.execute(raise_on_error=False)
        sizes = [size for size in answers[::2] if size]
        if sizes:
            found[f"{kind} ({statistics.mode(answers[1::2])})"] = sum(sizes) / TASKS
    return found


def submit(store: Store, task_ids: Iterable[str]) -> None:
    """Put tasks into the queue."""
    for task_id in task_ids:
        store.submit(Submission(task_id, "bench.noop", "bench", Policy(), json.dumps(PARAMS), "f" * 32))


def run(store: Store) -> None:
    """Run the tasks of the queue, each with four entries in its history."""
    while isinstance(claimed := store.claim(wish()), Claimed):
        store.stage(claimed.held, "worker:bench", "fit")
        finish(store, claimed)


def ours(settings: Settings, task_ids: Sequence[str]) -> dict[str, Kept]:
    """Return what a task keeps when it is queued, and when it is finished with four entries in its history."""
    store = Store(connect(settings), settings)
    redis = store.redis
    submit(store, [new_id()])  # so that what Redis holds of the scripts counts for none
    run(store)
    redis.flushdb()
    names, empty = names_of(store.keys, task_ids), used(redis)
    submit(store, task_ids)
    queued = Kept(parts(redis, names), (used(redis) - empty) / TASKS)
    run(store)
    return {"queued": queued, "finished": Kept(parts(redis, names), (used(redis) - empty) / TASKS)}


def of_rq(settings: Settings) -> dict[str, float]:
    """Return what stock rq keeps of a job: while it waits, and when it is finished."""
    redis = Redis(unix_socket_path=settings.redis_url.removeprefix("unix://"))
    queue, empty = Queue("plain", connection=redis), used(redis)
    for _ in range(TASKS):
        queue.enqueue("ghostless.benchmarks.memory.noop", **PARAMS)
    queued = (used(redis) - empty) / TASKS
    SimpleWorker([queue], connection=redis).work(burst=True, logging_level="ERROR")
    return {"queued": queued, "finished": (used(redis) - empty) / TASKS}


def table(kept: Mapping[str, Kept], rq: Mapping[str, float]) -> Table:
    """Return the bytes of a task as a table."""
    shown = Table("held by", *kept)
    for kind in dict.fromkeys(kind for state in kept.values() for kind in state.parts):
        shown.add_row(kind, *(f"{state.parts.get(kind, 0):.0f}" for state in kept.values()))
    rest = [state.whole - sum(state.parts.values()) for state in kept.values()]
    shown.add_row("Redis' table of keys, and what it has in reserve", *(f"{size:.0f}" for size in rest))
    shown.add_section()
    shown.add_row("a task", *(f"{state.whole:.0f}" for state in kept.values()))
    shown.add_row("a job of stock rq", *(f"{size:.0f}" for size in rq.values()))
    return shown


def main() -> int:
    """Store tasks and jobs, and print the table."""
    with private_redis() as settings:
        kept = ours(settings, [new_id() for _ in range(TASKS)])
    with private_redis() as settings:
        with_short_ids = ours(settings, [str(number) for number in range(TASKS)])
    kept |= {f"{state}, id of 3 digits": of_state for state, of_state in with_short_ids.items()}
    with private_redis() as settings:
        rq = of_rq(settings)
    Console().print(table(kept, rq))
    return 0


if __name__ == "__main__":
    sys.exit(main())

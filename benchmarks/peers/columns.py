"""The columns: what is measured of each peer, and how many visits make one figure."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


def _percentile(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[-1] if len(values) > 1 else values[0]


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of each peer."""

    key: str
    title: str
    measured: str  # how, in words
    more_is_better: bool = False
    summary: Callable[[Sequence[float]], float] = statistics.median


Figures = dict[Column, list[float]]
"""What one visit measured: the figures of a column are summed up over all visits."""

RATE = Column(
    "tasks_per_second",
    "tasks/s",
    "a full queue is worked off by one worker, which had run tasks before; by the times in the file, without the first "
    "tenth",
    more_is_better=True,
)
PINGS = Column(
    "pings_a_task",
    "PINGs a task",
    "bare PINGs that fit into the time of one task: PING/s ÷ tasks/s; best seen with `--one-cpu`",
)
RATE_FAR = Column(
    "tasks_per_second_1ms_away",
    "tasks/s, 1 ms away",
    "the same with a proxy between worker and Redis that makes each round trip 1 ms longer",
    more_is_better=True,
)
CPU = Column(
    "worker_cpu_us", "worker CPU µs", "of a task: all processes of the worker, those included that have ended meanwhile"
)
SUBMITS = Column(
    "submits_per_second",
    "submits/s",
    "one process submits one task after the other, each answered before the next",
    more_is_better=True,
)
SUBMITS_BULK = Column(
    "bulk_submits_per_second",
    "submits/s in bulk",
    "by the peer's own function for many tasks, where it has one",
    more_is_better=True,
)
START_MIDDLE = Column(
    "submit_to_start_p50_us",
    "start p50 µs",
    "from the call that submits a task to its first line, on an idle worker; median of all rounds",
)
START_TAIL = Column(
    "submit_to_start_p99_us", "start p99 µs", "the same, 99th percentile of all rounds", summary=_percentile
)
COMMANDS = Column("commands", "commands", "that clients sent to Redis, a task, while the queue was worked off")
INNER = Column(
    "commands_in_scripts",
    "in scripts",
    "that scripts ran inside Redis, a task; told apart from the others by MONITOR over some further tasks",
)
REDIS = Column("redis_us", "Redis µs", "a task, by INFO commandstats: what clients sent, with the scripts' whole time")
QUEUED = Column("queued_bytes", "bytes queued", "a task, used_memory after filling the queue less that before")
FINISHED = Column(
    "finished_bytes",
    "bytes finished",
    "a task, used_memory when the queue was worked off less that before it was filled",
)

GROUPS: Mapping[str, Sequence[Column]] = {
    "Running": (RATE, PINGS, RATE_FAR, CPU),
    "Submitting": (SUBMITS, SUBMITS_BULK, START_MIDDLE, START_TAIL),
    "In Redis": (COMMANDS, INNER, REDIS, QUEUED, FINISHED),
}
"""The tables, with their columns."""

COLUMNS = tuple(column for group in GROUPS.values() for column in group)

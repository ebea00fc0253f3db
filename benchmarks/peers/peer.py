"""The job runners that are compared: how each is started, and what it keeps of a task."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .errors import LeftOut
from .node import bullmq_version

PROGRAMS = Path(__file__).parent / "programs"
BIN = Path(sys.executable).parent

Command = tuple[str | Path, ...]


@dataclass(frozen=True, slots=True)
class Keeps:
    """What a runner keeps with these settings, and where its code or documents say so."""

    history: str
    result: str
    kill: str  # what becomes of a task whose worker ends by SIGKILL
    source: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A job runner with one worker that runs one task at a time; all else is its default, or what its guide shows."""

    name: str
    version: Callable[[], str]  # raises LeftOut
    worker: Command
    submitter: Command
    has_bulk: bool  # whether it can submit many tasks together
    keeps: Keeps


def _installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        raise LeftOut("it is not installed; `make bench` does that") from None


def _python(name: str, distribution: str, worker: Command, keeps: Keeps, *, has_bulk: bool = False) -> Peer:
    program = f"noop_{distribution.partition('-')[0]}"
    submitter = (sys.executable, PROGRAMS / "submit.py", program)
    return Peer(name, partial(_installed, distribution), worker, submitter, has_bulk, keeps)


OURS = _python(
    "ghostless",
    "ghostless",
    (BIN / "ghostless", "worker", "bench", "--tasks", "noop_ghostless"),
    Keeps(
        "every move, with who and why, for 7 days",
        "for 7 days",
        "runs again once its lease of 15 s is over, up to 3 times",
        "docs/design.md",
    ),
    has_bulk=True,
)

RQ_KEEPS = Keeps(
    "none; the last 10 results",
    "for 500 s",
    "marked as failed 1.5 to 11.5 minutes later, unless the job asks for retries",
    "rq/defaults.py, rq/registry.py, docs/docs/workers.md",
)
HUEY_KEEPS = Keeps(
    "none", "until it is read", "lost: a task leaves the list before it runs", "huey/storage.py, RedisStorage"
)

PEERS = (
    OURS,
    _python("rq", "rq", (BIN / "rq", "worker", "bench"), RQ_KEEPS, has_bulk=True),
    _python(
        "rq SimpleWorker",
        "rq",
        (BIN / "rq", "worker", "--worker-class", "rq.SimpleWorker", "bench"),
        RQ_KEEPS,
        has_bulk=True,
    ),
    _python(
        "celery",
        "celery",
        (BIN / "celery", "--app", "noop_celery", "worker", "--pool", "prefork", "--concurrency", "1"),
        Keeps(
            "none",
            "none: a result backend must be chosen",
            "lost: a task is acknowledged before it runs",
            "celery docs: userguide/configuration (result_backend, task_acks_late)",
        ),
    ),
    _python(
        "dramatiq",
        "dramatiq",
        (BIN / "dramatiq", "noop_dramatiq", "--processes", "1", "--threads", "1"),
        Keeps(
            "none",
            "none: a result backend must be added",
            "runs again when another worker does upkeep, after 60 s of silence",
            "dramatiq/brokers/redis/dispatch.lua, brokers/redis.py",
        ),
    ),
    _python(
        "huey, process",
        "huey",
        (BIN / "huey_consumer", "noop_huey.huey", "--workers", "1", "--worker-type", "process"),
        HUEY_KEEPS,
    ),
    _python(
        "huey, thread",
        "huey",
        (BIN / "huey_consumer", "noop_huey.huey", "--workers", "1", "--worker-type", "thread"),
        HUEY_KEEPS,
    ),
    _python(
        "saq",
        "saq",
        (BIN / "saq", "noop_saq.settings"),
        Keeps(
            "none; the last status",
            "for 600 s",
            "aborted 10 to 70 s later, unless the job asks for retries",
            "saq/job.py, saq/queue/redis.py, sweep",
        ),
    ),
    _python(
        "taskiq",
        "taskiq-redis",
        (BIN / "taskiq", "worker", "noop_taskiq:broker", "--workers", "1", "--max-async-tasks", "1"),
        Keeps(
            "none; the message stays in the stream",
            "for ever",
            "runs again when another worker claims it, after 10 minutes",
            "taskiq_redis/redis_broker.py, idle_timeout",
        ),
    ),
    Peer(
        "BullMQ",
        bullmq_version,
        worker=("node", PROGRAMS / "bullmq.cjs", "work"),
        submitter=("node", PROGRAMS / "bullmq.cjs", "submit"),
        has_bulk=True,
        keeps=Keeps(
            "none of a job; a stream of some 10,000 events of the queue",
            "for ever",
            "runs again 30 to 60 s later, once",
            "src/interfaces/worker-options.ts, src/commands/moveStalledJobsToWait-9.lua",
        ),
    ),
)

"""A Redis that evicts, on which somebody insisted: what is lost is told, and what is left goes on (B55)."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from acceptance.conftest import ended, running
from audit import audit
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.errors import TaskNotFound
from ghostless.jobs.store import Store
from ghostless.jobs.submission import Request
from ghostless.statemachine import State
from helpers import eventually, expect
from redis_server import RedisServer

pytestmark = pytest.mark.slow

QUEUED = 500

BALLAST = {"ballast": "x" * 5_000}
"""What makes tasks large beside the buffers of connections, which need room in a full Redis too."""

GONE = ""
"""Instead of a state: nobody has a record of the task."""


@pytest.fixture
def server(own_server: Callable[..., RedisServer]) -> RedisServer:
    """A Redis that evicts what was not used for longest once its memory is full."""
    return own_server(options=("--maxmemory-policy", "allkeys-lru"))


def start(client: Client, fleet: Fleet) -> None:
    """Start two workers that are told to put up with it; who is not told so does not start."""
    assert fleet.worker("default", tasks="lifecycle").wait(timeout=20) == 1
    assert "it evicts keys when memory is short" in fleet.logs()
    fleet.environment["GHOSTLESS_ALLOW_EVICTION"] = "1"
    fleet.processes.clear()
    for name in ("w0", "w1"):
        fleet.worker("default", "busy", name=name, tasks="lifecycle")
    eventually(lambda: expect(client.types()), seconds=20)


def submitted(client: Client, trace: Path) -> list[str]:
    """Let many tasks wait in a paused queue until Redis knows that only what all share was used since."""
    client.pause_queue("default")
    wish = Request("life.once", {"trace": str(trace)}, metadata=BALLAST)
    ids = [answer.task_id for answer in client.submit_many([wish] * QUEUED)]  # type: ignore[union-attr]
    redis, record = client.store.redis, client.store.keys.task(ids[0])
    eventually(lambda: expect(redis.object("idletime", record) >= 2))  # its clock tells seconds
    client.cancel(client.submit("life.once", wish.params).task_id)
    return ids


def fill_up(client: Client, ids: Sequence[str]) -> None:
    """Write what is no task's into a full Redis until a third of the records is gone; then there is room again."""
    redis, keys = client.store.redis, client.store.keys
    records = [keys.task(task_id) for task_id in ids]
    redis.config_set("maxmemory", redis.info("memory")["used_memory"])
    for number in range(100_000):
        redis.set(f"filler:{number}", b"x" * 10_000)
        if redis.exists(*records) < len(ids) * 2 / 3:
            break
    redis.config_set("maxmemory", 0)
    assert redis.info("stats")["evicted_keys"] >= len(ids) / 3
    redis.delete(*redis.scan_iter("filler:*"))


def fates(client: Client, ids: Sequence[str]) -> dict[str, str]:
    """Return the state of each task, or that it is gone."""

    def fate(task_id: str) -> str:
        try:
            return client.get(task_id).state
        except TaskNotFound:
            return GONE

    return {task_id: fate(task_id) for task_id in ids}


def expected(client: Client, ids: Sequence[str]) -> dict[str, str]:
    """Return how each task must end: one whose params are gone fails, and says so."""
    redis, keys = client.store.redis, client.store.keys
    ends = {False: State.FAILED, True: State.SUCCESS}
    return {
        task_id: ends[bool(redis.exists(keys.params(task_id)))] if redis.exists(keys.task(task_id)) else GONE
        for task_id in ids
    }


def test_tasks_that_redis_evicts(client: Client, fleet: Fleet, tmp_path: Path, trace: Path, end: Path) -> None:
    """A task without a record is 404, and the watchdog and the doctor tell of it; one without params fails for that.

    All the others end, the running one too, no process ends, and a new task runs.
    """
    start(client, fleet)
    going_on = client.submit("life.until", {"trace": str(trace), "end": str(end)}, queue="busy").task_id
    running(trace)
    ids = submitted(client, tmp_path / "once")
    fill_up(client, ids)
    fleet.watchdog()  # not before, since it looks at all tasks again and again, so that none is less used than others
    wanted = expected(client, ids)
    assert {GONE, State.FAILED, State.SUCCESS} == set(wanted.values())
    client.resume_queue("default")
    end.touch()
    eventually(lambda: expect(fates(client, ids) == wanted), seconds=40)
    assert ended(client, going_on, "SUCCESS").attempt == 1
    assert {client.get(task_id).reason for task_id in ids if wanted[task_id] == State.FAILED} == {"invalid_params"}
    assert sorted((tmp_path / "once").read_text().split()) == sorted(
        task_id for task_id in ids if wanted[task_id] == State.SUCCESS
    )
    gone = {task_id for task_id in ids if wanted[task_id] == GONE}
    eventually(lambda: expect(gone <= set(re.findall(r"no task (\w+)", fleet.logs()))), seconds=20)
    with connect(client.settings, exact=True) as exact:
        told = {problem.task_id for problem in Doctor(Store(exact, client.settings), "tester").audit()}
    assert gone <= told
    following = client.submit("life.once", {"trace": str(trace)}).task_id
    ended(client, following, "SUCCESS")
    assert [process.poll() for process in fleet.processes] == [None] * 3
    redis, keys = client.store.redis, client.store.keys
    noted = int(redis.hlen(keys.quarantine))  # type: ignore[arg-type]
    assert [] == audit(redis, keys, [going_on, following], effects=fleet.effects(), quarantined=noted)

"""Workers that are stopped and started while tasks run: nothing is lost, nothing is done twice, nobody pays."""

import os
import random
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest
from faults.sizes import PATIENCE, STOPS
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.model import Task
from helpers import eventually, expect

from .conftest import assert_clean, assert_in_turn, ended, owner, publish, running, story, submit_when_known

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("GHOSTLESS_TEST_SEED", "7"))
TASKS = 300
LENGTHS = [0.1] * 294 + [0.5, 0.5, 1.0, 1.0, 2.0, 3.0]
"""Seconds of the tasks of the rolling restart."""
RESTARTS = 10
AT_A_TIME = 5


def test_a_rolling_restart(serving: Callable[..., None], client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """Three workers are restarted in turn under load, each time the one with the longest task, at last those that are
    left of the first three: all tasks succeed, no attempt is lost or overlaps another one of its task, and no budget is
    used, also not by the task that was stopped each time."""
    serving(workers=3)
    trace, steps, end = tmp_path / "trace", tmp_path / "steps", tmp_path / "end"
    long = client.submit("life.until", {"trace": str(steps), "end": str(end)}).task_id
    lengths = random.Random(SEED).sample(LENGTHS, TASKS)
    ids = [client.submit("life.span", {"trace": str(trace), "seconds": seconds}).task_id for seconds in lengths]
    for restart in range(RESTARTS):
        holder = eventually(partial(holder_of, client, fleet, long, restart + 1))
        holder.terminate()
        fleet.worker("default", name=f"again{restart}", tasks="lifecycle")
        assert holder.wait(timeout=20) == 0
    for number, worker in enumerate(fleet.processes[1:4]):
        worker.terminate()
        assert worker.wait(timeout=20) == 0
        fleet.worker("default", name=f"last{number}", tasks="lifecycle")
    for task_id in ids:
        assert_nothing_lost(client, ended(client, task_id, "SUCCESS", seconds=90))
    end.touch()
    task = ended(client, long, "SUCCESS")
    assert_nothing_lost(client, task)
    assert task.attempt > RESTARTS
    assert [line.split()[1] for line in running(steps)] == [f"step-{number}" for number in range(1, task.result + 1)]
    assert overlaps(trace) == []
    assert_clean(client, fleet, long, *ids)


def assert_nothing_lost(client: Client, task: Task) -> None:
    """Check that a task was handed back in order as often as it was not ended, and that no budget was used."""
    assert (task.failures, task.losses, task.timeouts) == (0, 0, 0)
    handed_back = ["START", "SUSPEND", "RESUME"] * (task.attempt - 1)
    assert story(client, task.id) == ["SUBMIT", *handed_back, "START", "COMPLETE"]


def holder_of(client: Client, fleet: Fleet, task_id: str, attempt: int) -> "subprocess.Popen[bytes]":
    """Return the process of the worker that runs an attempt of a task."""
    task = client.get(task_id)
    assert (task.state, task.attempt) == ("PROCESSING", attempt)
    return owner(client, fleet, task_id)


def overlaps(trace: Path) -> list[str]:
    """Return the tasks of which two attempts ran at the same time, or one twice."""
    spans = defaultdict(list)
    for line in trace.read_text().splitlines():
        task_id, attempt, begun, over = line.split()
        spans[task_id].append((float(begun), float(over), int(attempt)))
    found = []
    for task_id, runs in spans.items():
        for (_, over, earlier), (begun, _, later) in zip(sorted(runs), sorted(runs)[1:], strict=False):
            if begun < over or later <= earlier:
                found.append(task_id)
    return found


def test_sigterm_once_and_twice(serving: Callable[..., None], client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """One SIGTERM lets the running task end within the drain, and starts no other; a second one hands it back."""
    fleet.environment["GHOSTLESS_DRAIN"] = "30"
    serving(workers=2)
    ids = [
        client.submit("life.steps", {"trace": f"{tmp_path}/{count}", "count": count}).task_id for count in (30, 10_000)
    ]
    for task_id, count in zip(ids, (30, 10_000), strict=True):
        running(tmp_path / str(count))
        owner(client, fleet, task_id).terminate()
    waiting = client.submit("life.once", {"trace": f"{tmp_path}/waiting"}).task_id
    assert ended(client, ids[0], "SUCCESS").attempt == 1
    worker = owner(client, fleet, ids[1])
    eventually(lambda: assert_draining(client, fleet, ids[1], waiting))
    worker.terminate()
    assert worker.wait(timeout=5) == 0
    assert f"task {ids[1]} is asked to stop: shutdown" in fleet.logs()
    assert story(client, ids[1]) == ["SUBMIT", "START", "SUSPEND", "RESUME"]
    assert [client.get(task_id).state for task_id in (ids[1], waiting)] == ["PENDING"] * 2
    assert client.store.redis.lrange(client.store.keys.rq_queue("default"), 0, -1) == [ids[1], waiting]
    assert_clean(client, fleet, *ids, waiting)


def test_the_drain_of_the_command_line(client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """`--drain` counts before GHOSTLESS_DRAIN: when it is over the running task is handed back."""
    fleet.environment["GHOSTLESS_DRAIN"] = "60"
    publish(fleet)
    worker = fleet.start("worker", "default", "--tasks", "lifecycle", "--drain", "0.5")
    task_id = client.submit("life.steps", {"trace": f"{tmp_path}/trace", "count": 10_000}).task_id
    running(tmp_path / "trace")
    worker.terminate()
    assert worker.wait(timeout=20) == 0
    assert re.search(rf"draining: task {task_id} has 0\.\d s", fleet.logs())
    assert story(client, task_id) == ["SUBMIT", "START", "SUSPEND", "RESUME"]
    assert_clean(client, fleet, task_id)


def assert_draining(client: Client, fleet: Fleet, held: str, waiting: str) -> None:
    """Check that the only worker says everywhere that it drains."""
    member, *others = client.workers()
    assert ("draining", []) == (member.state, others)
    assert re.search(rf"draining: task {held} has (2\d\.\d|30\.0) s", fleet.logs())
    assert client.explain(held).why == f"the worker {member.name} runs attempt 1, and is draining"
    assert client.explain(waiting).why.endswith(f"{member.name} is draining, and takes nothing new")


def test_a_worker_that_loads(client: Client, fleet: Fleet) -> None:
    """It is seen as loading, and claims nothing; told to stop, it ends at once and leaves the registry."""
    gate = fleet.folder / "gate"
    (fleet.folder / "slow_tasks.py").write_text(SLOW)
    publish(fleet, "slow_tasks")
    gate.touch()
    task_id = client.submit("slow.work").task_id
    first, second = (fleet.worker("default", name=name, tasks="slow_tasks") for name in ("w0", "w1"))
    eventually(lambda: assert_loading(client, task_id, "w0", "w1"), seconds=20)
    first.terminate()
    assert first.wait(timeout=4) == 0
    assert_loading(client, task_id, "w1")
    gate.unlink()
    assert ended(client, task_id, "SUCCESS").attempt == 1
    eventually(lambda: expect([member.state for member in client.workers()] == ["idle"]))
    second.terminate()
    assert_clean(client, fleet, task_id)


SLOW = """
import time
from pathlib import Path
from ghostless.jobs import task

while Path("gate").exists():
    time.sleep(0.1)

task("slow.work")(lambda ctx: None)
"""


def assert_loading(client: Client, task_id: str, *names: str) -> None:
    """Check that just these workers are there, and that it is said what they do."""
    assert [*names] == [member.name for member in client.workers()]
    assert {"loading"} == {member.state for member in client.workers()}
    why = client.explain(task_id).why
    assert all(f"; {name} is loading its modules, for " in why for name in names)


def test_a_handler_that_does_not_listen(fleet: Fleet, client: Client) -> None:
    """A handler that must be killed at a shutdown is handed back all the same; the shutdown is not its fault."""
    fleet.watchdog()
    worker = fleet.worker("default", name="w0", tasks="handlers")
    task_id = submit_when_known(client, "test.hang", {"how": "native"})
    eventually(partial(holder_of, client, fleet, task_id, 1), seconds=20)
    worker.terminate()
    assert worker.wait(timeout=20) == 0
    task = ended(client, task_id, "PENDING")
    assert (task.failures, task.losses) == (0, 0)
    assert story(client, task_id) == ["SUBMIT", "START", "SUSPEND", "RESUME"]
    assert "killed with SIGKILL" in client.history(task_id)[-2].message
    assert_clean(client, fleet, task_id)


@pytest.mark.timeout(PATIENCE)
def test_killed_while_handing_back(serving: Callable[..., None], client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """SIGTERM, then SIGKILL at any moment of the stop, while tasks end at any moment of it too (B14).

    Each is over, handed back or lost, never two of these and never none; what is left goes on with the next workers.
    """
    chance, ends = random.Random(SEED), dict[str, Path]()
    serving(workers=AT_A_TIME)
    for number in range(1, STOPS + 1):
        workers = fleet.processes[-AT_A_TIME:]
        names = [str(name) for worker in workers for name in worker.args]  # type: ignore[union-attr]
        going_on = [task_id for task_id, end in ends.items() if not end.exists()]
        going_on += [submit_until(client, tmp_path, ends) for _ in range(AT_A_TIME - len(going_on))]
        for task_id in going_on:
            eventually(partial(assert_running_on, client, task_id, names), seconds=20)
        acts = [worker.kill for worker in workers]
        acts += [ends[task_id].touch for task_id in going_on if chance.random() < 0.6]
        for worker in workers:
            worker.terminate()
        at_any_moment(chance, acts)
        for index in range(AT_A_TIME):
            fleet.worker("default", name=f"round{number}-{index}", tasks="lifecycle")
    for task_id, end in ends.items():
        end.touch()
        task = ended(client, task_id, "SUCCESS")
        assert (task.failures, task.timeouts) == (0, 0)
        assert task.losses + story(client, task_id).count("SUSPEND") == task.attempt - 1
        assert_in_turn(end.with_suffix(".trace"))
    assert_clean(client, fleet, *ends)


def submit_until(client: Client, folder: Path, ends: dict[str, Path]) -> str:
    """Submit a task that runs until the file is there that is noted under its id."""
    end = folder / f"end{len(ends)}"
    task_id = client.submit("life.until", {"trace": str(end.with_suffix(".trace")), "end": str(end)}).task_id
    ends[task_id] = end
    return task_id


def at_any_moment(chance: random.Random, acts: Iterable[Callable[[], None]]) -> None:
    """Do each of these once, at a moment of its own within half a second."""
    moments, begun = sorted(((chance.uniform(0, 0.5), act) for act in acts), key=itemgetter(0)), time.monotonic()
    for moment, act in moments:
        time.sleep(max(0.0, begun + moment - time.monotonic()))
        act()


def assert_running_on(client: Client, task_id: str, names: list[str]) -> None:
    """Check that a task runs on one of the workers of these names."""
    task = client.get(task_id)
    assert task.state == "PROCESSING"
    assert task.worker_id in names

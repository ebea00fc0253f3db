"""Between two places: what a stopped worker was handed, and what a person cancels meanwhile (B01, B29, B30)."""

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, ended, publish, rq_worker, running, story
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually

pytestmark = pytest.mark.slow

Process = subprocess.Popen[bytes]
SEED = 11

ONE, THREE, STOCK = ("one",), ("two", "three", "four"), ("five", "six", "seven")
"""The queues of a worker that has one, of one that has three, and of rq's own worker, which pops from three."""


def parked(client: Client, fleet: Fleet) -> list[Process]:
    """Return three idle workers that were stopped while they wait in Redis."""
    publish(fleet)
    idle = [
        fleet.worker(*ONE, name="idle1", tasks="lifecycle"),
        fleet.worker(*THREE, name="idle3", tasks="lifecycle"),
        rq_worker(fleet, queues=STOCK),
    ]
    eventually(lambda: assert_parked(client, len(idle)), seconds=20)
    for process in idle:
        process.send_signal(signal.SIGSTOP)
    return idle


def assert_parked(client: Client, number: int) -> None:
    """Check that so many wait in a blocking pop."""
    waiting = [entry for entry in client.store.redis.client_list() if entry["cmd"] == "blpop"]
    assert len(waiting) == number


def submitted(client: Client, trace: Path) -> list[str]:
    """Submit a task to the last queue of each worker; return their ids."""
    return [
        client.submit("life.once", {"trace": str(trace)}, queue=queues[-1]).task_id for queues in (ONE, THREE, STOCK)
    ]


def test_popped_and_never_started(client: Client, fleet: Fleet, trace: Path) -> None:
    """Workers die with what Redis had handed them: another one runs the tasks within some sweeps, each once."""
    idle = parked(client, fleet)
    ids = submitted(client, trace)
    for process in idle:
        process.kill()
    fleet.watchdog()
    fleet.worker(*ONE, *THREE, *STOCK, name="heir", tasks="lifecycle")
    for task_id in ids:
        assert ended(client, task_id, "SUCCESS").attempt == 1
    assert [story(client, task_id) for task_id in ids] == [
        ["SUBMIT", "START", "COMPLETE"],
        ["SUBMIT", "START", "COMPLETE"],
        ["SUBMIT", "REQUEUE", "START", "COMPLETE"],
    ], "rq's worker took the ticket with it, and a new one is told"
    assert sorted(trace.read_text().split()) == sorted(ids)
    assert_clean(client, fleet, *ids)


def test_cancelled_between_submit_and_start(client: Client, fleet: Fleet, trace: Path) -> None:
    """Workers wake up with tasks that were cancelled meanwhile: these do not run, and each takes the next."""
    idle = parked(client, fleet)
    cancelled = submitted(client, trace)
    assert [client.cancel(task_id).state for task_id in cancelled] == ["CANCELLED"] * 3
    for process in idle:
        process.send_signal(signal.SIGCONT)
    following = submitted(client, trace)
    for task_id in following:
        ended(client, task_id, "SUCCESS")
    assert [story(client, task_id) for task_id in cancelled] == [["SUBMIT", "CANCEL"]] * 3
    assert sorted(trace.read_text().split()) == sorted(following)
    assert_clean(client, fleet, *cancelled, *following)


def test_cancelled_at_any_moment(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """From just submitted to just ended: there is one final state, and the person was told the truth."""
    serving(workers=2)
    moments = random.Random(SEED)
    outcomes: dict[str, str] = {}
    for _ in range(80):
        task_id = client.submit("life.span", {"trace": str(trace), "seconds": 0.01}).task_id
        time.sleep(moments.uniform(0, 0.03))  # the race itself
        outcomes[task_id] = client.cancel(task_id).state
    for task_id, told in outcomes.items():
        task = ended(client, task_id, "SUCCESS", "CANCELLED")
        assert task.state == ("SUCCESS" if told == "SUCCESS" else "CANCELLED"), told
    ran = {line.split()[0] for line in running(trace)}
    assert ran <= {task_id for task_id in outcomes if "START" in story(client, task_id)}
    assert {"SUCCESS"} < set(outcomes.values()), "the race was won by either side"
    assert_clean(client, fleet, *outcomes)

"""Machines whose clocks are wrong: only Redis' clock decides, and only monotonic clocks measure (B50)."""

import http.client
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, ended, running, seconds_between, story
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually, expect, free_port

pytestmark = pytest.mark.slow

AHEAD, BEHIND = "+120s", "-120s"
HOW_TO_GET_IT = "no faketime on PATH: `apt install faketime`"


@pytest.fixture
def library() -> str:
    """The library that shifts a process' clock."""
    if not shutil.which("faketime"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(HOW_TO_GET_IT)
    shown = subprocess.run(["faketime", "-f", AHEAD, "env"], capture_output=True, text=True, check=True).stdout
    return next(line.removeprefix("LD_PRELOAD=") for line in shown.splitlines() if line.startswith("LD_PRELOAD="))


@contextmanager
def clock(fleet: Fleet, library: str, shift: str) -> Iterator[None]:
    """Start processes whose clock is wrong; the monotonic one counts on."""
    before = dict(fleet.environment)
    tests = Path(__file__).parents[1]
    fleet.environment |= {
        "LD_PRELOAD": library,
        "FAKETIME": shift,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": f"{tests}{os.pathsep}{tests / 'skewed'}",
    }
    yield
    fleet.environment = before


def test_clocks_that_are_two_minutes_wrong(client: Client, fleet: Fleet, library: str, tmp_path: Path) -> None:
    """Workers, watchdogs and the API, ahead and behind: nothing starts early, nobody is judged dead, no deadline
    moves, and the history goes forward."""
    ports, end = {AHEAD: free_port(), BEHIND: free_port()}, tmp_path / "end"
    fleet.environment["GHOSTLESS_LEASE"] = "3"  # on a busy machine six processes may wait for their turn
    for name, shift in (("ahead", AHEAD), ("behind", BEHIND)):
        with clock(fleet, library, shift):
            fleet.watchdog()
            fleet.worker("default", name=name, tasks="lifecycle")
            fleet.start("serve", "--port", str(ports[shift]), "--no-watchdog")
    eventually(lambda: expect("life.until" in client.types()), seconds=30)
    eventually(lambda: assert_wrong(client, ahead=100, behind=-100), seconds=30)
    traces = [tmp_path / name for name in ("first", "second")]
    long = [
        client.submit("life.until", {"trace": str(trace), "end": str(end)}, timeout=timeout).task_id
        for trace, timeout in zip(traces, (60, 2), strict=True)
    ]
    for trace in traces:
        running(trace)
    delayed = [
        eventually(partial(posted, port, tmp_path / f"delayed{shift}"), seconds=20) for shift, port in ports.items()
    ]
    ended(client, long[1], "RETRY_WAITING", "PROCESSING", "PENDING")
    eventually(lambda: expect(client.get(long[1]).timeouts == 1), seconds=20)
    end.touch()
    assert ended(client, long[0], "SUCCESS").attempt == 1
    assert ended(client, long[1], "SUCCESS").losses == 0
    for task_id in delayed:
        assert ended(client, task_id, "SUCCESS").attempt == 1
        assert story(client, task_id) == ["SUBMIT", "RELEASE", "START", "COMPLETE"]
        assert 1 <= seconds_between(client, task_id, "SUBMIT", "RELEASE") < 20
    assert 2 <= first_timeout(client, long[1]) < 20
    assert_clean(client, fleet, *long, *delayed)


def assert_wrong(client: Client, **least: float) -> None:
    """Check that these workers noted a time of birth that is off by at least so many seconds."""
    for name, shift in least.items():
        birth = client.store.redis.hget(client.store.keys.rq_worker(name), "birth")
        assert birth
        off = datetime.fromisoformat(birth).timestamp() - time.time()
        assert off > shift if shift > 0 else off < shift


def posted(port: int, trace: Path) -> str:
    """Submit by way of the API a task that is to wait for a second; return its id."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    body = json.dumps({"type": "life.once", "params": {"trace": str(trace)}, "delay": 1})
    try:
        connection.request("POST", "/api/tasks", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
    except OSError as error:
        raise AssertionError(error) from error
    finally:
        connection.close()
    assert answer.status == 202
    return answer.headers["Location"].rpartition("/")[2]


def first_timeout(client: Client, task_id: str) -> float:
    """Return the seconds from a task's first start to its first time-out, by Redis' clock."""
    at = {entry.event: entry.at for entry in reversed(client.history(task_id))}
    return (at["TIMEOUT"] - at["START"]) / 1000

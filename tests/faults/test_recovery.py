"""Who recovers a task, when, and what people are told while nobody is there to do so (B09, B11, B12)."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acceptance.conftest import assert_clean, begun, ended, entry_of, owner, running
from flask.testing import FlaskClient
from fleet import QUICK, Fleet
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from helpers import eventually, expect, free_port

pytestmark = pytest.mark.slow


def test_who_runs_already_recovers_and_no_timeout_is_waited_for(
    serving: Callable[..., None], client: Client, fleet: Fleet, tmp_path: Path, end: Path
) -> None:
    """With no new process, a task of a killed worker runs anew after its lease, be its timeout 5 s or 6 h.

    How soon after it, `scripts/test_how_long.py` proves by Redis' clock.
    Each of the two is killed once, beside the other, and by then the watchdog and the third worker ran for a while.
    """
    serving(workers=3)
    there = len(fleet.processes)
    traces = {timeout: tmp_path / str(timeout) for timeout in (5, 6 * 3600)}
    ids = {
        timeout: client.submit("life.until", {"trace": str(path), "end": str(end)}, timeout=timeout).task_id
        for timeout, path in traces.items()
    }
    for timeout, path in traces.items():
        running(path, 2)
        owner(client, fleet, ids[timeout]).kill()
        begun(path, 2)
        assert client.get(ids[timeout]).losses == 1
        lost = entry_of(client, ids[timeout], "TIMEOUT")
        assert lost.reason == "heartbeat_lost", "the lease was over, and not the time of the attempt"
        if timeout == 5:
            ended(client, ids[timeout], "RETRY_WAITING", "PENDING", "PROCESSING")
            client.cancel(ids[timeout])
            ended(client, ids[timeout], "CANCELLED")
    end.touch()
    assert ended(client, ids[6 * 3600], "SUCCESS").losses == 1
    assert len(fleet.processes) == there
    assert_clean(client, fleet, *ids.values())


def said(fleet: Fleet, *arguments: str) -> str:
    """Return what a verb of the command line says."""
    command = [sys.executable, "-m", "ghostless.jobs.cli", *arguments]
    environment = fleet.surroundings
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30).stdout


def test_nobody_left_to_notice(client: Client, fleet: Fleet, trace: Path, end: Path) -> None:
    """With all killed nobody is told that the task simply runs; a `serve` that is started then recovers it.

    A web server that leaves the watching to others says so as well: first that the worker is silent, then that there is
    none. A restart would not help it, so it counts as alive.
    """
    watchdog, worker = fleet.watchdog(), fleet.worker("default", name="w0", tasks="lifecycle")
    eventually(lambda: expect(client.types()), seconds=20)
    task_id = client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id
    running(trace, 2)
    for process in (watchdog, worker):
        process.kill()
    eventually(lambda: assert_abandoned(client, task_id))
    web = create_app(client=client).test_client()
    assert_told_over_http(web, task_id, ["silent"])
    status = said(fleet, "status", task_id)
    assert "w0, which has gone silent" in status
    assert "nothing until a watchdog runs" in status
    account = json.loads(said(fleet, "explain", task_id, "--json"))
    assert "w0 has gone silent" in account["why"]
    assert account["next_at"] is None
    assert {worker["state"] for worker in json.loads(said(fleet, "workers", "--json"))["workers"]} <= {"silent"}
    eventually(lambda: assert_told_over_http(web, task_id, []), seconds=20)
    port = free_port()
    fleet.start("serve", "--port", str(port))
    eventually(lambda: assert_not_running(port, task_id), seconds=20)
    assert fetched(port, f"tasks/{task_id}/explain")["why"].startswith("no worker listens on its queue")
    end.touch()
    fleet.worker("default", name="heir", tasks="lifecycle")
    assert ended(client, task_id, "SUCCESS").attempt == 2
    assert_clean(client, fleet, task_id)


def assert_told_over_http(web: FlaskClient, task_id: str, workers: list[str]) -> None:
    """Check that the API says of the workers that they are so, and that nobody sweeps or runs the task."""
    assert [worker["state"] for worker in web.get("/api/workers").get_json()["workers"]] == workers
    account = web.get(f"/api/tasks/{task_id}/explain").get_json()
    assert "w0 has gone silent" in account["why"]
    assert account["next"].startswith("nothing until a watchdog runs")
    assert account["next_at"] is None
    numbers = dict(line.rsplit(" ", 1) for line in web.get("/metrics").text.splitlines() if line[0] != "#")
    told = {name: value for name, value in numbers.items() if name.startswith("ghostless_workers{")}
    assert told == {f'ghostless_workers{{state="{state}"}}': "1.0" for state in workers}
    # Older than any watchdog would leave it, then gone.
    assert float(numbers.get("ghostless_last_sweep_age_seconds", "inf")) > Settings.from_environment(QUICK).longest_gap
    assert web.get("/healthz").get_json() == {"status": "alive"}


def assert_abandoned(client: Client, task_id: str) -> None:
    """Check that the lease is over, and that no watchdog sweeps."""
    around = client.look_around(task_id)
    assert (around.lease, around.swept_at) == (None, None)


def fetched(port: int, path: str) -> Any:
    """Return what the API answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=5) as answer:
            return json.load(answer)
    except OSError as error:
        raise AssertionError(error) from error


def assert_not_running(port: int, task_id: str) -> None:
    """Check that the API says of the task that it waits."""
    task = fetched(port, f"tasks/{task_id}")
    assert (task["state"], task["losses"]) == ("PENDING", 1)
    assert fetched(port, "workers") == {"workers": []}

"""What handlers print is kept with their task and passed on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually, expect

from .conftest import assert_clean, ended

pytestmark = pytest.mark.slow


def test_printed_lines_are_kept_and_passed_on(serving: Callable[..., None], client: Client, fleet: Fleet) -> None:
    """Each line on stdout and stderr, also of a child process, is in the task's log and in the worker's output."""
    serving()
    task_id = client.submit("life.talk", {"lines": 3}).task_id
    ended(client, task_id, "SUCCESS")
    spoken = {f"{voice} {number}" for voice in ("out", "err") for number in range(3)} | {"child", "no end"}
    assert set(client.reads.log(task_id)) == spoken
    assert all(f"[{task_id}] {line}" in fleet.logs() for line in spoken)
    assert_clean(client, fleet, task_id)


def test_the_log_keeps_the_last_lines(serving: Callable[..., None], client: Client, fleet: Fleet, end: Path) -> None:
    """Of 1,500 lines just the last 1,000; one that prints without measure costs no more, and ends all the same."""
    serving()
    counting = client.submit("life.count", {"lines": 1500, "end": str(end)}).task_id
    kept = [str(number) for number in range(500, 1500)]
    eventually(lambda: expect(client.reads.log(counting) == kept), seconds=20)
    end.touch()
    ended(client, counting, "SUCCESS")
    assert client.reads.log(counting) == kept
    task_id = client.submit("life.talk", {"lines": 20_000}).task_id
    ended(client, task_id, "SUCCESS")
    log = client.reads.log(task_id)
    assert len(log) <= 1000
    assert {"no end", "err 19999"} & set(log)
    assert_clean(client, fleet, task_id)

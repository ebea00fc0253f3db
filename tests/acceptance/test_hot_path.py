"""What a worker says to Redis while it has enough to do, and while it has nothing to do."""

import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.connection import BLOCK
from helpers import eventually, expect, heard

from .conftest import assert_clean

pytestmark = pytest.mark.slow

TASKS = 60
SHOWN = 12
"""Calls by which a worker is shown to be busy or idle."""


@pytest.fixture
def worker(fleet: Fleet, client: Client) -> None:
    """A worker whose beats are so rare that none is counted."""
    fleet.environment |= {"GHOSTLESS_BEAT": "60", "GHOSTLESS_LEASE": "180"}
    fleet.worker("default", name="w0", tasks="lifecycle")
    eventually(lambda: expect(["idle"] == [member.state for member in client.workers()]), seconds=20)


Call = tuple[float, int, str]
"""When a command came to Redis, by its clock (s), on which connection, and its name."""


def heard_of_others(client: Client, meanwhile: Callable[[], object]) -> list[Call]:
    """Return what others than this process send to Redis meanwhile."""
    seen = [
        (told["time"], int(told["client_port"]), told["command"].partition(" ")[0])
        for told in heard(client.store.redis, meanwhile)
        if told["client_type"] != "lua"
    ]
    ours = {connection.laddr.port for connection in psutil.Process().net_connections("tcp")}
    return [call for call in seen if call[1] not in ours]


def said(client: Client, meanwhile: Callable[[], object]) -> Counter[tuple[int, str]]:
    """Return how often which connection of others sends which command meanwhile."""
    return Counter((line, command) for _, line, command in heard_of_others(client, meanwhile))


def assert_waits(client: Client) -> None:
    """Check that the worker has followed all hints, is shown as idle, and stands in its wait for the next hint."""
    redis = client.store.redis
    assert 0 == redis.llen(client.store.keys.wake("default"))
    assert ["idle"] == [member.state for member in client.workers()]
    assert ["blpop"] == [told["cmd"] for told in redis.client_list() if "b" in told["flags"]]


@pytest.mark.usefixtures("worker")
def test_a_task_is_one_call(client: Client, fleet: Fleet, trace: Path) -> None:
    """The end of a task and the claim of the next are one script call, and nothing else is said for either."""
    client.submit("life.once", {"trace": str(trace)})
    eventually(lambda: assert_ran(trace, 1))
    client.pause_queue("default")
    for _ in range(TASKS):
        client.submit("life.once", {"trace": str(trace)})
    eventually(lambda: assert_waits(client))

    def run() -> None:
        client.resume_queue("default")
        eventually(lambda: assert_ran(trace, 1 + TASKS))

    seen = said(client, run)
    line = max(seen, key=lambda key: seen[key])[0]
    assert seen.pop((line, "EVALSHA")) - TASKS <= 2, "and less when some are short enough to run together"
    assert seen.pop((line, "BLPOP"), 0) <= 2, "it waits before the first, and after the last"
    assert seen.total() <= SHOWN, f"the change to busy is shown once: {seen}"
    assert_clean(client, fleet)


def test_short_tasks_share_a_call(client: Client, fleet: Fleet, trace: Path) -> None:
    """Those that run together are started in one call and ended in one."""
    fleet.environment |= {"GHOSTLESS_BEAT": "60", "GHOSTLESS_LEASE": "180"}
    fleet.spawn([sys.executable, "-m", "hasty", "60", "worker", "default", "--tasks", "lifecycle"])
    eventually(lambda: expect("life.once" in client.types()), seconds=20)
    client.submit("life.once", {"trace": str(trace)})
    eventually(lambda: assert_ran(trace, 1))
    client.pause_queue("default")
    for _ in range(TASKS):
        client.submit("life.once", {"trace": str(trace)})
    eventually(lambda: assert_waits(client))

    def run() -> None:
        client.resume_queue("default")
        eventually(lambda: assert_ran(trace, 1 + TASKS))

    seen = said(client, run)
    assert sum(number for (_, command), number in seen.items() if command == "EVALSHA") <= TASKS / 6
    assert_clean(client, fleet)


def told_by_the_busiest(seen: Counter[tuple[int, str]]) -> int:
    """Return how many commands came on the connection of the claims; beats have one of their own."""
    calls = Counter[int]()
    for (line, _), number in seen.items():
        calls[line] += number
    return max(calls.values())


def assert_ran(trace: Path, number: int) -> None:
    """Check that so many tasks have noted themselves."""
    assert number == len(trace.read_text().splitlines() if trace.exists() else ())


@pytest.mark.usefixtures("worker")
def test_a_task_that_comes_alone_is_three_calls(client: Client, trace: Path) -> None:
    """A hint, a claim, and an end that tells that there is no more; to be shown busy and idle is not worth a call."""

    def trickle() -> None:
        for number in range(10):
            client.submit("life.once", {"trace": str(trace)})
            eventually(lambda number=number: assert_ran(trace, number + 1))
            eventually(lambda: assert_waits(client))

    seen = said(client, trickle)
    assert told_by_the_busiest(seen) <= 3 * 10 + 2
    assert seen.total() <= 3 * 10 + 2 * SHOWN


def waits(client: Client) -> int:
    """Return how often the worker has begun to wait for a hint."""
    return client.store.redis.info("commandstats")["cmdstat_blpop"]["calls"]


@pytest.mark.usefixtures("worker")
def test_an_idle_worker_is_quiet_and_a_busy_one_is_seen(client: Client, trace: Path, end: Path) -> None:
    """It waits for a hint, and looks itself every two seconds; what it does is shown before the next beat."""
    eventually(lambda: assert_waits(client))
    enough = waits(client) + 3
    calls = heard_of_others(client, lambda: eventually(lambda: expect(waits(client) >= enough), seconds=25))
    assert {"BLPOP", "EVALSHA"} == {command for _, _, command in calls}
    looks = [at for at, _, command in calls if command == "EVALSHA"]
    assert min(later - earlier for earlier, later in pairwise(looks)) > 0.95 * BLOCK
    assert len(calls) <= 2 * len(looks) + 1
    client.submit("life.until", {"trace": str(trace), "end": str(end)})
    eventually(lambda: expect(["busy"] == [member.state for member in client.workers()]))
    end.touch()
    eventually(lambda: expect(["idle"] == [member.state for member in client.workers()]))

"""Redis itself, or a scheduler, stands still for longer than its word is good for, and then goes on (B46, B52, B57)."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, assert_in_turn, ended, running
from acceptance.test_outages import submitted
from acceptance.test_schedules import assert_ended, assert_more, tasks
from faults.sizes import FROZEN
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.recurrence import Recurrence
from ghostless.jobs.schedules import Schedule
from helpers import eventually
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError
from redis.retry import Retry
from redis_server import RedisServer

pytestmark = pytest.mark.slow

COMMANDS, DELAY = 6_000, 500
"""Commands that Redis has to read when it starts, and the microseconds that it takes over each."""


def stands_still(server: RedisServer, _client: Client) -> None:
    """Freeze the server's process: connections stay open, and nothing answers."""
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(FROZEN)  # the fault itself, for two leases at least
    os.kill(server.pid, signal.SIGCONT)


def loads(server: RedisServer, client: Client) -> None:
    """Restart the server with so much to read that it answers LOADING for a while."""
    with client.store.redis.pipeline(transaction=False) as pipeline:
        for number in range(COMMANDS):
            pipeline.set("filler", number, px=1_000)
        pipeline.execute()
    server.stop()
    server.options = ("--key-load-delay", str(DELAY))
    with ThreadPoolExecutor(1) as beside:  # the server dies with the thread that starts it
        seen = beside.submit(eventually, lambda: assert_loading(server))
        server.start()
        seen.result()


def assert_loading(server: RedisServer) -> None:
    """Check that Redis says that it is loading."""
    told = ""
    with Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as redis:
        try:
            redis.get("anything")
        except ConnectionError as error:
            told = str(error)
    assert "loading" in told.lower()


@pytest.mark.parametrize("fault", [stands_still, loads])
def test_redis_itself(
    fault: Callable[[RedisServer, Client], None],
    server: RedisServer,
    serving: Callable[..., None],
    client: Client,
    fleet: Fleet,
    tmp_path: Path,
    end: Path,
) -> None:
    """Workers and watchdog go on by themselves: what ran ends, and a new task starts soon."""
    serving(workers=2)
    going_on = client.submit("life.until", {"trace": str(tmp_path / "long"), "end": str(end)}).task_id
    running(tmp_path / "long")
    fault(server, client)
    following = eventually(lambda: submitted(client, tmp_path / "after"), seconds=10)
    ended(client, following, "SUCCESS", seconds=10)
    end.touch()
    assert ended(client, going_on, "SUCCESS").failures == 0
    assert_in_turn(tmp_path / "long")
    assert [process.poll() for process in fleet.processes] == [None] * 3
    assert_clean(client, fleet, going_on, following)


def test_schedulers_that_stand_still(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """Each of two is frozen across due times and goes on beside the other: every due time has one task."""
    serving()
    schedules, params = client.schedules, {"trace": str(trace), "good_from": 1}
    schedules.put(Schedule("often", "life.flaky", Recurrence(every=1_000), params, misfire="all"))
    first = schedules.get("often").due
    both = [fleet.start("scheduler", "--interval", "0.1") for _ in range(2)]
    eventually(lambda: assert_more(client, 1), seconds=20)
    for process in both:
        process.send_signal(signal.SIGSTOP)
        seen = len(tasks(client))
        eventually(lambda seen=seen: assert_more(client, seen + 2), seconds=20)  # type: ignore[misc]
        process.send_signal(signal.SIGCONT)
    seen = len(tasks(client))
    eventually(lambda: assert_more(client, seen + 1), seconds=20)
    for process in both:
        process.terminate()
        assert process.wait(timeout=10) == 0
    eventually(lambda: assert_ended(client))
    assert list(range(first, schedules.get("often").due, 1_000)) == sorted(
        client.get(task.id).metadata["due"] for task in tasks(client)
    )
    assert_clean(client, fleet, *[task.id for task in tasks(client)])

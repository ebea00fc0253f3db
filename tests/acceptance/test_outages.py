"""Redis in trouble, each time for longer than a lease: workers go on by themselves, no result and no order is lost."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from faults.sizes import AWAY, TROUBLE
from fleet import Fleet
from ghostless.jobs.claims import LONGEST_PAUSE
from ghostless.jobs.client import Client
from helpers import eventually, expect
from proxy import Mode, Proxy
from redis.exceptions import RedisError
from redis_server import RedisServer

from .conftest import (
    assert_clean,
    assert_in_turn,
    assert_told,
    ended,
    running,
    seconds_between,
    serve_health,
    story,
    watched,
)

pytestmark = pytest.mark.slow

BUSY = "local t = redis.call('TIME')[1] + ARGV[1] while redis.call('TIME')[1] + 0 < t do end"


@pytest.fixture
def proxy(server: RedisServer, fleet: Fleet) -> Iterator[Proxy]:
    """What stands between the fleet and Redis."""
    between = Proxy(server.port)
    fleet.url = between.url
    yield between
    between.close()


Trouble = Callable[[RedisServer, Client, Proxy | None], float]
"""Makes trouble, and returns when it was about to end."""


def gone(seconds: float) -> Trouble:
    """Redis is stopped, and started again with its data."""

    def act(server: RedisServer, client: Client, proxy: Proxy | None) -> float:
        server.stop()
        time.sleep(seconds)  # the fault itself
        over_at = time.time()
        server.start()
        return over_at

    return act


def misbehaving(mode: Mode) -> Trouble:
    """What answers is not Redis as it should be."""

    def act(server: RedisServer, client: Client, proxy: Proxy | None) -> float:
        assert proxy
        proxy.mode = mode
        time.sleep(TROUBLE)
        over_at = time.time()
        proxy.mode = "pass"
        return over_at

    return act


def read_only(server: RedisServer, client: Client, proxy: Proxy | None) -> float:
    """Redis is a replica for a while, as after a failover to the wrong side."""
    client.store.redis.replicaof("127.0.0.1", "1")
    time.sleep(TROUBLE)
    over_at = time.time()
    client.store.redis.replicaof("NO", "ONE")
    return over_at


def busy(server: RedisServer, client: Client, proxy: Proxy | None) -> float:
    """Somebody's script does not end."""
    client.store.redis.config_set("busy-reply-threshold", 100)
    with suppress(RedisError):  # the time-out of our own connection is not what is tested
        client.store.redis.eval(BUSY, 0, round(TROUBLE) + 1)
    return time.time()


def cannot_save(server: RedisServer, client: Client, proxy: Proxy | None) -> float:
    """The disk does not take the snapshot, and Redis refuses writes."""
    redis = client.store.redis
    redis.config_set("appendonly", "no")
    redis.config_set("save", "3600 1")
    obstacle = server.folder / "dump.rdb"
    obstacle.mkdir()
    redis.bgsave()
    eventually(lambda: assert_misconfigured(client))
    time.sleep(TROUBLE)
    over_at = time.time()
    obstacle.rmdir()
    redis.bgsave()
    eventually(lambda: assert_writable(client))
    return over_at


def assert_misconfigured(client: Client) -> None:
    """Check that the last snapshot failed."""
    assert client.store.redis.info("persistence")["rdb_last_bgsave_status"] == "err"


def assert_writable(client: Client) -> None:
    """Check that the last snapshot succeeded."""
    assert client.store.redis.info("persistence")["rdb_last_bgsave_status"] == "ok"


@pytest.mark.parametrize(
    "trouble",
    [
        gone(AWAY),
        read_only,
        misbehaving("loading"),
        misbehaving("silent"),
        busy,
        cannot_save,
    ],
    ids=["gone", "read only", "loading", "silent", "busy", "cannot save"],
)
def test_trouble(
    trouble: Trouble, proxy: Proxy, server: RedisServer, client: Client, fleet: Fleet, tmp_path: Path, end: Path
) -> None:  # fmt: skip
    """A result that came meanwhile is stored; who lost his lease stops before another starts; new tasks start soon.

    The worker's health is red meanwhile, with the reason, and green again by itself.
    """
    fleet.worker("default", name="w1", tasks="lifecycle")
    place = serve_health(fleet)
    eventually(lambda: expect(["idle"] * 2 == [member.state for member in client.workers()]), seconds=20)
    short, long = tmp_path / "short", tmp_path / "long"
    finishing = client.submit("life.busy", {"trace": str(short), "seconds": 0.8}).task_id
    going_on = client.submit("life.until", {"trace": str(long), "end": str(end)}).task_id
    running(short)
    running(long)
    with watched(place) as answers:
        over_at = trouble(server, client, proxy)
    assert any(re.match("503 .*no successful call to Redis for", answer) for answer in answers), answers
    following = eventually(lambda: submitted(client, tmp_path / "after"), seconds=25)
    ended(client, following, "SUCCESS")
    assert seconds_between(client, following, "SUBMIT", "START") < 5 * LONGEST_PAUSE
    end.touch()
    assert ended(client, finishing, "SUCCESS").attempt == 1, "the work was done, and an outage only delays its result"
    assert ended(client, going_on, "SUCCESS").failures == 0
    for trace in (short, long):
        assert_in_turn(trace)
    first = [float(line.split()[-1]) for line in running(long) if line.startswith("1 ")]
    assert max(first) < over_at, "the handler was stopped when its lease ended, not when Redis was back"
    assert [process.poll() for process in fleet.processes] == [None] * 3
    eventually(lambda: assert_told(place, "200 idle"))
    assert_clean(client, fleet, finishing, going_on, following)


def test_a_short_outage_costs_nothing(
    server: RedisServer, serving: Callable[..., None], client: Client, fleet: Fleet, tmp_path: Path, end: Path
) -> None:
    """Redis that is away for less than the lease interrupts nobody: no attempt is lost, and no time of a handler."""
    fleet.environment |= {"GHOSTLESS_LEASE": "6"}
    serving(workers=2)
    finishing = client.submit("life.busy", {"trace": f"{tmp_path}/short", "seconds": 1.0}).task_id
    going_on = client.submit("life.until", {"trace": f"{tmp_path}/long", "end": str(end)}).task_id
    running(tmp_path / "short")
    running(tmp_path / "long")
    over_at = gone(2.0)(server, client, None)
    end.touch()
    for task_id in (finishing, going_on):
        assert ended(client, task_id, "SUCCESS").attempt == 1
        assert story(client, task_id) == ["SUBMIT", "START", "COMPLETE"]
    times = [float(line.split()[-1]) for line in (tmp_path / "long").read_text().splitlines()]
    meanwhile = [moment for moment in times if over_at - 1.5 < moment < over_at]
    assert len(meanwhile) >= 10, "of some 70 steps: the handler did not wait for Redis"
    assert_clean(client, fleet, finishing, going_on)


def submitted(client: Client, trace: Path) -> str:
    """Submit a task, as soon as Redis takes it."""
    try:
        return client.submit("life.once", {"trace": str(trace)}).task_id
    except Exception as error:
        raise AssertionError(error) from error

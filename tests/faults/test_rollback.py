"""Redis came back with what it held a while ago: what was acknowledged since is gone, and nobody makes it up (B69)."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, ended, running
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.errors import GhostlessError, ScheduleNotFound, TaskNotFound
from ghostless.jobs.recurrence import Recurrence
from ghostless.jobs.schedules import Schedule
from helpers import eventually
from redis_server import RedisServer

pytestmark = pytest.mark.slow


@pytest.fixture
def server(own_server: Callable[..., RedisServer]) -> RedisServer:
    """A Redis that keeps snapshots only."""
    return own_server()


def roll_back(server: RedisServer, client: Client) -> None:
    """Lose what came after the last snapshot, as SHUTDOWN NOSAVE does."""
    server.kill()
    server.start()
    eventually(partial(assert_answers, client))


def assert_answers(client: Client) -> None:
    """Check that Redis is there again."""
    try:
        client.counts()
    except GhostlessError as error:
        raise AssertionError(error) from error


def take_snapshot(client: Client) -> None:
    """Save what there is."""
    client.store.redis.bgsave()
    eventually(lambda: assert_saved(client))


def assert_saved(client: Client) -> None:
    """Check that the snapshot is written."""
    told = client.store.redis.info("persistence")
    assert (told["rdb_bgsave_in_progress"], told["rdb_last_bgsave_status"]) == (0, "ok")


def test_what_redis_forgot(
    serving: Callable[..., None], server: RedisServer, client: Client, fleet: Fleet, tmp_path: Path, end: Path
) -> None:
    """A task of after the snapshot is 404 and its handler stops; an earlier one is where it was, and goes on.

    So it is with schedules and idempotency keys: those of after the snapshot are not known any more.
    """
    serving(workers=2)
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    going_on = client.submit("life.until", {"trace": str(kept), "end": str(end)}).task_id
    cancelled = client.submit("life.once", {"trace": f"{tmp_path}/once"}, delay=60).task_id
    running(kept)
    old, new = (Schedule(name, "life.once", Recurrence(every=3_600_000), {"trace": "x"}) for name in ("old", "new"))
    client.schedules.put(old)
    take_snapshot(client)
    lost = [
        client.submit("life.until", {"trace": str(gone), "end": f"{tmp_path}/never"}).task_id,
        client.submit("life.once", {"trace": f"{tmp_path}/once"}, delay=60, idempotency_key="order-7").task_id,
    ]
    client.cancel(cancelled)
    client.schedules.remove("old")
    client.schedules.put(new)
    running(gone)
    roll_back(server, client)
    for task_id in lost:
        with pytest.raises(TaskNotFound):
            client.get(task_id)
    eventually(lambda: assert_silent(gone), seconds=20)
    assert client.get(cancelled).state == "SCHEDULED"
    client.cancel(cancelled)
    assert client.schedules.get("old").type == "life.once"
    with pytest.raises(ScheduleNotFound):
        client.schedules.get("new")
    client.schedules.remove("old")
    again = client.submit("life.once", {"trace": f"{tmp_path}/once"}, idempotency_key="order-7").task_id
    assert again not in lost
    ended(client, again, "SUCCESS")
    end.touch()
    ended(client, going_on, "SUCCESS")
    assert_clean(client, fleet, going_on, cancelled, again, forgotten=lost)


def assert_silent(trace: Path) -> None:
    """Check that no handler goes on."""
    before = trace.read_text()
    time.sleep(0.3)  # fifteen steps of the handler
    assert trace.read_text() == before

"""Tickets that rq's tools took away: the watchdog makes new ones, and the history says so."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually
from redis import Redis
from redis_server import RedisServer

from .conftest import assert_clean, ended, story
from .test_rq import published
from .test_rq_tools import rq

pytestmark = pytest.mark.slow

QUEUE = "rq:queue:default"


def empty(server: RedisServer, redis: Redis, ids: list[str]) -> None:
    """Empty the queue with rq's own command, which deletes the jobs too."""
    assert f"{len(ids)} jobs removed" in rq(server, "empty", "default")


def delete_tickets(server: RedisServer, redis: Redis, ids: list[str]) -> None:
    """Delete some tickets' jobs, and take others from the list."""
    redis.delete(*(f"rq:job:{task_id}" for task_id in ids[::2]))
    for task_id in ids[1:]:
        redis.lrem(QUEUE, 0, task_id)


def rename(server: RedisServer, redis: Redis, ids: list[str]) -> None:
    """Rename the whole queue away."""
    redis.rename(QUEUE, "rq:elsewhere")


def remove(server: RedisServer, redis: Redis, ids: list[str]) -> None:
    """Delete the list and rq's note that there is such a queue."""
    redis.delete(QUEUE, "rq:queues")


@pytest.mark.parametrize("take_away", [empty, delete_tickets, rename, remove])
def test_tickets_come_back(
    take_away: Callable[..., None],
    server: RedisServer,
    client: Client,
    fleet: Fleet,
    rq_redis: Redis,
    trace: Path,
) -> None:
    """Whatever became of the tickets of PENDING tasks, they are made anew, and each task ends in SUCCESS once."""
    published(client, fleet)
    ids = [client.submit("life.once", {"trace": str(trace)}).task_id for _ in range(5)]
    take_away(server, rq_redis, ids)
    lost = [task_id for task_id in ids if task_id.encode() not in rq_redis.lrange(QUEUE, 0, -1)]
    fleet.watchdog()
    for task_id in lost:
        eventually(lambda task_id=task_id: assert_requeued(client, task_id))
    assert sorted(rq_redis.lrange(QUEUE, 0, -1)) == sorted(task_id.encode() for task_id in ids)
    assert [rq_redis.exists(f"rq:job:{task_id}") for task_id in lost] == [1] * len(lost)
    fleet.worker("default", tasks="lifecycle")
    for task_id in ids:
        ended(client, task_id, "SUCCESS")
    assert sorted(trace.read_text().split()) == sorted(ids)
    rq_redis.delete("rq:elsewhere")
    assert_clean(client, fleet, *ids)


def assert_requeued(client: Client, task_id: str) -> None:
    """Check that the history tells of a new ticket, once and with its reason."""
    assert story(client, task_id) == ["SUBMIT", "REQUEUE"]
    assert "ticket was gone" in client.history(task_id)[-1].message

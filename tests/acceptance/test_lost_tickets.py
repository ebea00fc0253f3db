"""Tickets that rq's tools took away: the watchdog makes new ones, and the history says so."""

from functools import partial
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually
from redis import Redis
from redis_server import RedisServer

from .conftest import assert_clean, ended, publish, rq, story

pytestmark = pytest.mark.slow


def empty(fleet: Fleet, redis: Redis, ids: list[str]) -> None:
    """Empty the queue with rq's own command, which deletes the jobs too."""
    assert f"{len(ids)} jobs removed" in rq(fleet, "empty", "empty")


def delete(fleet: Fleet, redis: Redis, ids: list[str]) -> None:
    """Delete some tickets' jobs, and take others from the list."""
    redis.delete(*(f"rq:job:{task_id}" for task_id in ids[::2]))
    for task_id in ids[1:]:
        redis.lrem("rq:queue:delete", 0, task_id)


def rename(fleet: Fleet, redis: Redis, ids: list[str]) -> None:
    """Rename the whole queue away."""
    redis.rename("rq:queue:rename", "rq:elsewhere")


def remove(fleet: Fleet, redis: Redis, ids: list[str]) -> None:
    """Delete the list, and rq's note that there are such queues."""
    redis.delete("rq:queue:remove", "rq:queues")


FAULTS = (empty, delete, rename, remove)


def test_tickets_come_back(server: RedisServer, client: Client, fleet: Fleet, rq_redis: Redis, trace: Path) -> None:
    """Whatever became of the tickets of PENDING tasks, they are made anew, and each task ends in SUCCESS once."""
    publish(fleet)
    queues = {
        fault.__name__: [
            client.submit("life.once", {"trace": str(trace)}, queue=fault.__name__).task_id for _ in range(4)
        ]
        for fault in FAULTS
    }
    for fault in FAULTS:
        fault(fleet, rq_redis, queues[fault.__name__])
    lost = [task_id for queue, ids in queues.items() for task_id in ids if task_id not in tickets(rq_redis, queue)]
    assert len(lost) == 15
    fleet.watchdog()
    for task_id in lost:
        eventually(partial(assert_requeued, client, task_id))
    assert {queue: sorted(tickets(rq_redis, queue)) for queue in queues} == {
        queue: sorted(ids) for queue, ids in queues.items()
    }
    assert rq_redis.exists(*(f"rq:job:{task_id}" for task_id in lost)) == len(lost)
    fleet.worker(*queues, tasks="lifecycle")
    ids = [task_id for ids in queues.values() for task_id in ids]
    for task_id in ids:
        ended(client, task_id, "SUCCESS")
    assert sorted(trace.read_text().split()) == sorted(ids)
    rq_redis.delete("rq:elsewhere")
    assert_clean(client, fleet, *ids)


def tickets(redis: Redis, queue: str) -> list[str]:
    """Return the ids in rq's list."""
    return [member.decode() for member in redis.lrange(f"rq:queue:{queue}", 0, -1)]


def assert_requeued(client: Client, task_id: str) -> None:
    """Check that the history tells of a new ticket, once and with its reason."""
    assert story(client, task_id) == ["SUBMIT", "REQUEUE"]
    assert "ticket was gone" in client.history(task_id)[-1].message

"""A task that goes while somebody waits for its end is told as gone, and never as done (B69)."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import requests
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.errors import GhostlessError, TaskNotFound
from ghostless.jobs.settings import Settings
from helpers import eventually, expect, run_command
from redis_server import RedisServer
from web_tools import end_retention, in_process, publish, submitted

Lose = Callable[[Client, RedisServer, str], None]

WAIT = 1
"""Seconds that a long poll is held: a record that was deleted, of which no history tells, is missed at its end."""


@pytest.fixture
def server(own_server: Callable[..., RedisServer]) -> RedisServer:
    """A Redis that keeps snapshots only."""
    return own_server()


@pytest.fixture
def client(server: RedisServer) -> Iterator[Client]:
    """The core; the test's type is published, which a snapshot holds."""
    core = Client(Settings(redis_url=server.url))
    publish(core.store)
    submitted(core)
    core.store.redis.save()
    yield core
    core.store.redis.close()


def delete(client: Client, _: RedisServer, task_id: str) -> None:
    """Lose the record, as by an eviction."""
    client.store.redis.delete(client.store.keys.task(task_id))


def purge(client: Client, _: RedisServer, task_id: str) -> None:
    """Let its retention be over as soon as it ended."""
    client.cancel(task_id)
    end_retention(client.store.redis, client.store.keys, [task_id])
    client.store.purge()


def roll_back(client: Client, server: RedisServer, _: str) -> None:
    """Let Redis come back with what it held before the task was submitted."""
    server.kill()
    server.start()
    eventually(lambda: expect(answers(client)))


def answers(client: Client) -> bool:
    """Tell whether Redis is there."""
    try:
        client.counts()
    except GhostlessError:
        return False
    return True


@pytest.mark.parametrize("lose", [delete, purge, roll_back])
def test_who_waits_for_a_task_that_goes_is_told(client: Client, server: RedisServer, lose: Lose) -> None:
    """By a long poll 404, 410, or for the moment 503; by `submit --wait` an error; the client's own look agrees.

    Only a purge leaves its end to be told: a long poll may have seen it.
    """
    environment = os.environ | {"GHOSTLESS_REDIS_URL": server.url}
    app = create_app(client=client)
    hub = app.extensions["ghostless"].hub
    with in_process(app) as web, ThreadPoolExecutor(2) as pool:
        waiting: Future[tuple[int, str]] = pool.submit(
            run_command, "submit", "work", "--id", "t1", "--wait", environment=environment
        )
        eventually(lambda: expect(client.store.redis.exists(client.store.keys.task("t1"))), seconds=20)
        poll = pool.submit(requests.get, f"{web.url}/api/tasks/t1?wait={WAIT}", timeout=30)
        eventually(lambda: expect(hub.subscribers))
        lose(client, server, "t1")
        answer, (code, printed) = poll.result(), waiting.result()
    assert answer.status_code in (404, 410, 503) or (lose is purge and answer.json()["state"] == "CANCELLED")
    assert code == 1
    assert "t1 SUCCESS" not in printed
    assert "Error: " in printed
    with pytest.raises(TaskNotFound):
        client.get("t1")

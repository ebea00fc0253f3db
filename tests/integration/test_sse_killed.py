"""Many clients of one server that die at once, and connections to Redis that are cut under them (B68)."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web.limits import AT_ONCE
from helpers import die_with_the_tests
from redis import Redis
from web_tools import Served, gunicorn, opened, publish, states, submitted, until

CROWD = 60

OPEN_MANY = """
import sys, time
from web_tools import opened
streams = [opened(sys.argv[1]) for _ in range(int(sys.argv[2]))]
print("open", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def client(redis: Redis, settings: Settings, store: Store) -> Client:
    """The core; the test's type is published."""
    publish(store)
    return Client(settings, redis)


@contextmanager
def crowd(url: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process that has many streams open; it is yielded once all are."""
    command = [sys.executable, "-c", OPEN_MANY, url, str(CROWD)]
    folder = Path(__file__).parents[1]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder, preexec_fn=die_with_the_tests)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"open\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def listeners(web: Served) -> float:
    """Return how many streams the server has open."""
    lines = requests.get(f"{web.url}/metrics", timeout=5).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("ghostless_http_listeners "))


def test_a_crowd_is_served_and_when_it_is_killed_nothing_of_it_is_left(client: Client, redis: Redis) -> None:
    """With sixty streams open a submit is answered; Redis has no connection more for them, nor once they are killed.

    Cut off from Redis, both ways in which a server listens, the stream of one who stays goes on to the end.
    """
    with gunicorn(client.settings.redis_url, constants={"sse.HEARTBEAT": 0.5}) as web:
        followed = submitted(client)
        with opened(f"{web.url}/api/tasks/{followed}/events") as stream:
            stream.take("task")
            before = len(redis.client_list())
            with crowd(f"{web.url}/api/events") as process:
                assert listeners(web) == 1 + CROWD
                answer = requests.post(f"{web.url}/api/tasks", json={"type": "work", "params": {}}, timeout=5)
                assert answer.status_code == 202
                assert len(redis.client_list()) <= before + AT_ONCE
                process.kill()
                until(lambda: listeners(web) == 1)
                assert len(redis.client_list()) <= before + AT_ONCE
            for kind in ("pubsub", "normal"):
                assert redis.client_kill_filter(_type=kind, skipme=True) > 0
            requests.post(f"{web.url}/api/tasks/{followed}/cancel", timeout=5)
            assert states(list(stream)) == ["CANCELLED"]

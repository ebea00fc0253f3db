"""Long polls on the server as it is installed: hundreds wait at once, and cost neither threads nor connections."""

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import psutil
import pytest
import requests
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web.limits import AT_ONCE
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis
from web_tools import Hand, Served, gunicorn, publish, submitted, until

WAITERS = 300
FEEDS = 2
"""Connections of the hub: one waits for the history, one hears progress."""
WATCHDOG = 1
PROBES = 2
"""Of the pool: the requests of this test, and the server's own look at its start."""

RESOLVERS = 10
"""Threads with which gevent looks up names, at most, however many ask."""


@pytest.fixture
def server(redis: Redis, settings: Settings, store: Store) -> Iterator[Served]:
    """A server of one process."""
    publish(store)
    with gunicorn(settings.redis_url) as served:
        yield served


def listeners(server: Served) -> float:
    """Return how many streams and long polls wait in the server."""
    families = text_string_to_metric_families(requests.get(f"{server.url}/metrics", timeout=10).text)
    return next(family.samples[0].value for family in families if family.name == "ghostless_http_listeners")


def ask(server: Served, path: str, etag: str = "") -> http.client.HTTPConnection:
    """Send a request, and do not wait for its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.url).port, timeout=30)
    connection.request("GET", path, headers={"If-None-Match": etag} if etag else {})
    return connection


def test_hundreds_of_long_polls_cost_no_thread_and_no_connection(server: Served, client: Client, redis: Redis) -> None:
    """300 wait in one process: Redis sees the hub's two connections and the few that looked together, at all times.

    No thread is made for them, plain requests are served meanwhile, and all are answered with the change.
    """
    before = {line["id"] for line in redis.client_list()} - _of_the_server(server, redis)
    task_id = submitted(client)
    etag = requests.get(f"{server.url}/api/tasks/{task_id}", timeout=5).headers["ETag"]
    (worker,) = psutil.Process(server.pid).children()
    threads = worker.num_threads()

    def connections() -> int:
        return sum(line["id"] not in before for line in redis.client_list())

    with ExitStack() as held:
        waiting = [
            held.enter_context(closing(ask(server, f"/api/tasks/{task_id}?wait=60", etag))) for _ in range(WAITERS)
        ]
        until(lambda: listeners(server) == WAITERS)
        assert connections() <= FEEDS + AT_ONCE + WATCHDOG + PROBES
        assert worker.num_threads() <= threads + RESOLVERS
        claimed = Hand(client.store).start()
        answers = [connection.getresponse() for connection in waiting]
        assert {(200, "PROCESSING")} == {(answer.status, json.loads(answer.read())["state"]) for answer in answers}
        assert connections() <= FEEDS + AT_ONCE + WATCHDOG + PROBES
    until(lambda: listeners(server) == 0)
    Hand(client.store).finish(claimed)


def _of_the_server(server: Served, redis: Redis) -> set[str]:
    """Return the connections to Redis that the server's processes have."""
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    ports = {one.laddr.port for process in family for one in process.net_connections("tcp") if one.raddr}
    return {line["id"] for line in redis.client_list() if int(line["addr"].rpartition(":")[2] or 0) in ports}


def test_a_change_between_two_polls_is_told_at_once_to_who_names_a_version(server: Served, client: Client) -> None:
    """Without If-None-Match only what changes after the look is news; with it nothing is missed."""
    task_id = submitted(client)
    seen = requests.get(f"{server.url}/api/tasks/{task_id}", timeout=5)
    Hand(client.store).start()
    unversioned = requests.get(f"{server.url}/api/tasks/{task_id}?wait=1", timeout=10)
    assert unversioned.elapsed.total_seconds() >= 1
    versioned = requests.get(
        f"{server.url}/api/tasks/{task_id}?wait=20", headers={"If-None-Match": seen.headers["ETag"]}, timeout=30
    )
    assert "PROCESSING" == versioned.json()["state"] == unversioned.json()["state"]
    assert versioned.elapsed.total_seconds() < 10


def test_asking_again_makes_sense_later(server: Served, client: Client) -> None:
    """A task that is not final says when to ask again, unless the answer was held; a final one does not."""
    task_id = submitted(client)
    url = f"{server.url}/api/tasks/{task_id}"
    assert "2" == requests.get(url, timeout=5).headers["Retry-After"]
    held = requests.get(url, headers={"Prefer": "wait=0"}, timeout=5).headers
    assert ("wait=0", None) == (held["Preference-Applied"], held.get("Retry-After"))
    client.cancel(task_id)
    assert "Retry-After" not in requests.get(url, timeout=5).headers

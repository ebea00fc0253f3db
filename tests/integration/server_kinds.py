"""Each kind of server: gunicorn with greenlets, gunicorn with threads, and Flask's own in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import late
import psutil
import pytest
import requests
from contract import Contract
from flask import Flask
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.web import limits, ring, sse
from ghostless.web.hub import Hub
from redis_server import RedisServer
from web_tools import Served, gunicorn, in_process, publish, submitted, until

HEARTBEAT = 0.3
"""Seconds between two signs of life, by which a server notices who left."""

RING = 32
"""Moves that a server keeps in memory; what is older it reads from Redis."""

DRAIN = 1.6
"""Seconds in which all streams end when a server stops."""

SEGMENT, FLOOD = 536, 200
"""Bytes of a segment, and moves of 2 KB that are more than the system buffers for who takes such segments.

With segments as large as this machine sends to itself it takes 4 MB, and has told of a dead client before these came.
"""


class Shares(NamedTuple):
    """How many streams a server takes: in all, of one address, and of one token."""

    streams: int = 40
    of_an_address: int = 40
    of_a_token: int = 40


@pytest.fixture(scope="module")
def shares() -> Shares:
    """More than a test needs, unless a module says otherwise."""
    return Shares()


@pytest.fixture(scope="module", params=["gevent", "gthread", "flask"])
def each_server(request: pytest.FixtureRequest, redis_server: RedisServer, shares: Shares) -> Iterator[Served]:
    """Each kind of server, once for a module."""
    threads = shares.streams + limits.THREADS_PLAIN if request.param == "gthread" else 0
    url = redis_server.url
    with flasks_own(url, shares) if request.param == "flask" else installed(url, shares, threads) as served:
        yield served


@pytest.fixture
def any_server(each_server: Served, client: Client) -> Served:
    """That server, once it noticed that the database was emptied for this test, and holds nobody's place.

    The types `work` and `video` are published.
    """
    publish(client.store, "work", "video")
    woken = submitted(client, queue="wake")  # a move wakes the hub at once
    until(lambda: cursor_of(each_server, woken).startswith(client.reads.epoch()))
    until(lambda: listeners(each_server) == 0)
    return each_server


@contextmanager
def flasks_own(url: str, shares: Shares) -> Iterator[Served]:
    """Serve in this process."""
    settings = Settings(redis_url=url, streams_per_address=shares.of_an_address, streams_per_token=shares.of_a_token)
    app = create_app(client=Client(settings), limits=limits.Limits(100, shares.streams), proxies=1)
    contract = Contract(app)
    with in_process(app) as served, pytest.MonkeyPatch.context() as patches:
        patches.setattr(sse, "HEARTBEAT", HEARTBEAT)
        patches.setattr(ring, "RING", RING)
        patches.setattr(Hub, "subscribe", late.subscribe)
        yield served
    assert [] == contract.breaches


@contextmanager
def installed(url: str, shares: Shares, threads: int) -> Iterator[Served]:
    """Serve as installations do."""
    files = limits.RESERVED + 4 * shares.streams  # two for each connection, and half of these for streams
    environment = {
        "GHOSTLESS_STREAMS_PER_ADDRESS": str(shares.of_an_address),
        "GHOSTLESS_STREAMS_PER_TOKEN": str(shares.of_a_token),
    }
    clocks = {
        "sse.HEARTBEAT": HEARTBEAT, "serve.DRAIN": DRAIN, "hub.DRAIN_PAUSE": DRAIN / shares.streams, "ring.RING": RING,
    }  # fmt: skip
    with gunicorn(
        url, limit=f"ulimit -n {max(100, files) if threads else files}", threads=threads, proxies=1, watchdog=False,
        constants=clocks, first=late.IN_A_SERVER, environment=environment,
    ) as served:  # fmt: skip
        yield served


def cursor_of(server: Served, task_id: str) -> str:
    """Return where a server sees a task."""
    return requests.get(f"{server.url}/api/tasks/{task_id}", timeout=5).json()["cursor"]


def listeners(server: Served) -> float:
    """Return how many places are held, as the server tells it."""
    lines = requests.get(f"{server.url}/metrics", timeout=5).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("ghostless_http_listeners "))


def addressed(number: int) -> dict[str, str]:
    """Return the header by which the proxy before the servers tells an address."""
    return {"X-Forwarded-For": f"192.0.2.{number}"}


@contextmanager
def standing_still(server: Served) -> Iterator[None]:
    """Let a server hand out nothing of the history while the block runs."""
    if isinstance(server.app, Flask):
        with server.app.extensions["ghostless"].hub._lock:
            yield
        return
    workers = psutil.Process(server.pid).children()
    for worker in workers:
        worker.suspend()
    try:
        yield
    finally:
        for worker in workers:
            worker.resume()

"""The same streams on every server: gunicorn with greenlets, gunicorn with threads, and Flask's own."""

import logging
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import requests
from click.testing import CliRunner
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from ghostless.web import frames, limits
from ghostless.web.serve import Server, serve
from ghostless.web.server_workers import ThreadedWorker
from helpers import free_port
from redis_server import RedisServer
from web_tools import (
    EventStream,
    Hand,
    Served,
    opened,
    repeating,
    states,
    submitted,
    until,
)

from .server_kinds import DRAIN, Shares, addressed, listeners

STREAMS, OF_AN_ADDRESS, OF_A_TOKEN = 8, 4, 2
"""How many each server takes; with threads the first is what is left of twelve."""


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[RedisServer]:
    """A server of this module's own, which keeps its data when it is killed."""
    server = RedisServer(tmp_path_factory.mktemp("kinds"), durable=True).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shares() -> Shares:
    """Few, so that a test fills a server."""
    return Shares(STREAMS, OF_AN_ADDRESS, OF_A_TOKEN)


def is_refused(url: str, headers: dict[str, str]) -> bool:
    """Tell whether a browser is told to come back, in a way that it does."""
    with EventStream(url, headers=headers) as stream:
        assert 200 == stream.status
        first = stream.next()
        assert frames.RECONNECT[0] <= (stream.retry or 0) <= frames.RECONNECT[1]
        return first is None


def leave(streams: list[EventStream], client: Client, task_id: str) -> None:
    """End a task, and with it the streams."""
    client.cancel(task_id)
    for stream in streams:
        with stream:
            assert "end" == list(stream)[-1].event


# One after the other


def test_streams_live_and_end(any_server: Served, client: Client, store: Store) -> None:
    """Replay, live moves, progress, the limit, plain requests beside full streams, `end` and 204."""
    hand = Hand(store)
    task_id, task = submitted(client), f"{any_server.url}/api/tasks/"
    streams = [opened(f"{task}{task_id}/events", headers=addressed(number)) for number in range(STREAMS)]
    claimed = hand.start()
    with repeating(lambda: store.progress(claimed.held, 0.5, "half")):
        for stream in streams:
            assert ["PENDING", "PROCESSING"] == states(stream.take("task", 2))
            assert 0.5 == stream.take("progress")[0].data["progress"]
    assert is_refused(f"{task}{task_id}/events", addressed(STREAMS))
    assert 503 == requests.get(f"{task}{task_id}?wait=5", timeout=5).status_code
    assert 200 == requests.get(task + task_id, timeout=5).status_code
    hand.finish(claimed)
    for stream in streams:
        with stream:
            assert ["SUCCESS"] == states(list(stream))
    with EventStream(f"{task}{task_id}/events", streams[0].ids[-1]) as over:
        assert 204 == over.status
    assert "SUCCESS" == requests.get(f"{task}{task_id}?wait=5", timeout=5).json()["state"]


def test_an_address_holds_so_many_streams(any_server: Served, client: Client) -> None:
    """Over the limit a browser is told to come back, a program gets 429; a place that is free again is given away."""
    task_id, headers = submitted(client), addressed(1)
    url = f"{any_server.url}/api/tasks/{task_id}/events"
    streams = [opened(url, headers=headers) for _ in range(OF_AN_ADDRESS)]
    assert is_refused(url, headers)
    refused = requests.get(url, headers=headers, timeout=5)
    assert (429, "2") == (refused.status_code, refused.headers["Retry-After"])
    assert "application/problem+json" == refused.headers["Content-Type"]
    assert "urn:ghostless:too-many-listeners" == refused.json()["type"]
    assert 200 == requests.get(f"{any_server.url}/api/tasks/{task_id}", headers=headers, timeout=5).status_code
    streams.append(opened(url, headers=addressed(2)))
    leave(streams, client, task_id)
    until(lambda: listeners(any_server) == 0)
    with EventStream(url, headers=headers) as stream:
        assert ["end"] == [message.event for message in stream if message.event != "task"]


def test_a_token_holds_so_many_streams_wherever_it_comes_from(any_server: Served, client: Client) -> None:
    """Each token has its own share, whatever its name; who needs no token is bounded by his address alone."""
    task_id = submitted(client)
    url = f"{any_server.url}/api/tasks/{task_id}/events"
    texts = [client.tokens.add("page", [Scope.ADMIN])[0] for _ in range(2)]
    one, other = ({"Authorization": f"Bearer {text}"} for text in texts)
    streams = [opened(url, headers=one | addressed(number)) for number in range(OF_A_TOKEN)]
    assert is_refused(url, one | addressed(8))
    claim = {"worker": "far", "types": ["work"]}
    asked = f"{any_server.url}/api/queues/elsewhere/claim?wait=1"
    assert 429 == requests.post(asked, json=claim, headers=one | addressed(9), timeout=20).status_code
    streams += [opened(url, headers=other | addressed(number)) for number in range(OF_A_TOKEN)]
    assert is_refused(url, other | addressed(8))
    streams += [opened(url, headers=addressed(7)) for _ in range(3)]
    leave(streams, client, task_id)


# What ends


def test_the_server_outlives_redis(any_server: Served, client: Client, store: Store, redis_server: RedisServer) -> None:
    """Alive and not ready while Redis is away; open streams go on when it is back, and miss nothing."""
    task_id = submitted(client)
    with (
        opened(f"{any_server.url}/api/tasks/{task_id}/events") as stream,
        opened(f"{any_server.url}/api/events?queue=work") as by_queue,
    ):
        stream.take("task")
        redis_server.kill()
        try:
            assert 200 == get(f"{any_server.url}/healthz").status_code
            answer = get(f"{any_server.url}/readyz")
            assert (503, "application/problem+json") == (answer.status_code, answer.headers["Content-Type"])
            answer = get(f"{any_server.url}/api/tasks/{task_id}")
            assert (503, "2") == (answer.status_code, answer.headers["Retry-After"])
            assert is_refused(f"{any_server.url}/api/tasks/{task_id}/events", {})
        finally:
            redis_server.start()
        Hand(store).run()
        told, others = list(stream), by_queue.take("task", 2)
    assert ["task", "task", "end"] == [message.event for message in told]
    assert ["PROCESSING", "SUCCESS"] == states(told) == states(others)
    assert 200 == get(f"{any_server.url}/readyz").status_code


def get(url: str) -> requests.Response:
    """Fetch without keeping the connection, which holds a thread."""
    return requests.get(url, timeout=20, headers={"Connection": "close"})


# Flask's own knows no stop.
@pytest.mark.parametrize("each_server", ["gevent", "gthread"], indirect=True, scope="module")
def test_a_stop_ends_the_streams_one_after_the_other(any_server: Served, client: Client) -> None:
    """Spread over the drain, each with a time of its own to come back at; then no process is left.

    How long the last one may take tells `test_serve_drain.py`, by the clock of the server.
    """
    family = [psutil.Process(any_server.pid), *psutil.Process(any_server.pid).children()]
    url = f"{any_server.url}/api/tasks/{submitted(client)}/events"
    streams = [opened(url, headers=addressed(number)) for number in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        ends = pool.map(ended, streams)
        os.kill(any_server.pid, signal.SIGTERM)
        moments, waits = zip(*ends, strict=True)
    assert all(waits)
    assert len(set(waits)) > STREAMS / 2
    assert DRAIN / 4 < max(moments) - min(moments)
    os.waitpid(any_server.pid, 0)
    until(lambda: not any(process.is_running() for process in family))


def ended(stream: EventStream) -> tuple[float, int | None]:
    """Return when a stream ended, and in how many ms its client is to come back."""
    with stream:
        stream.take("task")
        stream.retry = None
        assert stream.next() is None
        return time.monotonic(), stream.retry


def test_with_threads_the_server_says_what_it_can_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each stream holds a thread: whoever chooses threads is told for how many streams that is enough."""
    served: list[Server] = []
    monkeypatch.setattr(Server, "run", lambda self: served.append(self))
    with caplog.at_level(logging.WARNING):
        serve(Settings(), threads=50)
    assert ["with 50 threads a worker serves 46 streams at most; greenlets serve thousands"] == caplog.messages
    assert (ThreadedWorker, 50) == (served[0].cfg.worker_class, served[0].cfg.threads)


def test_the_verb_passes_on_what_it_is_told(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """`--threads` and `--behind-proxy`; too few threads are refused with what is needed."""
    made: list[Server] = []
    monkeypatch.setattr(Server, "run", lambda self: made.append(self))
    environment = {"GHOSTLESS_REDIS_URL": settings.redis_url}
    words = ["serve", "--port", str(free_port()), "--no-watchdog", "--threads"]
    done = CliRunner().invoke(main, [*words, "20", "--behind-proxy", "2"], env=environment)
    assert 0 == done.exit_code, done.output
    app = made[0].load()
    assert 20 - limits.THREADS_PLAIN == app.extensions["ghostless"].hub.limit
    assert (2, 2) == (app.wsgi_app.x_for, app.wsgi_app.x_proto)
    refused = CliRunner().invoke(main, [*words, "4"], env=environment)
    assert 0 != refused.exit_code
    assert "threads: expected more than 4" in refused.output

"""The same streams on every server: gunicorn with greenlets, gunicorn with threads, and Flask's own."""

import logging
import os
import signal
from collections.abc import Iterator

import psutil
import pytest
import requests
from click.testing import CliRunner
from ghostless.app import create_app
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web import limits
from ghostless.web.serve import Server, serve
from ghostless.web.server_workers import ThreadedWorker
from helpers import free_port
from redis import Redis
from web_tools import (
    EventStream,
    Hand,
    Served,
    gunicorn,
    in_process,
    opened,
    publish,
    repeating,
    states,
    submitted,
    until,
)

STREAMS = 4
"""How many each server takes: with threads, what is left of eight."""


@pytest.fixture
def client(redis: Redis, settings: Settings, store: Store) -> Client:
    """The core; the test's type is published."""
    publish(store)
    return Client(settings, redis)


@pytest.fixture(params=["gevent", "gthread", "flask"])
def web(request: pytest.FixtureRequest, client: Client) -> Iterator[Served]:
    """Each kind of server, for four streams at a time."""
    if request.param == "flask":
        with in_process(create_app(client=Client(client.settings), limits=limits.Limits(100, STREAMS))) as served:
            yield served
        return
    threads = STREAMS + limits.THREADS_PLAIN if request.param == "gthread" else 0
    files = limits.RESERVED + 4 * STREAMS  # two for each connection, and half of these for streams
    with gunicorn(client.settings.redis_url, limit=f"ulimit -n {100 if threads else files}", threads=threads) as served:
        yield served


def test_streams_live_and_end(web: Served, client: Client, store: Store) -> None:
    """Replay, live moves, progress, the limit, plain requests beside full streams, `end` and 204, and a stop."""
    hand = Hand(store)
    task_id, task = submitted(client), f"{web.url}/api/tasks/"
    streams = [opened(f"{task}{task_id}/events") for _ in range(STREAMS)]
    claimed = hand.start()
    with repeating(lambda: store.progress(claimed.held, 0.5, "half")):
        for stream in streams:
            assert ["PENDING", "PROCESSING"] == states(stream.take("task", 2))
            assert 0.5 == stream.take("progress")[0].data["progress"]
    with EventStream(f"{task}{task_id}/events") as refused:
        assert (200, None) == (refused.status, refused.next())
        assert refused.retry
    assert 503 == requests.get(f"{task}{task_id}?wait=5", timeout=5).status_code
    assert 200 == requests.get(task + task_id, timeout=5).status_code
    hand.finish(claimed)
    for stream in streams:
        with stream:
            assert ["SUCCESS"] == states(list(stream))
    with EventStream(f"{task}{task_id}/events", streams[0].ids[-1]) as over:
        assert 204 == over.status
    assert "SUCCESS" == requests.get(f"{task}{task_id}?wait=5", timeout=5).json()["state"]
    if web.pid:
        _stop(web, client)


def _stop(web: Served, client: Client) -> None:
    """Stop a server under an open stream."""
    processes = [psutil.Process(web.pid), *psutil.Process(web.pid).children()]
    with opened(f"{web.url}/api/tasks/{submitted(client)}/events") as stream:
        stream.take("task")
        stream.retry = None
        os.kill(web.pid, signal.SIGTERM)
        assert stream.next() is None
        assert stream.retry
    os.waitpid(web.pid, 0)
    until(lambda: not any(process.is_running() for process in processes))


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

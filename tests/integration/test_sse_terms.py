"""On what terms a client is served: how many streams, and for how long."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import requests
from flask import Flask
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from ghostless.web import frames, sse
from redis import Redis
from web_tools import EventStream, Served, in_process, opened, publish, submitted, until

Serve = Callable[..., Served]


@pytest.fixture
def serve(redis: Redis, settings: Settings, store: Store) -> Iterator[Serve]:
    """Serve with these settings."""
    publish(store)
    with ExitStack() as running:

        def serve(proxies: int = 0, **wishes: Any) -> Served:
            app = create_app(client=Client(replace(settings, **wishes)), proxies=proxies)
            return running.enter_context(in_process(app))

        yield serve


def counted(served: Served) -> int:
    """Return how many places are held."""
    assert isinstance(served.app, Flask)
    return served.app.extensions["ghostless"].hub.places_held


def token(client: Client, seconds: float | None = None) -> dict[str, str]:
    """Return the header of a new token; all have one name."""
    return {"Authorization": f"Bearer {client.tokens.add('page', [Scope.ADMIN], seconds=seconds)[0]}"}


def claim(served: Served, wait: int = 1) -> requests.Response:
    """Wait for a task as a worker does; none comes in `elsewhere`."""
    body = {"worker": "far", "types": ["work"]}
    return requests.post(f"{served.url}/api/queues/elsewhere/claim?wait={wait}", json=body, timeout=30)


# How many


def is_refused(stream: EventStream) -> bool:
    """Tell whether a browser was told to come back, in a way that it does."""
    with stream:
        assert 200 == stream.status
        first = stream.next()
        assert frames.RECONNECT[0] <= (stream.retry or 0) <= frames.RECONNECT[1]
        return first is None


def test_long_polls_count_too(serve: Serve, client: Client) -> None:
    """A long poll holds a place like a stream, a waiting worker does too; a plain request holds none."""
    served, task_id = serve(streams_per_address=1), submitted(client)
    url = f"{served.url}/api/tasks/{task_id}"
    with opened(url + "/events"):
        refused = requests.get(url + "?wait=30", timeout=5)
        assert (429, "2") == (refused.status_code, refused.headers["Retry-After"])
        assert 200 == requests.get(url, timeout=5).status_code
        assert (429, "urn:ghostless:too-many-listeners") == (claim(served).status_code, claim(served).json()["type"])
    until(lambda: counted(served) == 1)  # noticed at the next write only
    client.cancel(task_id)
    until(lambda: counted(served) == 0)
    assert "CANCELLED" == requests.get(url + "?wait=30", timeout=5).json()["state"]


def test_streams_and_waiting_workers_share_the_places_of_a_process(serve: Serve, client: Client) -> None:
    """However they come, never more wait than the process takes; all of them are in its numbers."""
    served = serve()
    assert served.app
    hub = served.app.extensions["ghostless"].hub
    hub.limit = 2
    url = f"{served.url}/api/tasks/{submitted(client)}/events"
    with ThreadPoolExecutor(1) as pool, opened(url):
        waits = pool.submit(claim, served, wait=2)
        until(lambda: counted(served) == 2)
        assert "ghostless_http_listeners 2.0" in requests.get(f"{served.url}/metrics", timeout=5).text
        assert is_refused(EventStream(url))
        assert (503, "urn:ghostless:busy") == (claim(served).status_code, claim(served).json()["type"])
        assert 204 == waits.result().status_code
        assert 204 == claim(served).status_code
    client.cancel(url.split("/")[-2])
    until(lambda: counted(served) == 0)


def test_the_last_place_is_good_for_a_waiting_worker(serve: Serve) -> None:
    """What the process itself listens with, to call those who wait, takes none."""
    served = serve()
    assert served.app
    served.app.extensions["ghostless"].hub.limit = 1
    assert 204 == claim(served).status_code


@pytest.mark.parametrize(("proxies", "refused"), [(0, True), (1, False)])
def test_behind_a_proxy_the_address_is_the_clients(serve: Serve, client: Client, proxies: int, refused: bool) -> None:
    """What a proxy says of its client is believed when the server was told of the proxy, and never else."""
    served = serve(proxies, streams_per_address=1)
    url = f"{served.url}/api/tasks/{submitted(client)}/events"
    forwarded = [{"X-Forwarded-For": f"192.0.2.9, 192.0.2.{number}"} for number in (1, 2)]
    with EventStream(url, headers=forwarded[0]) as stream:
        assert stream.next()
        with EventStream(url, headers=forwarded[1]) as other:
            assert refused == (other.next() is None)
        assert is_refused(EventStream(url, headers=forwarded[0]))


# For how long


def test_a_stream_has_an_age(serve: Serve, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes, more or less by chance; then it is told when to come back, and nothing is lost by that."""
    assert (480, 720) == sse.AGE
    assert 3 < len({sse.Terms().seconds for _ in range(10)})
    monkeypatch.setattr(sse, "AGE", (0.3, 0.4))
    served, task_id = serve(), submitted(client)
    url = f"{served.url}/api/tasks/{task_id}/events"
    with opened(url) as stream:
        stream.take("task")
        stream.retry = None
        started = time.monotonic()
        assert stream.next() is None
        assert time.monotonic() - started < sse.HEARTBEAT
    assert stream.retry
    client.cancel(task_id)
    with EventStream(url, stream.last_event_id) as stream:
        assert ["CANCELLED", None] == [message.data.get("state") for message in stream]


def test_a_stream_does_not_outlive_its_token(serve: Serve, client: Client) -> None:
    """It ends with the token, and who comes back must show one that holds."""
    served = serve()
    url = f"{served.url}/api/tasks/{submitted(client)}/events"
    short, long = token(client, 1), token(client, 600)
    with EventStream(url, headers=short) as stream, EventStream(url, headers=long) as other:
        assert stream.next()
        assert other.next()
        stream.retry = None
        assert stream.next() is None
        assert stream.retry
        until(lambda: counted(served) == 1)

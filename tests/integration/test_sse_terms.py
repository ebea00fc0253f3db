"""On what terms a client is served: how many streams, and for how long."""

import time
from collections.abc import Callable, Iterator
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
    """Return how many listen."""
    assert isinstance(served.app, Flask)
    return served.app.extensions["ghostless"].hub.subscribers


class Asking(EventStream):
    """A stream of one who shows a token."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, headers={"Authorization": f"Bearer {token}"})


# How many


def is_refused(stream: EventStream) -> bool:
    """Tell whether a browser was told to come back, in a way that it does."""
    with stream:
        assert 200 == stream.status
        first = stream.next()
        assert frames.RECONNECT[0] <= (stream.retry or 0) <= frames.RECONNECT[1]
        return first is None


def test_an_address_holds_so_many_streams(serve: Serve, client: Client) -> None:
    """Over the limit a browser is told to come back, a program gets 429; a place that is free again is given away."""
    served, task_id = serve(streams_per_address=3), submitted(client)
    url = f"{served.url}/api/tasks/{task_id}/events"
    streams = [opened(url) for _ in range(3)]
    assert is_refused(EventStream(url))
    refused = requests.get(url, timeout=5)
    assert (429, "2") == (refused.status_code, refused.headers["Retry-After"])
    assert "application/problem+json" == refused.headers["Content-Type"]
    assert "urn:ghostless:too-many-listeners" == refused.json()["type"]
    assert 200 == requests.get(f"{served.url}/api/tasks/{task_id}", timeout=5).status_code
    client.cancel(task_id)
    assert {"end"} == {list(stream)[-1].event for stream in streams}
    until(lambda: counted(served) == 0)
    assert ["end"] == [message.event for message in EventStream(url) if message.event != "task"]


def test_long_polls_count_too(serve: Serve, client: Client) -> None:
    """A long poll holds a place like a stream; a plain request holds none."""
    served, task_id = serve(streams_per_address=1), submitted(client)
    url = f"{served.url}/api/tasks/{task_id}"
    with opened(url + "/events"):
        refused = requests.get(url + "?wait=30", timeout=5)
        assert (429, "2") == (refused.status_code, refused.headers["Retry-After"])
        assert 200 == requests.get(url, timeout=5).status_code
    until(lambda: counted(served) == 1)  # noticed at the next write only
    client.cancel(task_id)
    until(lambda: counted(served) == 0)
    assert "CANCELLED" == requests.get(url + "?wait=30", timeout=5).json()["state"]


def test_a_token_holds_so_many_streams_wherever_it_comes_from(serve: Serve, client: Client) -> None:
    """Each token has its own share, and who needs no token is bounded by his address alone."""
    served = serve(streams_per_token=2)
    url = f"{served.url}/api/tasks/{submitted(client)}/events"
    # Of one name: another team may have chosen the same.
    one, other = (client.tokens.add("ci", [Scope.READ])[0] for _ in range(2))
    with ExitStack() as held:
        for token in (one, one, other):
            assert held.enter_context(Asking(url, token)).next()
        assert is_refused(Asking(url, one))
        assert held.enter_context(Asking(url, other)).next()
        assert is_refused(Asking(url, other))
        for _ in range(3):
            held.enter_context(opened(url))


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
    short, long = (client.tokens.add("ci", [Scope.READ], seconds=seconds)[0] for seconds in (1, 600))
    with Asking(url, short) as stream, Asking(url, long) as other:
        assert stream.next()
        assert other.next()
        stream.retry = None
        assert stream.next() is None
        assert stream.retry
        until(lambda: counted(served) == 1)

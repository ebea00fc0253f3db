"""A server with threads, of which there are few: no client holds one that does not really ask for something."""

import http.client
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from ghostless.jobs.store import Store
from redis_server import RedisServer
from web_tools import Served, answers, everything, gunicorn, publish, repeating

THREADS = 6
PATIENCE = {"patience.BODY_TIME": 1.0, "server_workers.HEADERS_TIME": 1.0}
SUBMIT = "POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def few(redis_server: RedisServer) -> Iterator[Served]:
    """A server with six threads and little patience."""
    with gunicorn(redis_server.url, threads=THREADS, constants=PATIENCE) as served:
        yield served


@pytest.fixture
def server(few: Served, store: Store) -> Served:
    """That server; the type `work` is published."""
    publish(store)
    return few


def connected(server: Served, said: str) -> socket.socket:
    """Return a connection on which something was said."""
    connection = socket.create_connection(("127.0.0.1", port_of(server)), timeout=15)
    connection.sendall(said.encode())
    return connection


def port_of(server: Served) -> int:
    """Return where the server is."""
    return urlsplit(server.url).port or 0


def drip(connections: list[socket.socket]) -> None:
    """Send a further byte on each."""
    for connection in connections:
        try:
            connection.sendall(b" ")
        except OSError:
            continue


@pytest.mark.parametrize(
    "said", [f"{SUBMIT}Content-Length: 1000\r\n\r\n", f"{SUBMIT}Transfer-Encoding: chunked\r\n\r\n3", f"{SUBMIT}X:"]
)
def test_clients_that_drip_give_the_threads_back(server: Served, said: str) -> None:
    """As many as there are threads, with bodies of both kinds or with headers: the next client is served all the same.

    Who is late with a body is told so, who is late with headers only cut off.
    """
    with ExitStack() as held:
        connections = [held.enter_context(connected(server, said)) for _ in range(THREADS)]
        begun_at = time.monotonic()
        with repeating(lambda: drip(connections), pause=0.2):
            assert answers(port_of(server))
            said_back = [everything(connection) for connection in connections]
        assert time.monotonic() - begun_at < 14
    told = [re.findall(rb"HTTP/1\.1 (\d{3}) |urn:ghostless:([a-z-]+)", text) for text in said_back]
    assert [[] if said.endswith("X:") else [(b"408", b""), (b"", b"too-slow")]] * THREADS == told


def test_who_does_not_hang_up_keeps_nobody_waiting(server: Served) -> None:
    """Answers after which the server closes: it waits for the client in the request's thread, not in its only loop."""
    last = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    begun_at = time.monotonic()
    with ExitStack() as held:
        for _ in range(THREADS - 1):
            assert b"200" in held.enter_context(connected(server, last)).recv(65536)
        assert answers(port_of(server))
    assert time.monotonic() - begun_at < 5  # it waits for two seconds each time


def test_a_kept_connection_is_good_for_several_requests(server: Served) -> None:
    """Also with bodies that the route does not read, and after a pause that is longer than headers may take."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=15)
    kept: set[socket.socket | None] = set()
    for path, status, pause in (("/api/tasks", 202, 0), ("/nowhere", 404, 0), ("/api/tasks", 202, 1.5)):
        time.sleep(pause)
        connection.request("POST", path, '{"type": "work"}', {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert (status, True) == (answer.status, bool(answer.read()))
        kept.add(connection.sock)
    connection.close()
    assert 1 == len(kept)
    assert None not in kept

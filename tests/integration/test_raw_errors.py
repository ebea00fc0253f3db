"""What the server itself cannot read as a request: answered like every other error."""

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from redis_server import RedisServer
from web_tools import Served, gunicorn


@pytest.fixture(scope="module", params=[0, 6], ids=["gevent", "gthread"])
def web(redis_server: RedisServer, request: pytest.FixtureRequest) -> Iterator[Served]:
    """One server of each kind, as it is."""
    with gunicorn(redis_server.url, threads=request.param) as served:
        yield served


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (f"GET /{'a' * 9000} HTTP/1.1", 414),
        (f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {'a' * 9000}", 431),
        ("GET <script> NO/1.1", 400),
    ],
    ids=["414", "431", "400"],
)
def test_what_is_no_request_is_answered_with_a_problem(web: Served, line: str, status: int) -> None:
    """In place of gunicorn's own page: no HTML, and nothing of what was sent."""
    address = urlsplit(web.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as connection:
        connection.sendall(f"{line}\r\n\r\n".encode())
        head, _, body = connection.recv(65536).decode().partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert "Content-Type: application/problem+json" in head
    assert "X-Content-Type-Options: nosniff" in head
    assert (status, f"urn:ghostless:http-{status}") == (json.loads(body)["status"], json.loads(body)["type"])
    assert "script" not in body
    assert body.endswith("}\n")

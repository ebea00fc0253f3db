"""What comes over a socket and is no proper request: slow, cut off, lying, smuggled, too much; to `serve` as it is."""

import http.client
import json
import re
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from ghostless.statemachine import Policy
from odd_ids import TEXTS, in_paths
from redis import Redis
from redis_server import RedisServer
from scripts.snapshot import difference, snapshot
from web_tools import Served, answers, everything, gunicorn, publish, submitted

HOST = "Host: localhost\r\n"
SUBMIT = f"POST /api/tasks HTTP/1.1\r\n{HOST}Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file into which the server logs."""
    return tmp_path_factory.mktemp("log") / "log"


@pytest.fixture(scope="module")
def server(redis_server: RedisServer, log: Path) -> Iterator[Served]:
    """One server, with less patience for bodies than usual."""
    with gunicorn(redis_server.url, constants={"patience.BODY_TIME": 1.0}, log=log, watchdog=False) as served:
        yield served


@pytest.fixture
def web(server: Served, store: Store) -> Served:
    """That server; the type `work` is published."""
    publish(store)
    return server


@contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    """A connection to a server."""
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
        yield connection


def told(served: Served, *parts: str | bytes) -> bytes:
    """Send something and say that this was all; return what was answered."""
    with connected(served) as connection:
        with suppress(OSError):  # it may be refused before all is sent
            for part in parts:
                connection.sendall(part if isinstance(part, bytes) else part.encode("latin-1"))
            connection.shutdown(socket.SHUT_WR)
        return everything(connection)


def statuses(said: bytes) -> list[int]:
    """Return the status of each answer."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", said)]


def problem(said: bytes) -> dict[str, Any]:
    """Return the body of an answer that is a problem."""
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, said
    return json.loads(body)


def test_a_body_that_drips_is_given_up(web: Served, redis: Redis) -> None:
    """408 before the whole body is there, however steadily a byte comes; the connection ends, and nothing is stored."""
    with connected(web) as connection:
        connection.sendall(f"{SUBMIT}Content-Length: 1000\r\n\r\n".encode())
        dripped = 0
        while not readable(connection):
            connection.sendall(b" ")
            dripped += 1
        said = everything(connection)
    assert 1 < dripped < 90, "ten drips a second at most"
    assert [408] == statuses(said)
    assert "urn:ghostless:too-slow" == problem(said)["type"]
    assert b"connection: close" in said.lower()
    assert not redis.exists("ghostless:ledger")


def readable(connection: socket.socket) -> bool:
    """Tell whether the server said something, or hung up, within a tenth of a second."""
    return bool(select.select([connection], [], [], 0.1)[0])


@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_body_that_never_comes_is_given_up(web: Served, framing: str) -> None:
    """Silence is no better than dripping."""
    with connected(web) as connection:
        connection.sendall(f"{SUBMIT}{framing}\r\n\r\n".encode())
        assert [408] == statuses(everything(connection))


def test_slow_clients_keep_nobody_from_being_served(web: Served) -> None:
    """Two hundred have begun a request, and another one is answered before any of them is given up."""
    with ThreadPoolExecutor(20) as pool:
        held = list(pool.map(lambda _: half_a_request(web), range(200)))
    assert answers(urlsplit(web.url).port or 0)
    assert ([], [], []) == select.select(held, [], [], 0)
    for connection in held:
        connection.close()


def half_a_request(served: Served) -> socket.socket:
    """Return a connection that began a request, and does not go on."""
    parts = urlsplit(served.url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20)
    connection.sendall(b"POST /api/tasks HTTP/1.1\r\nHost: local")
    return connection


def test_headers_that_drip_are_given_up(web: Served) -> None:
    """A connection whose request is not there within some seconds is closed, however steadily it comes."""
    with connected(web) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX-")
        dripped = 0
        while not readable(connection):
            connection.sendall(b"a")
            dripped += 1
    assert 1 < dripped < 120, "ten drips a second at most"


@pytest.mark.parametrize(
    ("framing", "body"),
    [
        ("Content-Length: 1000", '{"type":"work"}'),
        ("Transfer-Encoding: chunked", '5\r\n{"typ'),
        ("Transfer-Encoding: chunked", 'f\r\n{"type":"work"}\r\n'),
        ("Transfer-Encoding: chunked", 'f\r\n{"type":"work"}\r\n0\r\n'),
        ("Transfer-Encoding: chunked", 'zz\r\n{"type":"work"}\r\n0\r\n\r\n'),
        ("Transfer-Encoding: chunked", '-1\r\n{"type":"work"}\r\n0\r\n\r\n'),
        ("Transfer-Encoding: chunked", '5\r\n{"type":"work"}\r\n0\r\n\r\n'),
        ("Transfer-Encoding: chunked", 'f\n{"type":"work"}\n0\n\n'),
        ("Transfer-Encoding: chunked", 'f\r\n{"type":"work"}\r\n0\r\nbad trailer\r\n\r\n'),
        ("Content-Length: -1", '{"type":"work"}'),
        ("Content-Length: 0x0f", '{"type":"work"}'),
        ("Content-Length: 15\r\nContent-Length: 16", '{"type":"work"}'),
        ("Content-Length: 15\r\nTransfer-Encoding: chunked", '0\r\n\r\n{"type":"work"}'),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", '0\r\n\r\n{"type":"work"}'),
        ("Transfer-Encoding: xchunked", '{"type":"work"}'),
        ("Transfer-Encoding : chunked", '0\r\n\r\n{"type":"work"}'),
        ("Content-Length: 15\r\n X: folded", '{"type":"work"}'),
        ("Content-Length: 9999999999999999", '{"type":"work"}'),
        ("Content-Length: 15\r\nExpect: 200-nonsense", '{"type":"work"}'),
    ],
)
def test_a_body_that_is_not_framed_as_said_stores_nothing(web: Served, redis: Redis, framing: str, body: str) -> None:
    """Cut off, contradictory or malformed: one refusal, and what follows is never taken for a second request."""
    smuggled = f"POST /api/tasks HTTP/1.1\r\n{HOST}Content-Type: application/json\r\nContent-Length: 1\r\n\r\n1"
    for rest in ("", smuggled):
        said = told(web, f"{SUBMIT}{framing}\r\n\r\n{body}{rest}")
        assert len(statuses(said)) <= 1, said
        assert all(400 <= status <= 501 and status != 500 for status in statuses(said)), said
    assert not redis.exists("ghostless:ledger")


def test_two_requests_in_one_go_are_two(web: Served) -> None:
    """Pipelining is no smuggling."""
    get = f"GET /healthz HTTP/1.1\r\n{HOST}\r\n"
    assert [200, 200] == statuses(told(web, get + get))


@pytest.mark.parametrize(
    "request_text",
    [
        "",
        "\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "get / HTTP/1.1\r\n\r\n",
        "G\0T / HTTP/1.1\r\n\r\n",
        "GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /api/tasks/a%00b HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /api/tasks/%2e%2e%2f%2e%2e HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET //evil.example HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /api/tasks HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET /api/tasks HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        "GET /api/tasks HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n",
        "GET /api/tasks HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
        "GET /api/tasks HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
        "GET /" + "a" * 20_000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n" + "X: y\r\n" * 1000 + "\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + "y" * 100_000 + "\r\n\r\n",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "TRACE /api/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=range(23),
)
def test_no_request_line_or_header_breaks_the_server(web: Served, request_text: str) -> None:
    """Each is refused or closed without a word, and the next client is served."""
    said = told(web, request_text)
    assert all(status in range(400, 506) and status != 500 for status in statuses(said)), said
    assert b"Traceback" not in said
    assert answers(urlsplit(web.url).port or 0)


def test_no_odd_id_breaks_the_server_or_its_log(web: Served, client: Client, redis: Redis, log: Path) -> None:
    """By each route, encoded; and as it is, in the line of a request: refused, and at most one line of the log."""
    submitted(client, id="t")
    before = snapshot(redis)
    with closing(http.client.HTTPConnection(urlsplit(web.url).netloc, timeout=20)) as connection:
        for asked in (asked for text in TEXTS.values() for asked in in_paths(create_app(client=client), text)):
            body = None if asked.method in ("GET", "HEAD") else json.dumps(asked.body)
            connection.request(asked.method, asked.target, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status in (404, 405), asked
            assert all(value.isprintable() for _, value in answer.getheaders()), asked
            answer.read()
    for text in [text for text in TEXTS.values() if text.isascii() and not text.isalnum()] + [
        "\xf0\x9f\x98\x80",
        "\x80",
    ]:
        said = told(web, f"GET /api/tasks/{text} HTTP/1.1\r\n{HOST}\r\n")
        assert all(status in (400, 404, 422) for status in statuses(said)), text
        assert not re.search(rb"(?m)^evil|<script", said), text
    assert {} == difference(before, snapshot(redis))
    assert not re.search(r"(?m)^evil|[\x00-\x09\x0b-\x1f\x7f-\x9f]", log.read_text())


@pytest.mark.parametrize(("params", "status"), [({"key": "SECRET"}, 202), ({"key": "SECRET", "n": "SECRET"}, 422)])
def test_the_log_holds_no_secret_params(
    web: Served, store: Store, log: Path, params: dict[str, Any], status: int
) -> None:
    """Be they taken or refused."""
    secret = {"type": "string", "writeOnly": True}
    schema = {"type": "object", "properties": {"key": secret, "n": {"type": "integer"}}}
    kind = {"queue": "work", "policy": Policy().pack(), "schema": schema, "description": "keeps a secret"}
    store.publish_types({"secret": kind})
    answer = requests.post(f"{web.url}/api/tasks", json={"type": "secret", "params": params}, timeout=5)
    assert status == answer.status_code
    assert "SECRET" not in log.read_text()


def test_the_log_holds_no_tokens(web: Served, client: Client, log: Path) -> None:
    """Neither of an address that the server quotes, nor of a header, nor of a cookie."""
    text, token = client.tokens.add("x", [Scope.ADMIN])
    secret = text.rpartition(token.id)[2][1:]
    told(web, f"GET /api/events?token={text} HTTP/9.9\r\n\r\n")
    told(web, f"GET /last?token={text}\r\n\r\n")
    told(web, f"GET /api/tasks HTTP/1.1\r\n{HOST}Authorization : Bearer {text}\r\n\r\n")
    told(web, f"GET /api/tasks?token={text} HTTP/1.1\r\n{HOST}Authorization: Bearer {text}x\r\n\r\n")
    told(web, f"GET /api/tasks HTTP/1.1\r\n{HOST}Cookie: ghostless_session={secret}\r\n\r\n")
    assert "/last?token=…" in log.read_text()
    assert secret not in log.read_text()

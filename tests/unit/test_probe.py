"""Asking a worker for its health: whatever is at the address, the answer is short text and comes in time."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from ghostless.jobs.probe import ANSWER_LIMIT, MOST_ASKED, TEXT_LIMIT, ask, ask_all

Serve = Callable[[Callable[[socket.socket], None]], str]

OK = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Let a function talk to whoever connects; returns the address."""
    listeners: list[socket.socket] = []

    def start(talk: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            try:
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        talk(connection)
            except OSError:
                return

        threading.Thread(target=accept, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def saying(answer: bytes) -> Callable[[socket.socket], None]:
    """Read the request and send an answer."""

    def talk(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)

    return talk


def test_a_healthy_worker(serve: Serve) -> None:
    """The status and the state."""
    address = serve(saying(OK + b'{"worker": "w1", "reasons": [], "state": "busy", "task": "t1"}'))
    assert ("200 busy with t1", True) == ((finding := ask(address, 5, "w1")).text, finding.healthy)


def test_a_worker_that_is_not_well(serve: Serve) -> None:
    """The status and all reasons."""
    answer = (
        b'HTTP/1.0 503 No\r\n\r\n{"worker": "w1", "reasons": ["no Redis", "no horse"], "state": "idle", "task": null}'
    )
    finding = ask(serve(saying(answer)), 5, "w1")
    assert ("503 idle; no Redis; no horse", False) == (finding.text, finding.healthy)


def test_the_answer_of_another_worker_is_none(serve: Serve) -> None:
    """Behind a tunnel, 127.0.0.1 of the worker is not that of the watchdog."""
    address = serve(saying(OK + b'{"worker": "w2", "reasons": [], "state": "idle", "task": null}'))
    assert "another worker answered, w2" == ask(address, 5, "w1").text


def test_a_closed_port() -> None:
    """A worker that was killed leaves a host that refuses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "connection refused" == ask(f"127.0.0.1:{port}", 5).text


def test_a_frozen_worker() -> None:
    """The kernel accepts, nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert "did not answer in 0.1 s" == ask(f"127.0.0.1:{listener.getsockname()[1]}", 0.1).text


def test_an_answer_that_drips(serve: Serve) -> None:
    """A byte now and then does not stretch the time."""

    def drip(connection: socket.socket) -> None:
        for _ in range(200):
            connection.send(b"H")
            time.sleep(0.05)

    begun = time.monotonic()
    assert "did not answer in 0.3 s" == ask(serve(drip), 0.3).text
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "an empty answer"),
        (b"\x00\xff\x1b[31mred", "[31mred"),
        (b"HTTP/1.0 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", "302 HTTP/1.0 302 Found"),
        (OK + b'{"worker": {"a": 1}}', '200 {"worker": {"a": 1}}'),
        (OK + b'{"worker": "w1", "reasons": 7, "state": "busy"}', '200 {"worker"'),
        (OK + b"[" * 900, "200 [["),
    ],
)
def test_what_is_no_answer_of_ours_is_shown_as_text(serve: Serve, answer: bytes, text: str) -> None:
    """Nothing is followed, nothing is trusted, nothing that a terminal would obey is kept."""
    finding = ask(serve(saying(answer)), 5)
    assert text in finding.text
    assert finding.text.isprintable()
    assert not finding.healthy


def test_a_long_answer_is_cut(serve: Serve) -> None:
    """A kilobyte is read, and less is told."""
    finding = ask(serve(saying(OK + b"x" * 10_000_000)), 5)
    assert TEXT_LIMIT == len(finding.text) < ANSWER_LIMIT


@pytest.mark.parametrize(
    "address",
    ["", "localhost:9", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:x", "u:p@127.0.0.1:9",
     "127.0.0.1:9/x", "file:///etc/passwd", "\x1b[31m:9"],
)  # fmt: skip
def test_what_is_no_address_is_not_asked(address: str) -> None:
    """Only an IP address and a port: a name would have to be looked up, wherever that leads."""
    assert "is no address like 10.0.0.5:9000" in ask(address, 5).text


def test_many_are_asked_at_once() -> None:
    """Dead hosts cost one patience together, and of very many some are left out."""
    with socket.create_server(("127.0.0.1", 0), backlog=2 * MOST_ASKED) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        begun = time.monotonic()
        findings = ask_all({f"w{number}": address for number in range(2 * MOST_ASKED)}, 0.5)
    assert time.monotonic() - begun < MOST_ASKED * 0.5 / 2
    assert {f"w{number}": "did not answer in 0.5 s" for number in range(MOST_ASKED)} == findings

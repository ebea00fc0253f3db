"""The demo's reader of server-sent events, against a server that cuts it off."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests
from ghostless.jobs.cli.events import Event, Follower, parse


def test_blocks_are_read_as_the_standard_says() -> None:
    """Comments are passed over, data lines are joined, an id without data is kept, a cut-off block is dropped."""
    text = (
        "retry: 2500\nid: e.1-0\n\n"
        ": still here\nid: e.2-0\n\n"
        'event: task\ndata: {"a":\ndata:1}\nid: e.3-0\n\n'
        "event: task\n"
    )
    assert [
        Event("", {}, "e.1-0", 2500),
        Event("", {}, "e.2-0"),
        Event("task", {"a": 1}, "e.3-0"),
    ] == list(parse(line.encode() for line in text.splitlines()))


class Script(BaseHTTPRequestHandler):
    """Answers one connection after the other with what the test wrote down."""

    answers: list[tuple[int, str]]
    seen: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        """Send the next answer and cut the connection."""
        self.seen.append((self.path, self.headers["Last-Event-ID"]))
        status, body = self.answers.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def script() -> Iterator[tuple[type[Script], str]]:
    """A server and its address."""
    handler = type("Scripted", (Script,), {"answers": [], "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}/api/events"
    server.shutdown()
    thread.join()
    server.server_close()


def block(number: int, event: str = "task") -> str:
    """Return one event."""
    return f"retry: 10\nid: e.{number}-0\nevent: {event}\ndata: {json.dumps({'n': number})}\n\n"


def taken(follower: Follower, last: str = "end") -> list[str]:
    """Return the names of the events up to the last one."""
    names: list[str] = []
    for _ in range(100):
        names += [event.name for event in follower.events(0.2)]
        if last in names:
            return names
    raise AssertionError(f"only {names}")


def test_a_stream_that_breaks_off_is_taken_up_where_it_was(script: tuple[type[Script], str]) -> None:
    """Reconnects with the last id that came, through an overloaded server too, until the end."""
    handler, url = script
    handler.answers += [(200, block(1) + block(2)), (503, "busy"), (200, block(3) + block(4, "end"))]
    assert ["task", "task", "task", "end"] == taken(Follower(url, ["t1", "t2"]))
    assert [None, "e.2-0", "e.2-0"] == [last_id for _, last_id in handler.seen]
    assert {"/api/events?task=t1&task=t2"} == {path for path, _ in handler.seen}


def test_no_content_is_the_end(script: tuple[type[Script], str]) -> None:
    """204 says that everything was told before."""
    handler, url = script
    handler.answers += [(200, block(1)), (204, "")]
    assert ["task", "end"] == taken(Follower(url, ["t1"]))


def test_a_refusal_is_told_and_not_repeated(script: tuple[type[Script], str]) -> None:
    """What will be refused again is raised where the events are read."""
    handler, url = script
    handler.answers += [(404, "no such task")]
    with pytest.raises(requests.HTTPError, match="404"):
        taken(Follower(url, ["t1"]))

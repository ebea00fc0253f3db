"""What the tests of the HTTP side share: servers, a reader of event streams, and a worker made of plain store calls."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from flask import Flask
from ghostless.jobs.client import Client
from ghostless.jobs.keys import Keys
from ghostless.jobs.messages import Claim, Claimed, Ending
from ghostless.jobs.store import Store
from ghostless.lua import LISTED_FROM
from ghostless.statemachine import Event, Policy, Reason
from helpers import free_port
from redis import Redis
from werkzeug.serving import make_server

PATIENCE = 20.0
"""Seconds after which a test gives up waiting."""

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": [],
    "additionalProperties": False,
}

SERVE = """
import importlib, json, sys
from ghostless.jobs.settings import Settings
from ghostless.web.serve import serve
host, port, workers, constants, options = sys.argv[1:]
for name, value in json.loads(constants).items():
    module, _, constant = name.rpartition(".")
    setattr(importlib.import_module("ghostless.web." + module), constant, value)
serve(Settings.from_environment(), host, int(port), int(workers), **json.loads(options))
"""


def until(done: Callable[[], Any], patience: float = PATIENCE, what: str = "what was waited for") -> Any:
    """Return what `done` returns once that is true; fail at the deadline."""
    give_up_at = time.monotonic() + patience
    while not (answer := done()):
        if time.monotonic() > give_up_at:
            raise AssertionError(f"{what} did not come true in {patience} s")
        time.sleep(0.005)
    return answer


@contextmanager
def repeating(act: Callable[[], Any], pause: float = 0.05) -> Iterator[None]:
    """Do something again and again while the block runs; for messages that only who listens already hears."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            act()
            over.wait(pause)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def publish(store: Store, *names: str, queue: str = "work") -> None:
    """Make task types known."""
    kind = {"queue": queue, "policy": Policy().pack(), "schema": SCHEMA, "description": "a test's type"}
    store.publish_types({name: kind for name in names or ("work",)})


@dataclass
class Hand:
    """A worker that does exactly what the test says."""

    store: Store
    name: str = "hand"

    def start(self, queue: str = "work") -> Claimed:
        """Start the next task of a queue."""
        claimed = self.store.claim(Claim.new(self.name, [queue], sorted(self.store.redis.hkeys(self.store.keys.types))))
        assert isinstance(claimed, Claimed), claimed
        return claimed

    def finish(self, claimed: Claimed, event: Event = Event.COMPLETE, **wishes: Any) -> None:
        """End an attempt."""
        reason = Reason.POLICY if event is Event.COMPLETE else Reason.EXCEPTION
        ending = Ending(event, reason, text="null" if event is Event.COMPLETE else "it broke", **wishes)
        answer, _ = self.store.finish(claimed.held, ending, f"worker:{self.name}")
        assert "moved" == answer.word

    def run(self, queue: str = "work", event: Event = Event.COMPLETE, **wishes: Any) -> str:
        """Start and end the next task of a queue."""
        claimed = self.start(queue)
        self.finish(claimed, event, **wishes)
        return claimed.held.task_id


# Servers


@dataclass
class Served:
    """A server under test."""

    url: str
    pid: int = 0
    app: Flask | None = None


@contextmanager
def in_process(app: Flask) -> Iterator[Served]:
    """Serve with Flask's own threaded server."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_port}", app=app)
    finally:
        app.extensions["ghostless"].hub.close()
        server.shutdown()
        thread.join()
        server.server_close()
        for handler in threading.enumerate():  # what goes on in one would disturb the tests after this one
            if "process_request_thread" in handler.name:
                handler.join(timeout=5)


@contextmanager
def gunicorn(
    redis_url: str,
    workers: int = 1,
    limit: str = "true",
    *,
    port: int = 0,
    constants: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    first: str = "",
    **options: Any,
) -> Iterator[Served]:
    """Serve the way an installation does, in processes of its own; `limit` is a shell's command before it.

    `constants` like {"sse.HEARTBEAT": 1} let a test's clocks run faster; `options` are those of `serve`. What it logs
    goes to `log`, if given. `first` is Python that it runs before, in which a test breaks something.
    """
    port = port or free_port()
    environment = os.environ | {"GHOSTLESS_REDIS_URL": redis_url} | (environment or {})
    command = [*serving("127.0.0.1", port, workers, first), json.dumps(constants or {}), json.dumps(options)]
    with log.open("w") if log else nullcontext() as errors:
        process = subprocess.Popen(["sh", "-c", f'{limit}; exec "$@"', "sh", *command], env=environment, stderr=errors)
    try:
        until(lambda: answers(port) or process.poll() is not None, what="the server's start")
        assert process.poll() is None
        yield Served(f"http://127.0.0.1:{port}", process.pid)
    finally:
        end(process)


def serving(host: str, port: int, workers: int = 1, first: str = "") -> list[str]:
    """Return the command that serves, but for its last two arguments: constants and options as JSON."""
    return [sys.executable, "-c", first + SERVE, host, str(port), str(workers)]


def answers(port: int) -> bool:
    """Tell whether a server answers on this port."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def everything(connection: socket.socket) -> bytes:
    """Return what is said up to the end of the connection, which the server must make."""
    said = b""
    try:
        while part := connection.recv(65536):
            said += part
    except ConnectionResetError:
        pass
    return said


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a server with its workers at once, whatever state they are in."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children()] if process.poll() is None else []
    process.send_signal(signal.SIGINT)  # SIGTERM would wait for streams whose clients left without a word
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        for member in family:
            member.kill()
        process.wait(timeout=5)


# Event streams


@dataclass(frozen=True)
class Message:
    """One event as a browser would see it."""

    event: str
    data: Any
    id: str


class EventStream:
    """A reader of one stream, as strict as a browser's EventSource and with a deadline for each read."""

    def __init__(
        self,
        url: str,
        last_event_id: str | None = None,
        patience: float = PATIENCE,
        headers: Mapping[str, str] | None = None,
        segment: int | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=patience)
        if segment:  # bytes of it at most come as one
            self._connection.sock = socket.socket()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
            self._connection.sock.settimeout(patience)
            self._connection.sock.connect((parts.hostname, parts.port))
        headers = {"Accept": "text/event-stream", **(headers or {})}
        headers |= {"Last-Event-ID": last_event_id} if last_event_id else {}
        self._connection.request("GET", f"{parts.path}?{parts.query}".rstrip("?"), headers=headers)
        self.response = self._connection.getresponse()
        self.last_event_id = last_event_id or ""
        self.retry: int | None = None
        self.comments: list[str] = []
        self.ids: list[str] = []

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave."""
        self.response.close()
        self._connection.close()

    def was_hung_up(self) -> bool:
        """Wait until the server closes the connection; False when it keeps it."""
        assert self._connection.sock
        self._connection.sock.settimeout(3)
        try:
            return b"" == self._connection.sock.recv(1)
        except TimeoutError:
            return False

    @property
    def status(self) -> int:
        """The answer's status."""
        return self.response.status

    def __iter__(self) -> Iterator[Message]:
        """Yield events until the server ends the stream."""
        while (message := self.next()) is not None:
            yield message

    def next(self) -> Message | None:
        """Return the next event; None at the end of the stream."""
        event, data = "", []
        while line := self.response.readline():
            assert line.endswith(b"\n"), line
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                self.last_event_id = value
                self.ids.append(value)
            elif name == "event":
                event = value
            elif name == "data":
                data.append(value)
            elif name == "retry":
                self.retry = int(value)
            elif not name and value:
                self.comments.append(value)
            elif not name and data:
                return Message(event, json.loads("\n".join(data)), self.last_event_id)
        return None

    def take(self, event: str, number: int = 1) -> list[Message]:
        """Return the next events of this kind, passing over others."""
        found: list[Message] = []
        while len(found) < number:
            message = self.next()
            assert message is not None, f"the stream ended after {found}"
            found += [message] if message.event == event else []
        return found


def opened(
    url: str, last_event_id: str | None = None, headers: Mapping[str, str] | None = None, segment: int | None = None
) -> EventStream:
    """Return a stream whose first block was read: its listener is registered."""
    stream = EventStream(url, last_event_id, headers=headers, segment=segment)
    assert 200 == stream.status, stream.response.read()
    while not stream.ids:
        line = stream.response.readline().decode()
        assert line, "the stream ended before its first id"
        name, _, value = line.rstrip("\n").partition(": ")
        if name == "retry":
            stream.retry = int(value)
        if name == "id":
            stream.last_event_id = value
            stream.ids.append(value)
    return stream


def states(messages: list[Message]) -> list[str]:
    """Return the states that moves lead to."""
    return [message.data["state"] for message in messages if message.event == "task"]


def submitted(client: Client, **wishes: Any) -> str:
    """Submit a task of the test's type and return its id."""
    return client.submit(wishes.pop("type", "work"), wishes.pop("params", {}), **wishes).task_id


def end_retention(redis: Redis, keys: Keys, task_ids: list[str]) -> None:
    """Let final tasks have ended so long ago that they are to be purged, which no audit finds wrong."""
    with redis.pipeline() as pipeline:
        for task_id in task_ids:
            task = redis.hgetall(keys.task(task_id))
            pipeline.hset(keys.task(task_id), "entered_at", 1)
            pipeline.zadd(keys.state(task["state"]), {task_id: 1})
            pipeline.zadd(keys.listed(f"{task['queue']}:{task['type']}"), {task_id: LISTED_FROM[task["state"]] + 1})
            if "owner" in task:
                pipeline.zadd(keys.owned(task["owner"]), {task_id: 1})
            pipeline.zadd(keys.retention, {task_id: 1 + float(task["policy"].split(",")[-1])})
        pipeline.execute()

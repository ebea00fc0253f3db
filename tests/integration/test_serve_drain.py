"""A deploy under open streams: they end one after the other, come back to the next process, and miss nothing."""

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import requests
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web import limits
from helpers import free_port
from redis import Redis
from web_tools import PATIENCE, EventStream, Hand, Message, gunicorn, opened, publish, submitted, until

CLIENTS, TASKS, DRAIN = 200, 10, 4.0

TELLING = """
import os, time
from ghostless.web.hub import Hub
leave = Hub.leave_place
def leave_and_tell(hub):
    leave(hub)
    os.write(2, f"a stream ended at {time.monotonic()}\\n".encode())  # whole, whoever else writes at the same time
Hub.leave_place = leave_and_tell
"""
"""Lets a server say when each of its streams ended."""


@pytest.fixture
def client(redis: Redis, settings: Settings, store: Store) -> Client:
    """The core; the test's type is published."""
    publish(store)
    return Client(settings, redis)


@dataclass
class Page:
    """A browser's EventSource: it comes back when it is told to, from where it was, until it is told the end."""

    url: str
    connected: threading.Event = field(default_factory=threading.Event)
    messages: list[Message] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)  # what it was told at each end before the last

    def run(self) -> None:
        """Follow the stream."""
        cursor = None
        while not self.messages or self.messages[-1].event != "end":
            try:
                stream = opened(self.url, cursor)
            except (OSError, HTTPException, AssertionError):  # nobody there, or one that is just leaving
                time.sleep(0.2)
                continue
            with stream:
                cursor = self._follow(stream)

    def _follow(self, stream: EventStream) -> str:
        self.connected.set()
        stream.retry = None
        for message in stream:
            self.messages.append(message)
        if self.messages[-1].event != "end":
            assert stream.retry, "the stream was cut"
            self.waits.append(stream.retry)
            time.sleep(stream.retry / 1000)
        return stream.last_event_id

    @property
    def entries(self) -> list[str]:
        """The ids of the moves it saw."""
        return [message.id.partition(".")[2] for message in self.messages if message.event == "task"]


def is_refused(url: str) -> bool:
    """Tell whether nobody listens there any more."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


class SlowSubmit:
    """A submit whose body takes its time."""

    BODY = b'{"type": "work", "id": "slow"}'

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20)
        head = f"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(self.BODY)}\r\n"
        self._socket.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + self.BODY[:5])

    def finish(self) -> bytes:
        """Send the rest and return the first line of the answer."""
        self._socket.sendall(self.BODY[5:])
        with self._socket, self._socket.makefile("rb") as answer:
            return answer.readline()


@pytest.mark.parametrize("threads", [0, CLIENTS + limits.THREADS_PLAIN], ids=["gevent", "gthread"])
def test_a_deploy_loses_nothing(client: Client, store: Store, settings: Settings, tmp_path: Path, threads: int) -> None:
    """200 clients, a stop, and the next process on the same port: each move once; plain requests go on meanwhile.

    All streams have ended when the drain has, counted from the signal by the clock that all processes share.
    """
    tasks = [submitted(client, queue=f"q{number}") for number in range(TASKS)]
    held = [(Hand(store, f"w{number}"), Hand(store, f"w{number}").start(f"q{number}")) for number in range(TASKS)]
    over, port, log = threading.Event(), free_port(), tmp_path / "log"
    clocks = {"serve.DRAIN": DRAIN, "frames.RECONNECT": [200, 600]}
    kind = {"port": port, "threads": threads, "constants": clocks, "watchdog": False}

    def move() -> Iterator[None]:
        while not over.wait(0.2):
            for hand, claimed in held:
                store.stage(claimed.held, f"worker:{hand.name}", f"{time.monotonic()}")
        yield

    with (
        ThreadPoolExecutor(CLIENTS + 1) as pool,
        gunicorn(settings.redis_url, **kind, first=TELLING, log=log) as old,
    ):
        pages = [Page(f"{old.url}/api/tasks/{tasks[number % TASKS]}/events") for number in range(CLIENTS)]
        runs = [pool.submit(page.run) for page in pages]
        moving = pool.submit(lambda: list(move()))
        until(lambda: all(page.connected.is_set() for page in pages))
        slow = SlowSubmit(old.url)
        stopped_at = time.monotonic()
        os.kill(old.pid, signal.SIGTERM)
        until(lambda: is_refused(old.url))
        with gunicorn(settings.redis_url, **kind) as new:
            assert 200 == requests.get(f"{new.url}/api/tasks/{tasks[0]}", timeout=5).status_code
            assert slow.finish().startswith(b"HTTP/1.1 202 ")
            until(lambda: all(page.waits for page in pages))
            over.set()
            moving.result()
            for hand, claimed in held:
                hand.finish(claimed)
            for run in runs:
                run.result()
    for number, page in enumerate(pages):
        assert page.entries == [entry.id for entry in client.history(tasks[number % TASKS])]
    ends = sorted(
        float(moment) - stopped_at for moment in re.findall("^a stream ended at (.+)$", log.read_text(), re.M)
    )
    assert CLIENTS <= len(ends), "some came again before the port was closed"
    assert 0 < ends[0]
    assert ends[-1] <= DRAIN
    assert DRAIN / 2 < ends[-1] - ends[0]
    assert max(after - before for before, after in pairwise(ends)) < DRAIN / 2
    assert 50 < len({page.waits[0] for page in pages})


def test_a_second_sigterm_means_now(client: Client, settings: Settings) -> None:
    """Who cannot wait for the drain ends all streams at once; each is still told when to come back."""
    slowly = {"hub.DRAIN_PAUSE": 10}
    with gunicorn(settings.redis_url, constants=slowly) as web:
        task_id = submitted(client)
        streams = [opened(f"{web.url}/api/tasks/{task_id}/events") for _ in range(10)]
        for stream in streams:
            stream.take("task")
            stream.retry = None
        os.kill(web.pid, signal.SIGTERM)
        until(lambda: is_refused(web.url))
        started = time.monotonic()
        os.kill(web.pid, signal.SIGTERM)
        for stream in streams:
            with stream:
                assert stream.next() is None
                assert stream.retry
        os.waitpid(web.pid, 0)
        assert time.monotonic() - started < 8  # the drain would take 12


@pytest.mark.parametrize("threads", [0, 10], ids=["gevent", "gthread"])
def test_without_its_master_a_worker_stops(client: Client, settings: Settings, threads: int) -> None:
    """Killed, it tells nobody to. Else clients would wait at a port where nobody accepts, and a new server for it."""
    with gunicorn(settings.redis_url, constants={"serve.DRAIN": 1.0}, threads=threads) as web:
        (worker,) = psutil.Process(web.pid).children()
        try:
            with opened(f"{web.url}/api/tasks/{submitted(client)}/events"):
                os.kill(web.pid, signal.SIGKILL)
                os.waitpid(web.pid, 0)
                until(lambda: is_refused(web.url))
                worker.wait(PATIENCE)
        finally:
            with suppress(psutil.NoSuchProcess):
                worker.kill()

"""Clients that are slow, stopped or dead, at a real server: nobody else notices, and nothing piles up for them."""

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from faults.sizes import PATIENCE, STOPPED, sized
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web import sse
from ghostless.web.peers import Peer
from helpers import die_with_the_tests
from redis import Redis
from web_tools import EventStream, Hand, Served, gunicorn, in_process, opened, publish, repeating, submitted, until

from .test_owners_view import sign_of_life

HEARTBEAT = 1.0
"""Seconds between two signs of life, in these tests."""

RATE = sized(600, 150)
"""Moves in a second, of 2 KB each; the server would hold each as an entry and as the bytes to send.

In five minutes fewer than 50,000: a client that is further behind is told to fetch anew, and gets no replay.
"""

GROWTH = 6 * 1024 * 1024
"""Bytes by which the server may grow meanwhile."""


@pytest.fixture
def client(redis: Redis, settings: Settings, store: Store) -> Client:
    """The core; the test's type is published."""
    publish(store)
    return Client(settings, redis)


def worker_of(served: Served) -> psutil.Process:
    """Return the one worker of a server."""
    (worker,) = psutil.Process(served.pid).children()
    return worker


# Slow


@contextmanager
def following(url: str, path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a client as a process of its own; yield it once it hears something."""
    command = [sys.executable, str(Path(__file__).parents[1] / "follower.py"), url, str(path)]
    process = subprocess.Popen(command, preexec_fn=die_with_the_tests)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Neighbour(threading.Thread):
    """A client beside the stopped one, which notes how late it hears of each move."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._stream = opened(url)
        self.lags: list[float] = []
        self.last = ""

    def run(self) -> None:
        """Follow the stream up to the task `sentinel`."""
        with self._stream as stream:
            for message in stream:
                self.lags.append(time.time() - int(message.id.partition(".")[2].partition("-")[0]) / 1000)
                if message.data["id"] == "sentinel":
                    return


def chatter(store: Store, claimed: list[Any], seconds: float, process: psutil.Process) -> int:
    """Let tasks move all the time; return the most memory that the server took meanwhile."""
    most, started, done = 0, time.monotonic(), 0
    while (passed := time.monotonic() - started) < seconds:
        for one in claimed:
            store.stage(one.held, "worker:hand", f"{done} " + "x" * 1900)
        done += len(claimed)
        most = max(most, process.memory_info().rss)
        time.sleep(max(0.0, done / RATE - passed))
    assert done > RATE * seconds / 4, "the machine is too slow for this test"
    return most


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("threads", [0, 10], ids=["gevent", "gthread"])
def test_a_stopped_client_is_no_burden_and_catches_up(
    client: Client, settings: Settings, store: Store, tmp_path: Path, threads: int
) -> None:
    """Nothing is kept for it but what Redis keeps; others hear everything at once; woken up, it gets all, in order.

    That holds too when its connection was ended meanwhile, since it took no byte for two minutes.
    """
    seen, clocks = tmp_path / "seen", {"ring.RING": 64, "sse.HEARTBEAT": HEARTBEAT}
    # Without a watchdog, which would take the tasks away.
    with gunicorn(settings.redis_url, constants=clocks, threads=threads, watchdog=False) as web:
        url, worker = f"{web.url}/api/events?owner=ann", worker_of(web)
        neighbour = Neighbour(url)
        neighbour.start()
        with following(url, seen) as stopped:
            claimed: list[Any] = []
            until(lambda: _is_heard(seen, client))
            for _ in range(max(4, round(RATE * STOPPED / 900))):  # a history keeps so many moves of each, not many more
                submitted(client, owner="ann")
                claimed.append(Hand(store).start())
            chatter(store, claimed, 1, worker)
            before = worker.memory_info().rss
            os.kill(stopped.pid, signal.SIGSTOP)
            most = chatter(store, claimed, STOPPED, worker)
            assert 200 == requests.get(f"{web.url}/readyz", timeout=5).status_code
            submitted(client, id="sentinel", owner="ann")
            os.kill(stopped.pid, signal.SIGCONT)
            neighbour.join()
            first = seen.read_text().split()[0]
            history = [
                entry for entry, moved in store.redis.xrange(store.keys.history, first) if moved["owner"] == "ann"
            ]
            until(lambda: seen.read_text().count("\n") >= len(history), 60 + STOPPED)
            assert history == seen.read_text().split()
    lags = sorted(neighbour.lags)
    slow = lags[len(lags) * 95 // 100]
    grown = (most - before) / 2**20
    print(f"{len(history)} moves: {grown:.1f} MiB more; others heard within {lags[-1]:.2f} s, 95 % {slow:.3f} s")
    assert most - before < GROWTH
    assert len(history) <= len(lags)
    assert slow < 2


def _is_heard(seen: Path, client: Client) -> bool:
    submitted(client, owner="ann", queue="hello")
    time.sleep(0.05)
    return seen.exists() and bool(seen.read_text())


# Dead


def vanish(stream: EventStream) -> None:
    """Let a connection go dead without a word: from now on this end drops whatever comes, and acknowledges nothing."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0
    program = Program(1, ctypes.cast(drop_all, ctypes.c_void_p))
    connection = socket.socket(fileno=os.dup(stream.response.fileno()))
    with connection:
        connection.setsockopt(socket.SOL_SOCKET, 26, bytes(program))  # SO_ATTACH_FILTER


def is_held(process: psutil.Process, stream: EventStream) -> bool:
    """Tell whether a server still holds its end of a connection."""
    with socket.socket(fileno=os.dup(stream.response.fileno())) as connection:
        ours = connection.getsockname()
    return any(other.raddr == ours for other in process.net_connections("tcp"))


@pytest.fixture(params=["gevent", "gthread", "flask"])
def watched(
    request: pytest.FixtureRequest, client: Client, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Served, psutil.Process]]:
    """Each kind of server, and the process that holds its connections."""
    if request.param == "flask":
        monkeypatch.setattr(sse, "HEARTBEAT", HEARTBEAT)
        with in_process(create_app(client=Client(client.settings))) as web:
            yield web, psutil.Process()
        return
    threads, clocks = 10 if request.param == "gthread" else 0, {"sse.HEARTBEAT": HEARTBEAT}
    with gunicorn(client.settings.redis_url, constants=clocks, threads=threads, watchdog=False) as web:
        yield web, worker_of(web)


def test_a_dead_client_is_gone_within_two_signs_of_life(
    watched: tuple[Served, psutil.Process], client: Client, store: Store
) -> None:
    """No FIN comes from a laptop that was shut, and TCP alone would try for a quarter of an hour.

    Whatever the phase: the first sign that is sent in vain is the next one, and at the second one that is noticed. The
    signs that a neighbour gets are the clock, so that a busy machine is as late for both: its third one comes after
    two whole intervals.
    """
    web, process = watched
    quiet, chatty = submitted(client), submitted(client)
    claimed = [Hand(store).start() for _ in (quiet, chatty)][-1]

    def chat() -> None:
        store.stage(claimed.held, "worker:hand", "on it")

    urls = [f"{web.url}/api/tasks/{task_id}/events" for task_id in (quiet, chatty)]
    with repeating(chat, 0.1), opened(urls[0]) as alive, opened(urls[0]) as dead, opened(urls[1]) as dead_too:
        for stream in (alive, dead, dead_too):
            stream.take("task", 2)
        vanish(dead)
        vanish(dead_too)
        for _ in range(3):
            sign_of_life(alive)
        assert [False, False, True] == [is_held(process, stream) for stream in (dead, dead_too, alive)]


def test_where_nothing_can_be_known_a_client_counts_as_there() -> None:
    """Servers that tell no connection, and connections that are no TCP."""
    assert not Peer({}).hang_up_if_gone(0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not Peer({"gunicorn.socket": ours}).hang_up_if_gone(0)

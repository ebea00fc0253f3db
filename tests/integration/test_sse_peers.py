"""Clients that are slow, stopped or dead, at a real server: nobody else notices, and nothing piles up for them."""

import ctypes
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from ghostless.web.peers import STUCK, Peer, cut_off_as_left
from ghostless.web.rooms import PENDING_LIMIT
from helpers import die_with_the_tests
from redis import Redis
from web_tools import PATIENCE as WEB_PATIENCE
from web_tools import EventStream, Hand, Served, gunicorn, in_process, opened, publish, repeating, submitted, until

from .server_kinds import FLOOD, SEGMENT
from .test_owners_view import sign_of_life

HEARTBEAT = 1.0
"""Seconds between two signs of life, in these tests."""

MOVES = sized(8_000, 36_000)
"""Moves of 2 KB each that come while a client stands still; one that is 50,000 behind would be told to fetch anew."""

OF_EACH = 700
"""Moves of one task; its history keeps not many more."""

AHEAD = 500
"""Moves by which a client may be behind before the next one is made."""

KEPT = 1 / 3
"""What the server may keep of each byte that comes for a client that stands still: next to nothing, and noise."""


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
    """A client beside the stopped one, which counts what it hears."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._stream = opened(url)
        self.moves = self.bytes = 0

    def run(self) -> None:
        """Follow the stream up to the task `sentinel`."""
        with self._stream as stream:
            for message in stream:
                self.moves += 1
                self.bytes += len(message.data["message"])
                if message.data["id"] == "sentinel":
                    return


def chatter(store: Store, claimed: list[Any], moves: int, seconds: float, neighbour: Neighbour) -> None:
    """Let tasks move so often, and for so long at least; each time only when the neighbour heard of what was before."""
    started, before = time.monotonic(), neighbour.moves
    for done in range(len(claimed), moves, len(claimed)):
        for one in claimed:
            store.stage(one.held, "worker:hand", f"{done} " + "x" * 1900)
        until(lambda done=done: done - (neighbour.moves - before) < AHEAD, what="news for the neighbour")
        time.sleep(max(0.0, seconds * done / moves - (time.monotonic() - started)))


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("threads", [0, 10], ids=["gevent", "gthread"])
def test_a_stopped_client_is_no_burden_and_catches_up(
    client: Client, settings: Settings, store: Store, tmp_path: Path, threads: int
) -> None:
    """Nothing is kept for it but what Redis keeps; others hear everything at once; woken up, it gets all, in order.

    What the server needs for a client that is behind it has after the first moves. Then it may grow by a small part
    of what came for that client, and was told to the other one: one that keeps it all would grow by more than that.
    Its connection is kept, as its system answers. All the rest holds too when that was ended since it took no byte for
    two minutes.
    """
    seen, clocks = tmp_path / "seen", {"ring.RING": 64, "sse.HEARTBEAT": HEARTBEAT}
    # Without a watchdog, which would take the tasks away.
    with gunicorn(settings.redis_url, constants=clocks, threads=threads, watchdog=False) as web:
        url, worker = f"{web.url}/api/events?owner=ann", worker_of(web)
        neighbour = Neighbour(url)
        neighbour.start()
        with following(url, seen) as stopped:
            until(lambda: _is_heard(seen, client))
            claimed = [started(client, store) for _ in range(0, MOVES, OF_EACH)]
            os.kill(stopped.pid, signal.SIGSTOP)
            chatter(store, claimed, 2 * PENDING_LIMIT + AHEAD, 0, neighbour)
            before, heard = worker.memory_info().rss, neighbour.bytes
            chatter(store, claimed, MOVES, STOPPED, neighbour)
            submitted(client, id="sentinel", owner="ann")
            neighbour.join(WEB_PATIENCE)
            grown, passed = worker.memory_info().rss - before, neighbour.bytes - heard
            print(f"{grown / 1e6:.1f} MB more, while {passed / 1e6:.0f} MB came")
            assert not neighbour.is_alive()
            assert grown < KEPT * passed
            assert 200 == requests.get(f"{web.url}/readyz", timeout=5).status_code
            assert STOPPED > STUCK or are_connected(worker, psutil.Process(stopped.pid))
            os.kill(stopped.pid, signal.SIGCONT)
            first = seen.read_text().split()[0]
            history = [
                entry for entry, moved in store.redis.xrange(store.keys.history, first) if moved["owner"] == "ann"
            ]
            until(lambda: seen.read_text().count("\n") >= len(history), 60 + STOPPED)
            assert history == seen.read_text().split()


def are_connected(server: psutil.Process, other: psutil.Process) -> bool:
    """Tell whether a server holds a connection that another process holds too."""
    ours = {connection.laddr for connection in other.net_connections("tcp")}
    return any(connection.raddr in ours for connection in server.net_connections("tcp"))


def started(client: Client, store: Store) -> Any:
    """Return a task that runs."""
    submitted(client, owner="ann")
    return Hand(store).start()


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

    One of the dead has its buffers full before any sign: from then on the server waits in the middle of a write.
    """
    web, process = watched
    tasks = [submitted(client) for _ in ("quiet", "chatty", "flooded")]
    _, chatty, flooded = [Hand(store).start() for _ in tasks]
    urls = [f"{web.url}/api/tasks/{task_id}/events" for task_id in tasks]
    with ExitStack() as opening:
        opening.enter_context(repeating(lambda: store.stage(chatty.held, "worker:hand", "on it"), 0.1))
        alive = opening.enter_context(opened(urls[0]))
        dead = [opening.enter_context(opened(url, segment=SEGMENT)) for url in urls]
        for stream in (alive, *dead):
            stream.take("task", 2)
        for stream in dead:
            vanish(stream)
        for number in range(FLOOD):
            store.stage(flooded.held, "worker:hand", f"{number} " + "x" * 1900)
        for _ in range(3):
            sign_of_life(alive)
        assert [False, False, False, True] == [is_held(process, stream) for stream in (*dead, alive)]


@pytest.mark.parametrize("threads", [0, 10], ids=["gevent", "gthread"])
def test_who_takes_nothing_is_cut_off_and_the_log_says_so_in_one_line(
    client: Client, store: Store, tmp_path: Path, threads: int
) -> None:
    """After two minutes the system ends the connection, and a write fails: that is no fault of the server."""
    log, clocks = tmp_path / "log", {"peers.STUCK": 1.0, "sse.HEARTBEAT": HEARTBEAT}
    told = "import logging; logging.basicConfig(level=logging.INFO)\n"
    with gunicorn(client.settings.redis_url, constants=clocks, threads=threads, log=log, first=told) as web:
        task_id = submitted(client)
        claimed = Hand(store).start()
        with opened(f"{web.url}/api/tasks/{task_id}/events", segment=SEGMENT) as stream:
            for number in range(FLOOD):
                store.stage(claimed.held, "worker:hand", f"{number} " + "x" * 1900)
            until(lambda: not is_held(worker_of(web), stream))
            until(lambda: "cut off" in log.read_text())
    lines = [line for line in log.read_text().splitlines() if "ghostless.web" in line and "WARNING" not in line]
    assert ["a client was cut off, as nothing could be sent to it: Connection timed out"] == [
        line.partition("peers:")[2] for line in lines
    ]
    assert "Traceback" not in log.read_text()


def test_only_who_was_cut_off_counts_as_one_that_left() -> None:
    """A client's system may be silent, or its network gone; any other error is told as it is."""
    for number in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH):
        with pytest.raises(ConnectionResetError), cut_off_as_left():
            raise OSError(number, os.strerror(number))
    with pytest.raises(OSError, match="No space"), cut_off_as_left():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_where_nothing_can_be_known_a_client_counts_as_there() -> None:
    """Servers that tell no connection, and connections that are no TCP."""
    Peer({}).hang_up_if_gone(0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Peer({"gunicorn.socket": ours}).hang_up_if_gone(0)
        assert 1 == theirs.send(b"x")

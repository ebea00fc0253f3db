"""Many light clients of event streams in one process: raw sockets, one epoll, and a tally of what came.

A benchmark starts it as a process of its own and commands it through a pipe, so that the clients' work is not counted
as the server's. Each client notes its newest cursor, and goes on from it when the server ends its stream.
"""

import multiprocessing
import re
import select
import socket
import time
import zlib
from array import array
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

ARRIVING = 200
"""Connections that are made at the same time."""

PATIENCE = 120.0
"""Seconds after which a command is given up."""

MOVE = re.compile(rb'id: (\S+)\nevent: task\ndata: [^\n]*"actor":"(?:(one|all):(\d+))?')
"""A move: its cursor, and of those whose wait is measured who is told, and when it was written (monotonic ns)."""

LAST_CHUNK = b"\r\n0\r\n\r\n"
"""What ends a stream; the server keeps the connection for a further request."""


@dataclass(slots=True)
class Digest:
    """Which moves came, in which order."""

    moves: int = 0
    checksum: int = 0

    def add(self, place: bytes) -> None:
        """Count a move; `place` is its id in the history."""
        self.moves += 1
        self.checksum = zlib.crc32(place, self.checksum)


@dataclass(slots=True)
class Visitor:
    """One client."""

    path: str
    socket: socket.socket
    tail: bytes = b""  # of an event that is not complete yet
    is_in: bool = False  # it heard a whole event, or comment
    asks: bool = False  # only once, for no stream
    cursor: bytes = b""
    newest: tuple[int, int] = (0, 0)
    digest: Digest = field(default_factory=Digest)

    def note(self, place: bytes) -> bool:
        """Count one move; tell whether it came after all others."""
        milliseconds, _, number = place.partition(b"-")
        at, newest = (int(milliseconds), int(number)), self.newest
        self.newest = at
        self.digest.add(place)
        return at > newest


@dataclass(slots=True)
class Tally:
    """What came to all of them since the last look."""

    waits: dict[str, "array[int]"] = field(default_factory=dict[str, "array[int]"])  # ns from writing to arriving
    disordered: int = 0
    resets: int = 0
    ended: int = 0
    answered: int = 0
    live: int = 0


class Visitors:
    """The process with the clients."""

    def __init__(self, port: int, orders: "Connection[Any, Any]") -> None:
        self._port, self._orders = port, orders
        self._epoll = select.epoll()
        self._epoll.register(orders.fileno(), select.EPOLLIN)
        self._there: dict[int, Visitor] = {}
        self._tally = Tally()
        self._is_over = self._only_counts = False

    def run(self) -> None:
        """Obey until told to stop."""
        while not self._is_over:
            self._turn(1.0)

    # Orders

    def only_count(self) -> None:
        """Count moves from now on and look at none: where each comes to all, a look at each takes longer than it."""
        self._only_counts = True

    def come(self, paths: Sequence[str]) -> float:
        """Connect a client for each path; return the seconds until each heard something."""
        started = time.monotonic()
        waiting, arriving = list(reversed(paths)), list[Visitor]()
        while waiting or arriving:
            while waiting and len(arriving) < ARRIVING:
                arriving.append(self._connect(waiting.pop()))
            self._turn(1.0, commands=False)
            arriving = [visitor for visitor in arriving if not visitor.is_in]
            if time.monotonic() - started > PATIENCE:
                raise TimeoutError(f"{len(arriving) + len(waiting)} of {len(paths)} clients heard nothing")
        return time.monotonic() - started

    def ask(self, paths: Sequence[str]) -> None:
        """Ask once for each path, and do not wait for the answers."""
        for path in paths:
            self._connect(path).asks = True

    def answered(self) -> int:
        """Return how many of those that asked have an answer."""
        return self._tally.answered

    def slowest(self) -> int:
        """Return how many moves came to the client with the fewest."""
        return min(visitor.digest.moves for visitor in self._there.values())

    def forget(self) -> None:
        """Count anew."""
        self._tally = Tally()
        for visitor in self._there.values():
            visitor.digest = Digest()

    def arrived(self) -> int:
        """Return how many moves came to all of them."""
        return sum(visitor.digest.moves for visitor in self._there.values())

    def tell(self) -> tuple[Tally, list[tuple[str, Digest]]]:
        """Return the tally, and each client's path and digest."""
        return self._tally, [(one.path, one.digest) for one in self._there.values()]

    def stop(self) -> None:
        """End."""
        self._is_over = True

    # What they do

    def _turn(self, seconds: float, *, commands: bool = True) -> None:
        for number, _ in self._epoll.poll(seconds):
            if number in self._there:
                self._hear(self._there[number])
            elif commands:
                name, arguments = self._orders.recv()
                self._orders.send(getattr(self, name)(*arguments))

    def _connect(self, path: str, cursor: bytes = b"") -> Visitor:
        connection = socket.create_connection(("127.0.0.1", self._port))
        visitor = Visitor(path, connection, cursor=cursor)
        resuming = f"Last-Event-ID: {cursor.decode()}\r\n" if cursor else ""
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAccept: text/event-stream\r\n{resuming}\r\n"
        connection.sendall(request.encode())
        self._there[connection.fileno()] = visitor
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        return visitor

    def _forget(self, number: int) -> None:
        self._epoll.unregister(number)
        self._there.pop(number).socket.close()

    def _hear(self, visitor: Visitor) -> None:
        received = visitor.socket.recv(1 << 18)
        if visitor.asks:
            self._tally.answered += received.startswith(b"HTTP/1.1 200 ")
            self._forget(visitor.socket.fileno())
            return
        now = time.monotonic_ns()
        whole, end, visitor.tail = (visitor.tail + received).rpartition(b"\n\n")
        if end and self._only_counts:
            visitor.digest.moves += whole.count(b"\nevent: task\n")
        elif end:
            self._read(visitor, whole + end, now)
        if not received or visitor.tail.endswith(LAST_CHUNK):
            self._go_on(visitor)

    def _read(self, visitor: Visitor, events: bytes, now: int) -> None:
        for cursor, told, written_at in MOVE.findall(events):
            self._tally.disordered += not visitor.note(cursor.partition(b".")[2])
            if told:
                self._tally.waits.setdefault(told.decode(), array("q")).append(now - int(written_at))
        if (start := events.rfind(b"id: ")) >= 0:
            visitor.cursor = events[start + 4 : events.index(b"\n", start)]
        visitor.is_in = True
        self._tally.live += events.count(b"event: progress") + events.count(b"event: log")
        self._tally.resets += events.count(b"event: reset")

    def _go_on(self, visitor: Visitor) -> None:
        """Come back with the cursor; without waiting, as nobody else was cut off."""
        self._tally.ended += 1
        self._forget(visitor.socket.fileno())
        successor = self._connect(visitor.path, visitor.cursor)
        successor.newest, successor.digest = visitor.newest, visitor.digest


def visit(port: int, orders: "Connection[Any, Any]") -> None:
    """Be the process."""
    Visitors(port, orders).run()


class Crowd:
    """The process as its benchmark sees it."""

    def __init__(self, orders: "Connection[Any, Any]") -> None:
        self._orders = orders

    def order(self, name: str, *arguments: Any) -> Any:
        """Let the process do what `Visitors` can; return what that returns. Raises EOFError when it failed."""
        self._orders.send((name, arguments))
        return self._orders.recv()


@contextmanager
def crowd(port: int) -> Generator[Crowd]:
    """Run the process while the block runs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=visit, args=(port, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Crowd(ours)
    finally:
        process.terminate()
        process.join()

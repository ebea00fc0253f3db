"""The limit of all that talks to Redis: the bare round trip, with nothing around it.

Both ends are on one CPU, where they are fastest; on two it depends on where the kernel happens to put them.
"""

import contextlib
import hashlib
import os
import socket
import statistics
import time
from collections.abc import Generator, Mapping

from .server import private_server

TRIPS, STRETCHES = 1_000, 9
"""Round trips of a stretch, and stretches of a measurement. The first ones are slower."""

SCRIPT = "return 1"

PING = b"PING\r\n"
EVALSHA = f"EVALSHA {hashlib.sha1(SCRIPT.encode()).hexdigest()} 0\r\n".encode()


@contextlib.contextmanager
def pinned() -> Generator[None]:
    """Keep this process, and what it starts, on one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def limits(fsync: str) -> Mapping[str, float]:
    """Return how many PINGs, and how many calls of a script that does nothing, one connection makes a second."""
    with pinned(), private_server(fsync) as server, socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.redis.script_load(SCRIPT)
        return {"pings_per_second": _rate(connection, PING), "evalshas_per_second": _rate(connection, EVALSHA)}


def _rate(connection: socket.socket, command: bytes) -> float:
    return statistics.median(_stretch(connection, command) for _ in range(STRETCHES))


def _stretch(connection: socket.socket, command: bytes) -> float:
    began = time.monotonic()
    for _ in range(TRIPS):
        connection.sendall(command)
        connection.recv(64)
    return TRIPS / (time.monotonic() - began)

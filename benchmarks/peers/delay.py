"""A network of 1 ms: `python -m ghostless.benchmarks.peers.delay PORT` prints the port of a proxy to that one.

What the server answers arrives 1 ms later, each piece in its time, so a round trip takes 1 ms more, however much is
under way at once.
"""

import contextlib
import socket
import sys
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

DELAY = 0.001
"""Seconds that are added to a round trip."""

PIECE = 1 << 16


def serve(port: int) -> None:
    """Forward every connection, until killed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", port))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _start(_forward, client, server, server.sendall)
            _start(_forward_late, server, client)


def _start(target: Callable[..., object], *arguments: object) -> None:
    Thread(target=target, args=arguments, daemon=True).start()


def _forward(source: socket.socket, to: socket.socket, send: Callable[[bytes], object]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(PIECE):
            send(data)
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_RDWR)


def _forward_late(source: socket.socket, to: socket.socket) -> None:
    held: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
    _start(_deliver, held, to)
    _forward(source, to, lambda data: held.put((time.monotonic() + DELAY, data)))


def _deliver(held: "SimpleQueue[tuple[float, bytes]]", to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            due, data = held.get()
            time.sleep(max(0.0, due - time.monotonic()))
            to.sendall(data)


if __name__ == "__main__":
    serve(int(sys.argv[1]))

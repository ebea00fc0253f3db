"""Receivers on the loopback that answer in odd ways: slowly, without end, with nonsense, or by TLS."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CERTIFICATE = Path(__file__).parent / "loopback.pem"
"""Of a host called localhost, with its key."""

Act = Callable[[socket.socket], None]


@contextmanager
def acting(act: Act, host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Do something with each connection, in a thread of its own; yield the port."""
    with socket.create_server((host, port)) as server:
        thread = threading.Thread(target=_accept, args=(server, act), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def _accept(server: socket.socket, act: Act) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            threading.Thread(target=_act, args=(client, act), daemon=True).start()


def _act(client: socket.socket, act: Act) -> None:
    with client, suppress(OSError):
        act(client)


def by_tls(act: Act) -> Act:
    """Let what is done be done by TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)

    def encrypted(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as inner:
            act(inner)

    return encrypted


def whole_request(client: socket.socket) -> bytes:
    """Return a whole request: who closes with some of it unread resets the connection."""
    heard = b""
    while not heard.endswith(b"}"):
        more = client.recv(1 << 16)
        if not more:
            break
        heard += more
    return heard


def answers(*parts: bytes, pause: float = 0.0) -> Act:
    """Read what comes first, and send the parts, with a pause before each."""

    def act(client: socket.socket) -> None:
        whole_request(client)
        for part in parts:
            time.sleep(pause)
            client.sendall(part)

    return act


def is_silent(client: socket.socket) -> None:
    """Wait until the other side goes."""
    while client.recv(1 << 16):
        pass


def speaks_first(client: socket.socket) -> None:
    """Send what is no TLS, and wait until the other side goes."""
    client.sendall(OK)
    is_silent(client)


def drips(head: bytes) -> Act:
    """Send a byte every moment after the beginning of an answer, until the other side goes."""

    def act(client: socket.socket) -> None:
        whole_request(client)
        client.sendall(head)
        while True:
            time.sleep(0.05)
            client.sendall(b"x")

    return act


def floods(client: socket.socket) -> None:
    """Answer without end."""
    whole_request(client)
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        client.sendall(b"x" * (1 << 16))


OK = b"HTTP/1.1 204 No Content\r\n\r\n"

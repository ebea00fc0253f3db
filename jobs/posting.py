"""One POST to a host that is not ours: in bounded time, to an address that was checked, and wherever it points at last.

The standard library's HTTP client follows no redirect and asks no proxy by itself; it is given a connected socket.
"""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final, TypeVar

from .errors import GhostlessError
from .receivers import Network, Receiver, look_up

T = TypeVar("T")

SECONDS: Final = 15.0
"""How long a POST may take from the look-up of the host to the head of the answer, however it is spent."""

CONNECTING: Final = 5.0
"""Seconds that one of several addresses of a host may take to connect to."""


class NotPosted(GhostlessError):
    """There was no answer. Says why in words of our own: nothing that the other side sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What is taken from an answer: its status, and after how many ms it says that one may ask again."""

    status: int
    retry_after: int = 0


class Poster:
    """Sends to receivers. Safe to use from several threads."""

    def __init__(self, networks: Sequence[Network]) -> None:
        """`networks` are those of one's own, to which one may send by HTTP too."""
        self._networks = networks

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context()  # reads every certificate of the system: once is enough

    def post(self, receiver: Receiver, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Send a body; its answer is not read beyond the head. Raises ReceiverRefused, NotPosted."""
        until = time.monotonic() + SECONDS
        try:
            places = _in_time(lambda: look_up(receiver, self._networks), until)
        except TimeoutError as error:
            raise NotPosted(_reason(error, is_late=True)) from None
        except OSError:
            raise NotPosted("the name of its host was not found") from None
        try:
            with _connected(places, until) as plain, self._secured(plain, receiver) as sock, _ended_at(until, sock):
                reply = self._exchange(receiver, sock, body, headers)
            if time.monotonic() >= until:  # an end of the connection passes for the end of the head
                raise TimeoutError
        except (OSError, ValueError, HTTPException) as error:
            raise NotPosted(_reason(error, is_late=time.monotonic() >= until)) from None
        return reply

    def _secured(self, plain: socket.socket, receiver: Receiver) -> socket.socket:
        if receiver.scheme == "http":
            return plain
        return self._trust.wrap_socket(plain, server_hostname=receiver.host, do_handshake_on_connect=False)

    def _exchange(self, receiver: Receiver, sock: socket.socket, body: bytes, headers: Mapping[str, str]) -> Reply:
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()
            connection: HTTPConnection = HTTPSConnection(receiver.host, receiver.port, context=self._trust)
        else:
            connection = HTTPConnection(receiver.host, receiver.port)
        connection.sock = sock
        connection.request("POST", receiver.target, body, {**headers, "Connection": "close"})
        return _read(connection.getresponse())


def _in_time(call: Callable[[], T], until: float) -> T:
    """Return what a call returns; one that cannot be broken off is left alone at a moment of the monotonic clock.

    Raises TimeoutError, and what the call raises.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except Exception as error:  # noqa: BLE001 - it is for whoever waits
            outcome.set_exception(error)

    threading.Thread(target=run, name="look-up", daemon=True).start()
    return outcome.result(max(0.0, until - time.monotonic()))


def _read(answer: HTTPResponse) -> Reply:
    asked = answer.getheader("Retry-After", "")
    seconds = int(asked) if re.fullmatch(r"[0-9]{1,9}", asked) else 0
    return Reply(answer.status, 1000 * seconds)


@contextmanager
def _connected(places: Sequence[tuple[Any, ...]], until: float) -> Generator[socket.socket]:
    """Yield a socket that is connected to the first of these addresses that answers. Raises OSError."""
    failure = OSError("no address")
    for family, kind, protocol, _, place in places:
        with socket.socket(family, kind, protocol) as sock:
            try:
                sock.settimeout(max(0.01, min(CONNECTING, until - time.monotonic())))
                sock.connect(place)
            except OSError as error:
                failure = error
                continue
            sock.settimeout(SECONDS)
            yield sock
            return
    raise failure


@contextmanager
def _ended_at(until: float, sock: socket.socket) -> Generator[None]:
    """Shut a socket down at a moment of the monotonic clock: a time-out alone begins anew with every byte."""

    def shut_down() -> None:
        with suppress(OSError):  # closed meanwhile
            # Not as its own class does, which takes TLS off first, under the hands of the thread that reads.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, until - time.monotonic()), shut_down)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _reason(error: Exception, *, is_late: bool) -> str:
    if is_late or isinstance(error, TimeoutError):
        return f"it did not answer within {SECONDS:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not valid"
    if isinstance(error, ssl.SSLError):
        return "TLS could not be agreed on"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, OSError):
        return "the connection was lost"
    return "it answered with what is no HTTP"

"""Whether the other end of a connection is still there; by itself TCP takes a quarter of an hour to tell."""

import errno
import logging
import socket
import struct
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

STUCK = 120.0
"""Seconds after which the system cuts a connection on which nothing could be sent."""

_SOCKETS = ("gunicorn.socket", "werkzeug.socket")
"""Under which names servers hand a request's connection to the application."""

_ESTABLISHED = 1
"""The state of a TCP connection (Linux' tcp_states.h) that neither side has closed."""

_TCP_INFO = struct.Struct("=2xB53xI")
"""The start of Linux' `struct tcp_info`: how often a segment was repeated, and how many ms ago the last answer came."""

_CUT_OFF = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})
"""How the system says that it gave up a connection on which nothing could be sent."""

log = logging.getLogger(__name__)


@contextmanager
def cut_off_as_left() -> Generator[None]:
    """Let a client that the system cut off while it was sent something count as one that left.

    gunicorn takes it for a fault of the server, and logs a traceback.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _CUT_OFF:
            raise
        log.info("a client was cut off, as nothing could be sent to it: %s", error.strerror)
        raise ConnectionResetError(errno.ECONNRESET, error.strerror) from error


class Peer:
    """The other end of one request's connection; where it cannot be looked at, it counts as there."""

    def __init__(self, environment: Mapping[str, Any]) -> None:
        self._socket: socket.socket | None = next(filter(None, map(environment.get, _SOCKETS)), None)
        if self._socket and hasattr(socket, "TCP_USER_TIMEOUT"):
            with suppress(OSError):  # no TCP: a Unix socket behind a proxy
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(STUCK * 1000))

    def hang_up_if_gone(self, seconds: float) -> None:
        """End the connection when something is sent in vain again and again, and nothing at all came back for so long.

        A client that is only slow, or stopped, is not gone: its system still answers. Any thread may ask; one that
        waits for the client to take what it sends finds the connection broken.
        """
        if self._socket is None or not hasattr(socket, "TCP_INFO"):
            return
        with suppress(OSError):
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            repeated, silent_ms = _TCP_INFO.unpack(info)
            if repeated > 0 and silent_ms > seconds * 1000:
                # Else the server would wait some seconds for a further request, or for what was sent to arrive.
                self._shut_down(self._socket)
                log.info("a client no longer answers")

    @staticmethod
    def _shut_down(connection: socket.socket) -> None:
        # By another handle: gevent would tell who waits for this one that it is closed, which gunicorn logs as a fault.
        with socket.fromfd(connection.fileno(), connection.family, connection.type) as handle:
            handle.shutdown(socket.SHUT_RDWR)

    def has_hung_up(self) -> bool:
        """Tell whether the client closed its connection."""
        if self._socket is None or not hasattr(socket, "TCP_INFO"):
            return False
        with suppress(OSError):
            return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED
        return False

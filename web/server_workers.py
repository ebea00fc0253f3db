"""gunicorn's workers as the server uses them: none of their places is held by a client that only pretends to ask."""

import socket
import time
import warnings
from contextlib import suppress
from typing import Any

import gevent
from gunicorn.util import close_graceful
from gunicorn.workers.ggevent import GeventWorker
from gunicorn.workers.gthread import ThreadWorker

from .limits import Limits
from .patience import timed_body
from .peers import cut_off_as_left
from .raw_errors import ProblemErrors

HEADERS_TIME = 10.0
"""Seconds in which the headers of a request must be there, where each request holds a thread."""


class StreamWorker(ProblemErrors, GeventWorker):
    """A worker with greenlets that keeps no idle connection when it stops, or when places become few."""

    _open = 0

    def patch(self) -> None:
        """Make the standard library cooperative."""
        # The modules that gevent warns of, urllib3 and redis.asyncio, are not used by a worker; TLS to Redis works.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().patch()
        gevent.config.track_greenlet_tree = False  # each would remember the stack that it was started from

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve one connection."""
        self._open += 1
        try:
            super().handle(listener, client, addr)
        finally:
            self._open -= 1

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        """Serve one request."""
        if self._open > Limits.of_connections(self.worker_connections).subscribers:
            req.force_close()  # the places beyond the streams are for those who ask now
        sender: Any = Sender(sock)
        with timed_body(req), cut_off_as_left():
            answer = super().handle_request(listener_name, req, sender, addr)
        if not self.alive:
            raise StopIteration  # how gunicorn closes a connection
        return answer


class Sender:
    """A connection that sends at once: gevent's asks for the size of the system's buffer first, for every block."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def sendall(self, data: bytes) -> None:
        """Send everything, waiting where the client is slow."""
        sent = self._connection.send(data)
        if sent < len(data):
            self._connection.sendall(memoryview(data)[sent:])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class ThreadedWorker(ProblemErrors, ThreadWorker):
    """A worker with threads, which waits for idle connections without one by itself."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._arriving: dict[Any, float] = {}  # until when the headers of a connection's next request must be there

    def set_accept_enabled(self, enabled: bool | None) -> None:
        """Accept connections, or none; who stops closes the door too: else clients wait before it for nobody."""
        super().set_accept_enabled(enabled)
        if not (enabled or self.alive):  # a signal may come while it is about to accept: then it is asked once more
            for listener in self.sockets:
                listener.close()

    def is_parent_alive(self) -> bool:
        """Tell whether the master lives; without one it stops as if it was told to, or its streams would go on."""
        self.alive = self.alive and super().is_parent_alive()
        return self.alive

    def handle(self, conn: Any) -> Any:
        """Serve one request, or find that there is none yet; in a thread of the pool."""
        self._arriving[conn] = time.monotonic() + HEADERS_TIME
        try:
            stays = super().handle(conn)
        finally:
            self._arriving.pop(conn, None)
        if not stays:
            self._see_off(conn)
        return stays

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Serve one request."""
        self._arriving.pop(conn, None)
        with timed_body(req), cut_off_as_left():
            return super().handle_request(req, conn)

    def murder_pending(self) -> None:
        """Cut off who takes too long; gunicorn's loop comes here each second."""
        super().murder_pending()
        now = time.monotonic()
        for conn, ends_at in self._arriving.copy().items():
            if ends_at < now:
                with suppress(OSError):
                    conn.sock.shutdown(socket.SHUT_RDWR)  # its thread reads the end

    @staticmethod
    def _see_off(conn: Any) -> None:
        """Wait until the client has its answer: gunicorn would do that in its loop, and keep all others waiting."""
        with suppress(OSError):
            close_graceful(conn.sock.dup())
            conn.sock.shutdown(socket.SHUT_RDWR)

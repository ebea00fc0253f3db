"""How long the server waits for a body: else a client that sends a byte now and then would hold its place for ever."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from gunicorn.http.errors import ParseException

from .kinds import Kind
from .problems import Refusal

BODY_TIME = 30.0
"""Seconds in which a whole body must be there: 2 MiB at 70 KiB/s."""


@contextmanager
def timed_body(request: Any) -> Generator[None]:
    """Let the body of gunicorn's request be read in time only, while the block runs."""
    body = request.body
    request.body = TimedBody(request)
    try:
        yield
    finally:
        request.body = body  # what is left of it gunicorn reads with a deadline of its own


class TimedBody:
    """The body of one request, as gunicorn reads it from the socket, with a deadline from its first read on."""

    def __init__(self, request: Any) -> None:
        self._request, self._body = request, request.body
        self._ends_at: float | None = None

    def read(self, size: int | None = None) -> bytes:
        """Return so many bytes, or the rest. Raises Refusal when they are not there in time or make no sense."""
        if self._ends_at is None:
            self._ends_at = time.monotonic() + BODY_TIME
        unreader = self._request.unreader
        connection = unreader.sock
        unreader.sock = _TimedSocket(connection, self._ends_at)
        try:
            return self._body.read(size)
        except ParseException as error:
            raise self._given_up(Refusal(Kind.BAD_BODY, "the body is cut off or badly framed")) from error
        except TimeoutError as error:
            detail = f"the whole body must be there within {BODY_TIME:g} s"
            raise self._given_up(Refusal(Kind.TOO_SLOW, detail)) from error
        finally:
            unreader.sock = connection

    def _given_up(self, refusal: Refusal) -> Refusal:
        self._request.force_close()  # what is still to come would be taken for the next request
        return refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


class _TimedSocket:
    """A connection of which all reads together must end in time; works with threads and with greenlets."""

    def __init__(self, connection: Any, ends_at: float) -> None:
        self._connection, self._ends_at = connection, ends_at

    def recv(self, size: int) -> bytes:
        """Return what came. Raises TimeoutError."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv(size)
        finally:
            self._connection.settimeout(None)

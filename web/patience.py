"""How long the server waits for a body: else a client that sends a byte now and then would hold its place for ever.

Headers need nothing here: gunicorn closes a connection whose next request is not there in time.
"""

import time
from typing import Any

import gevent
from gunicorn.http.errors import ParseException

from .kinds import Kind
from .problems import Refusal

BODY_TIME = 30.0
"""Seconds in which a whole body must be there: 2 MiB at 70 KiB/s."""


class TimedBody:
    """The body of one request, as gunicorn reads it from the socket, with a deadline from its first read on."""

    def __init__(self, request: Any) -> None:
        self._request, self._body = request, request.body
        self._ends_at: float | None = None

    def read(self, size: int | None = None) -> bytes:
        """Return so many bytes, or the rest. Raises Refusal when they are not there in time or make no sense."""
        if self._ends_at is None:
            self._ends_at = time.monotonic() + BODY_TIME
        try:
            with gevent.Timeout(max(0.0, self._ends_at - time.monotonic()), self._late()):
                return self._body.read(size)
        except ParseException as error:
            raise self._given_up(Refusal(Kind.BAD_BODY, "the body is cut off or badly framed")) from error
        except Refusal as refusal:
            raise self._given_up(refusal) from None

    @staticmethod
    def _late() -> Refusal:
        detail = f"the whole body must be there within {BODY_TIME:g} s"
        return Refusal(Kind.TOO_SLOW, detail)

    def _given_up(self, refusal: Refusal) -> Refusal:
        self._request.force_close()  # what is still to come would be taken for the next request
        return refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

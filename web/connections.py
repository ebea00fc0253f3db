"""Whether a client still waits for its answer: the system knows when the other end closed the connection."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

ESTABLISHED = 1
"""The state of a TCP connection (Linux' tcp_states.h) that neither side has closed."""

_SOCKETS = ("gunicorn.socket", "werkzeug.socket")
"""Under which names servers hand a request's connection to the application."""


def has_hung_up(environment: Mapping[str, Any]) -> bool:
    """Tell whether the client of a request closed its connection; where that cannot be told, it did not."""
    connection: socket.socket | None = next(filter(None, map(environment.get, _SOCKETS)), None)
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    with suppress(OSError):  # no TCP: a Unix socket behind a proxy
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED
    return False

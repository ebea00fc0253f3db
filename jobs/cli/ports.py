"""Finding out beforehand whether a port can be listened on, to say so in one line."""

import errno
import socket

from .lazy import Failed

HOST = "127.0.0.1"
"""Where `dev` and `demo` listen."""


def free_port(*wanted: int, host: str = HOST) -> int:
    """Return the first of these ports that is free; 0 stands for any. Raises Failed when none is."""
    problem = OSError()
    for port in wanted:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return probe.getsockname()[1]
            except OSError as error:
                problem = error
    if problem.errno == errno.EADDRINUSE:
        raise Failed(f"port {wanted[0]} of {host} is taken; choose another one with --port")
    raise Failed(f"{host} port {wanted[0]} cannot be listened on: {problem.strerror or problem}")

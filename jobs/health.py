"""A worker's health over HTTP: `GET /health` answers 200 or 503 with the reasons, from threads of its own."""

import contextlib
import errno
import ipaddress
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, cast

from redis import Redis

from .errors import GhostlessError
from .probe import ask

log = logging.getLogger("rq.worker.ghostless")

PATIENCE = 5.0
"""Seconds that a client may leave its connection idle."""

HOLDERS_PATIENCE = 1.0
"""Seconds in which a worker that has the port must say so."""

MOST_CLIENTS = 16
"""Connections that are answered at once; a further one is closed."""

LOOPBACK = "127.0.0.1"

Report = Callable[[], Mapping[str, Any]]
"""Returns the answer; its entry `healthy` decides on 200 or 503."""


class PortTaken(GhostlessError):
    """The health port cannot be listened on."""

    def __init__(self, host: str, port: int, cause: OSError) -> None:
        self.host, self.port, self.cause = host, port, cause
        why = f"{host} port {port} cannot be listened on ({cause.strerror or cause})"
        holder = ask(_address(host, port), HOLDERS_PATIENCE)
        if holder.worker:
            why += f", since the worker {holder.worker} does ({holder.text}); wait until that has ended, or"
        else:
            why += ";"
        super().__init__(f"--health-port: {why} choose another port")


def own_address(redis: Redis) -> str:
    """Return the address from which this machine reaches Redis, under which the others that do so may reach it.

    It is 127.0.0.1 when Redis is on this machine. Raises OSError when there is no way to Redis.
    """
    target = cast(Mapping[str, Any], redis.get_connection_kwargs())
    if "host" not in target:
        return LOOPBACK  # a Unix socket
    places = socket.getaddrinfo(target["host"], target["port"], type=socket.SOCK_DGRAM)
    address = next((found for place in places if (found := _way_to(place))), None)
    if address is None:
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
    return LOOPBACK if ipaddress.ip_address(address.partition("%")[0]).is_loopback else address


def _way_to(place: tuple[Any, ...]) -> str | None:
    """Return the address from which this machine would send to a place; None when there is no way."""
    family, kind, protocol, _, target = place
    with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # of a datagram socket: sends nothing
        return probe.getsockname()[0]
    return None


class HealthServer(ThreadingMixIn, TCPServer):
    """Serves what `report` returns. Raises PortTaken."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int, report: Report) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(MOST_CLIENTS)
        try:
            super().__init__((host, port), partial(_Handler, report))
        except OSError as error:
            raise PortTaken(host, port, error) from error
        threading.Thread(target=self.serve_forever, name="health", daemon=True).start()

    @property
    def address(self) -> str:
        """Where it listens, "host:port"."""
        host, port = self.server_address[:2]
        return _address(str(host), int(port))

    def close(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()

    def let_go(self) -> None:
        """In a fork of the worker: close this process' copy of the socket, which would keep the port taken."""
        self.socket.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if there is one left."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next one; whoever is slow is cut off."""
        cut_off = threading.Timer(PATIENCE, _cut_off, (request,))
        cut_off.daemon = True
        cut_off.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            cut_off.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a client that went away."""
        log.debug("health: a client could not be answered", exc_info=True)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _cut_off(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has gone
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server_version, sys_version = "ghostless", ""

    def __init__(self, report: Report, *connection: Any) -> None:
        self._report = report
        super().__init__(*connection)  # which answers

    def do_GET(self) -> None:
        """Answer with the report."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer with the status alone."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if self.path != "/health":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        report = self._report()
        body = json.dumps(report).encode()
        self.send_response(HTTPStatus.OK if report["healthy"] else HTTPStatus.SERVICE_UNAVAILABLE)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the worker's log for what it does."""

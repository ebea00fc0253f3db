"""A receiver of webhooks on the loopback, which answers as it is told."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """What came, and what is answered next: a status for each request, 200 when none is left."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.requests: list[tuple[dict[str, str], bytes]] = []  # their headers and bodies as they came
        self.answers: list[int] = []
        self.url = ""

    @property
    def texts(self) -> list[str]:
        """The texts that came, in order."""
        return [body.get("text") or body.get("message") for body in self.bodies]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Receive on a free port."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append((dict(self.headers), raw))
            receiver.bodies.append(json.loads(raw))
            self.send_response(receiver.answers.pop(0) if receiver.answers else 200)
            self.send_header("Location", f"{receiver.url}elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()


@contextmanager
def nonsense() -> Iterator[str]:
    """Answer one request with what is no HTTP; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer_nonsense, args=[server], daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def _answer_nonsense(server: socket.socket) -> None:
    with suppress(OSError):
        client, _ = server.accept()
        with client:
            client.recv(1 << 16)
            client.sendall(b"what?\r\n\r\n")

"""A proxy between a browser and the server, who can be told to misbehave the way proxies in the field do."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

BAD_GATEWAY = "502 Bad Gateway"

UNAUTHORIZED = (
    b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/problem+json\r\nContent-Length: 50\r\n"
    b'Connection: close\r\n\r\n{"type":"urn:ghostless:unauthorized","status":401}'
)

EVENTS = re.compile(r"/api/(?:events|tasks/[^/?]+/events)(?:\?|$)")


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    at: float  # by the monotonic clock

    @property
    def is_api(self) -> bool:
        """Whether it asks for more than a file."""
        return self.path.startswith("/api")

    @property
    def is_stream(self) -> bool:
        """Whether it asks for server-sent events."""
        return EVENTS.match(self.path) is not None

    @property
    def is_held(self) -> bool:
        """Whether it asks for an answer that waits."""
        return "?wait=" in self.path

    @property
    def token(self) -> str:
        """The token that came with it."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")


@dataclass
class Rules:
    """How connections that come from now on are treated; the default passes everything on."""

    refuses: str = ""  # the status line with which it answers in the API's place, and headers behind it
    refuses_streams: bool = False
    refuses_holding: bool = False  # of answers
    token: str = ""  # without it the API answers 401
    swallows_answers: bool = False  # the API gets the request, the client nothing but a closed connection
    holds_streams: bool = False  # of a stream nothing comes, not even its end
    cuts_at: bytes = b""  # what is still passed on of a stream, then its connection is closed
    silent_at: bytes = b""  # what is still passed on of a stream, then nothing more comes
    delay: float = 0.0  # seconds before each piece

    def refuse(self, asked: Asked) -> bool:
        """Tell whether the proxy answers in the server's place."""
        wrong = (self.refuses_streams and asked.is_stream, self.refuses_holding and asked.is_held)
        return any(wrong) or (bool(self.refuses) and asked.is_api)


@dataclass
class HttpProxy:
    """Forwards to a port of this machine, one request a connection; the port may change while it runs."""

    port: int
    rules: Rules = field(default_factory=Rules)
    asked: list[Asked] = field(default_factory=list)
    refused: list[Asked] = field(default_factory=list)  # those that it answered in the server's place
    streams: int = 0  # open ones

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._clients: set[socket.socket] = set()
        self.go_on = threading.Event()  # what a request for /halt waits for
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def streams_asked(self) -> list[Asked]:
        """The requests for streams, also refused ones."""
        return [asked for asked in self.asked if asked.is_stream]

    def cut(self) -> None:
        """Close every connection that there is now."""
        with self._lock:
            for client in self._clients:
                _hang_up(client)

    def close(self) -> None:
        """Accept no more, and close what there is; twice does no harm."""
        self.go_on.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client, self.rules], daemon=True).start()

    def _serve(self, client: socket.socket, rules: Rules) -> None:
        with self._lock:
            self._clients.add(client)
        try:
            with suppress(OSError), client:
                self._handle(client, rules)
                _hang_up(client)
        finally:
            with self._lock:
                self._clients.discard(client)

    def _handle(self, client: socket.socket, rules: Rules) -> None:
        request = _read_request(client)
        if request is None:
            return
        asked, raw = request
        self.asked.append(asked)
        if asked.path == "/halt":
            self.go_on.wait()
            return
        if rules.refuse(asked):
            self.refused.append(asked)
            client.sendall(_page(rules.refuses or BAD_GATEWAY))
            return
        if rules.token and asked.is_api and asked.token != rules.token:
            client.sendall(UNAUTHORIZED)
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.port))
        except OSError:
            client.sendall(_page(BAD_GATEWAY))  # as any proxy whose server is being restarted
            return
        with server, self._counted(asked):
            server.sendall(raw)
            self._relay(client, server, asked, rules)

    @contextmanager
    def _counted(self, asked: Asked) -> Iterator[None]:
        with self._lock:
            self.streams += asked.is_stream
        try:
            yield
        finally:
            with self._lock:
                self.streams -= asked.is_stream

    def _relay(self, client: socket.socket, server: socket.socket, asked: Asked, rules: Rules) -> None:
        leaving = threading.Thread(target=_close_with, args=[client, server], daemon=True)
        leaving.start()
        for data in _pieces(server):
            if rules.swallows_answers and asked.is_api:
                return
            time.sleep(rules.delay)
            if asked.is_stream and rules.holds_streams:
                continue
            end = _end(data, rules.cuts_at or rules.silent_at) if asked.is_stream else None
            client.sendall(data[:end])
            if end is not None and rules.cuts_at:
                return
            if end is not None:
                rules = Rules(holds_streams=True)
        if asked.is_stream and rules.holds_streams:
            leaving.join()


def _page(status: str) -> bytes:
    """Return the page that a proxy shows in the server's place."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\n"
    return head.encode() + b"<h1>"


def _end(data: bytes, mark: bytes) -> int | None:
    """Return where to cut: behind the mark; None when it is not there."""
    return data.index(mark) + len(mark) if mark and mark in data else None


def _read_request(client: socket.socket) -> tuple[Asked, bytes] | None:
    """Return the request, and its bytes as one that ends its connection; None when the client left."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        if not (data := client.recv(1 << 16)):
            return None
        raw += data
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += client.recv(1 << 16)
    kept = [line for line in lines if not line.lower().startswith("connection:")]
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, time.monotonic()), "\r\n".join(
        [first, *kept, "Connection: close", "", ""]
    ).encode() + body


def _pieces(server: socket.socket) -> Iterator[bytes]:
    while data := server.recv(1 << 16):
        yield data


def _hang_up(client: socket.socket) -> None:
    """Close for good, also while another thread reads."""
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


def _close_with(client: socket.socket, server: socket.socket) -> None:
    """End the server's side when the client leaves."""
    with suppress(OSError):
        while client.recv(1 << 10):
            pass
        server.shutdown(socket.SHUT_RDWR)

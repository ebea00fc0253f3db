"""A man in the middle of clients and Redis, who can be told to misbehave."""

import re
import select
import socket
import threading
from contextlib import suppress
from typing import Literal

COMMAND = re.compile(rb"(?:^|\r\n)\*\d+\r\n")
LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"

Mode = Literal["pass", "loading", "silent"]


class Proxy:
    """Forwards every connection to a port of this machine.

    While `mode` is "loading" each command is answered as a Redis that is just starting does; while it is "silent"
    connections are accepted, and nothing is forwarded or answered.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.mode: Mode = "pass"
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The address that clients use."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._port)) as server:
            while True:
                readable, _, _ = select.select([client, server], [], [])
                for source in readable:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    self._pass_on(data, source is client, client, server)

    def _pass_on(self, data: bytes, is_command: bool, client: socket.socket, server: socket.socket) -> None:
        if self.mode == "silent":
            return
        if not is_command:
            client.sendall(data)
        elif self.mode == "loading":
            client.sendall(LOADING * len(COMMAND.findall(data)))
        else:
            server.sendall(data)

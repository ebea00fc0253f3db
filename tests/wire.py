"""A wire between browsers and a server, which a test may cut and hold up."""

import socket
from collections.abc import Iterable

from proxy import Proxy


class Wire(Proxy):
    """Forwards connections to a port of this machine; the streams among them are cut after so many bytes, one by one.

    Once all of `cuts` are used up, streams are whole.
    """

    STREAM = b"text/event-stream"

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._cuts: list[int] = []
        self._budgets: dict[socket.socket, int] = {}
        self.cut = 0  # how many were

    def cuts(self, after: Iterable[int]) -> None:
        """Cut the next streams, each after so many bytes of its answer."""
        self._cuts = list(after)

    @property
    def origin(self) -> str:
        """The address for browsers."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _pass_on(self, data: bytes, is_command: bool, client: socket.socket, server: socket.socket) -> None:
        if not is_command and self.STREAM in data and client not in self._budgets and self._cuts:
            self._budgets[client] = self._cuts.pop(0)
        if not is_command and client in self._budgets:
            self._pass_some(data, client)
        else:
            super()._pass_on(data, is_command, client, server)

    def _pass_some(self, data: bytes, client: socket.socket) -> None:
        budget = self._budgets[client]
        client.sendall(data[:budget])
        self._budgets[client] = budget - len(data)
        if budget <= len(data):
            self.cut += 1
            raise ConnectionAbortedError  # ends the connection

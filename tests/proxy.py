"""A man in the middle of clients and Redis, who can be told to misbehave."""

import re
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import hiredis

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


HANDSHAKE = ((b"SELECT",), (b"PING",), (b"CLIENT", b"SETINFO"), (b"CLIENT", b"SETNAME"))
"""Commands with which a connection begins; they change nothing for anybody else, and are not counted."""

EXECUTED_WITHIN = 0.3
"""Seconds that a command may take; only one that blocks takes longer."""


@dataclass(frozen=True)
class Cut:
    """What befalls the command of a number, counted from 1 over all connections; 0 for none.

    It is `executed` with its reply lost, or never reaches Redis. Then either the whole proxy stands still, so that
    the process that uses it can be killed at that very moment, or only the command's connection is closed.
    """

    number: int = 0
    executed: bool = False
    stands_still: bool = True

    def __str__(self) -> str:
        what = "kill" if self.stands_still else "cut"
        return f"{what} {'after' if self.executed else 'before'} command {self.number}"


class CuttingProxy(Proxy):
    """Forwards command by command, also those of one pipeline, up to one at which it cuts.

    It counts from the first command of the name `counts_from`, or from the very first one.
    """

    def __init__(self, port: int, cut: Cut, counts_from: bytes = b"") -> None:
        super().__init__(port)
        self.cut, self._counts_from = cut, counts_from
        self.counted = 0
        self.command = ""  # the one that was cut
        self.was_cut = threading.Event()
        self._closed = threading.Event()
        self._one_at_a_time = threading.Lock()

    def close(self) -> None:
        """Close every connection, and accept no more."""
        self._closed.set()
        super().close()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._port)) as server:
            conversation = _Conversation(client, server)
            while not self._closed.is_set():
                readable, _, _ = select.select([client, server], [], [], 1.0)
                if not all(self._forward(source, conversation) for source in readable):
                    return

    def _forward(self, source: socket.socket, conversation: "_Conversation") -> bool:
        """Pass on what has come from one side; tell whether the connection stays open."""
        data = source.recv(1 << 16)
        if not data:
            return False
        if source is conversation.client:
            return all(self._pass_command(command, conversation) for command in conversation.commands_in(data))
        with self._one_at_a_time:
            if not self._stands_still:
                conversation.answer(data)
        return self._await_the_end() if self._stands_still else True

    def _pass_command(self, command: tuple[bytes, ...], conversation: "_Conversation") -> bool:
        with self._one_at_a_time:
            is_cut = self._is_cut(command)
            if not self._stands_still and (not is_cut or self.cut.executed):
                conversation.ask(command)
            if is_cut:
                conversation.await_answers()
                self.command = b" ".join(command)[:80].decode(errors="replace")
                self.was_cut.set()
        return self._await_the_end() if self._stands_still else not is_cut

    def _is_cut(self, command: tuple[bytes, ...]) -> bool:
        is_early = self.counted == 0 and not command[0].startswith(self._counts_from)
        if is_early or any(command[: len(start)] == start for start in HANDSHAKE):
            return False
        self.counted += 1
        return self.counted == self.cut.number

    @property
    def _stands_still(self) -> bool:
        return self.cut.stands_still and self.was_cut.is_set()

    def _await_the_end(self) -> bool:
        self._closed.wait()
        return False


class _Conversation:
    """One connection of a client, and ours to Redis on its behalf."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self._server = client, server
        self._asked = self._answered = 0
        self._commands, self._answers = hiredis.Reader(), hiredis.Reader()

    def commands_in(self, data: bytes) -> list[tuple[bytes, ...]]:
        """Return the commands that are whole by now."""
        return [tuple(command) for command in _parsed(self._commands, data)]

    def ask(self, command: tuple[bytes, ...]) -> None:
        """Send a command to Redis."""
        self._asked += 1
        self._server.sendall(hiredis.pack_command(command))

    def answer(self, data: bytes) -> None:
        """Pass on what Redis said."""
        self._count(data)
        self.client.sendall(data)

    def await_answers(self) -> None:
        """Drop what Redis answers, until everything that was asked has been executed."""
        self._server.settimeout(EXECUTED_WITHIN)
        with suppress(TimeoutError):
            while self._answered < self._asked and (data := self._server.recv(1 << 16)):
                self._count(data)

    def _count(self, data: bytes) -> None:
        self._answered += sum(1 for _ in _parsed(self._answers, data))


def _parsed(reader: hiredis.Reader, data: bytes) -> Iterator[Any]:
    reader.feed(data)
    while (value := reader.gets()) is not False:
        yield value

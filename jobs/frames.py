"""Frames between a worker and its horse: a length of 4 bytes, then one JSON object; the same on both ends."""

import json
import socket
import threading
from contextlib import suppress
from typing import Any, Final, cast

from .errors import GhostlessError

Frame = dict[str, Any]

FRAME_LIMIT: Final = 12 * 1024 * 1024
"""Most bytes of one frame: params, a checkpoint and results of 1 MiB each, tripled by JSON's escapes, fit in."""

_HEADER: Final = 4
_CHUNK: Final = 64 * 1024  # twice as much would be mapped anew for each receive, which costs more than it

# In ASCII, so that half of a surrogate pair in somebody's params passes too. Made once: it costs more than a frame.
_encoder: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


class FrameError(GhostlessError):
    """A frame cannot be sent, or what came is none; after the latter the channel is of no more use."""


class Channel:
    """One end of a connected socket. Any thread may send; only one may receive."""

    def __init__(self, connected: socket.socket, received: bytes = b"") -> None:
        """Be an end, of which somebody may have `received` the first bytes already."""
        self._socket = connected
        self._sending = threading.Lock()
        self._received = bytearray(received)
        self.is_ended = False  # the other end is closed, and all that it sent was received

    def fileno(self) -> int:
        """Return the descriptor to wait on until there is something to receive."""
        return self._socket.fileno()

    def send(self, *frames: Frame) -> None:
        """Send whole frames; waits while the other end does not read.

        Raises FrameError, with nothing sent, when a frame is too large or not JSON, and OSError when the other
        end is gone. A frame that was interrupted half-way ends the channel for sending, since the rest would be
        read as garbage.
        """
        data = b"".join(map(_encode, frames))
        with self._sending:
            try:
                self._socket.sendall(data)
            except BaseException:
                _end_sending(self._socket)
                raise

    def receive(self) -> Frame | None:
        """Wait for the next frame; None when the other end is closed. Raises FrameError."""
        while (frame := self._next_frame()) is None:
            if not self._read(flags=0):
                return None
        return frame

    def receive_ready(self) -> list[Frame]:
        """Return the frames that are complete by now, without waiting; sets `is_ended`. Raises FrameError."""
        with suppress(BlockingIOError):
            for _ in range(FRAME_LIMIT // _CHUNK):  # bounded, however fast the other end sends
                if not self._read(socket.MSG_DONTWAIT):
                    break
        return list(iter(self._next_frame, None))

    def close(self) -> None:
        """Close this end; the other one learns of it."""
        self._socket.close()

    def _read(self, flags: int) -> bool:
        try:
            data = self._socket.recv(_CHUNK, flags)
        except ConnectionResetError:  # it died with something of ours unread
            data = b""
        self._received += data
        self.is_ended = not data
        return bool(data)

    def _next_frame(self) -> Frame | None:
        if len(self._received) < _HEADER:
            return None
        size = int.from_bytes(self._received[:_HEADER])
        _check_size(size)
        if len(self._received) < _HEADER + size:
            return None
        body = bytes(self._received[_HEADER : _HEADER + size])
        del self._received[: _HEADER + size]
        return _decode(body)


def _encode(frame: Frame) -> bytes:
    try:
        body = _encoder.encode(frame).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"a {frame.get('kind')!r} frame cannot be sent: {error}") from error
    _check_size(len(body))
    return len(body).to_bytes(_HEADER) + body


def _decode(body: bytes) -> Frame:
    try:
        frame: object = json.loads(body.decode())  # it takes longer to find that out
    except (ValueError, RecursionError) as error:
        raise FrameError(f"received {body[:32]!r}, which is not JSON: {error}") from error
    if not isinstance(frame, dict):
        raise FrameError(f"received {body[:32]!r}, which is not a JSON object")
    return cast(Frame, frame)


def _check_size(size: int) -> None:
    if size > FRAME_LIMIT:
        raise FrameError(f"a frame of {size} bytes; at most {FRAME_LIMIT} are possible")


def _end_sending(connected: socket.socket) -> None:
    with suppress(OSError):  # it was closed already
        connected.shutdown(socket.SHUT_WR)

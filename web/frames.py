"""The bytes of server-sent events; the one place that makes them, so that nothing can be smuggled in."""

import json
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..jobs.errors import CorruptRecord
from ..jobs.model import Entry
from .cursors import Cursor, EntryId, from_text

RECONNECT = (2000, 5000)
"""Between how many ms a client waits before it connects again; jittered, so that many do not come at once."""

log = logging.getLogger(__name__)

_FORBIDDEN = frozenset("\r\n\0")


def frame(*, event: str = "", data: Any = None, id: str = "") -> bytes:
    """Return one event; without `event` only the id is set, which moves a client's cursor and fires nothing.

    Raises ValueError for a CR, LF or NUL in `event` or `id`, and for data that is not JSON.
    """
    lines = [_line("id", id)] if id else []
    if event:
        # json.dumps escapes every control character and everything beyond ASCII: one line, whatever is in it.
        lines += [_line("event", event), f"data: {json.dumps(data, separators=(',', ':'), allow_nan=False)}\n"]
    return ("".join(lines) + "\n").encode("ascii")


def _line(name: str, value: str) -> str:
    if not _FORBIDDEN.isdisjoint(value):
        raise ValueError(f"{name}: expected no CR, LF or NUL, got {value!r}")
    return f"{name}: {value}\n"


def retry() -> bytes:
    """Return the block that tells a client when to connect again."""
    return b"retry: %d\n\n" % random.randint(*RECONNECT)


def opening(place: str) -> bytes:
    """Return the first block of a stream: when to connect again, and from where."""
    return retry()[:-1] + frame(id=place)


def bookmark(place: str) -> bytes:
    """Return a sign of life that also keeps a cursor young when nothing happens to its tasks."""
    return b": still here\n" + frame(id=place)


def move_view(entry: Entry) -> dict[str, Any]:
    """Return the public view of a move: what happened to which task, and the state it is in since."""
    return {
        "id": entry.task,
        "type": entry.type,
        "queue": entry.queue,
        "owner": entry.owner or None,
        "state": entry.to_state,
        "from": entry.from_state or None,
        "event": entry.event,
        "attempt": entry.attempt,
        "reason": entry.reason,
        "message": entry.message,
        "actor": entry.actor,
        "at": entry.at,
    }


class Moment:
    """One entry of the history on its way to clients; encoded once, however many listen."""

    __slots__ = ("_frame", "at", "entry")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.at: EntryId = from_text(entry.id)
        self._frame: tuple[str, bytes] | None = None

    @classmethod
    def readable(cls, entries: Iterable[tuple[str, Mapping[str, str]]]) -> "list[Moment]":
        """Return those entries that can be read; one damaged entry must not stop the others."""
        moments: list[Moment] = []
        for entry_id, stored in entries:
            try:
                moments.append(cls(Entry.from_fields(entry_id, stored)))
            except CorruptRecord as error:
                log.error("%s", error)
        return moments

    def frame(self, epoch: str) -> bytes:
        """Return its event, with the cursor behind it as id."""
        known = self._frame  # read once: another thread may write one of another epoch
        if known is None or known[0] != epoch:
            cursor = Cursor(epoch, self.at)
            known = self._frame = epoch, frame(event="task", data=move_view(self.entry), id=str(cursor))
        return known[1]


class Moves:
    """Some moves in their order, on their way to all clients who lack just these: joined into one block once."""

    __slots__ = ("_frame", "moments")

    def __init__(self, moments: Sequence[Moment]) -> None:
        self.moments = moments
        self._frame: tuple[str, bytes] | None = None

    def after(self, at: EntryId) -> "Moves":
        """Return those behind a place, which are nearly always all of them."""
        if not self.moments or self.moments[0].at > at:
            return self
        return Moves([moment for moment in self.moments if moment.at > at])

    def frame(self, epoch: str) -> bytes:
        """Return their events as one block."""
        known = self._frame  # as above
        if known is None or known[0] != epoch:
            known = self._frame = epoch, b"".join([moment.frame(epoch) for moment in self.moments])
        return known[1]


NO_MOVES = Moves(())


class Live:
    """A progress report or a log line: shown to those who listen now, and never kept.

    Raises KeyError, ValueError or TypeError for a message that is neither.
    """

    __slots__ = ("frame", "kind", "owner", "queue", "task", "type")

    def __init__(self, message: Mapping[str, Any]) -> None:
        self.kind, self.task = str(message["kind"]), str(message["id"])
        if self.kind not in ("progress", "log"):
            raise ValueError(f"kind: expected progress or log, got {self.kind!r}")
        self.type, self.queue = str(message.get("type", "")), str(message.get("queue", ""))
        self.owner = str(message.get("owner") or "")
        # It has no id, since nothing can be replayed from it.
        self.frame = frame(event=self.kind, data={name: value for name, value in message.items() if name != "kind"})

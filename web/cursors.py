"""Places in the history, as clients hold them: `<epoch>.<ms>-<sequence>`."""

import re
from dataclasses import dataclass

from ..jobs.names import as_entry_id

EntryId = tuple[int, int]
"""The id of a history entry, comparable: milliseconds and a sequence number."""

ORIGIN: EntryId = (0, 0)
"""Before every entry."""

_EPOCH = re.compile(r"[0-9A-Za-z]{1,32}")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the history of one database; the epoch tells a flushed or restored database from this one."""

    epoch: str
    at: EntryId

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        """Read what a client sent; None when it is no cursor."""
        epoch, _, place = text.partition(".")
        at = as_entry_id(place)
        return cls(epoch, at) if at and _EPOCH.fullmatch(epoch) else None

    def or_later(self, other: "Cursor") -> "Cursor":
        """Return the other place when it lies behind this one, in the same history."""
        return other if other.at > self.at and other.epoch == self.epoch else self

    def __str__(self) -> str:
        return f"{self.epoch}.{to_text(self.at)}"


def to_text(entry_id: EntryId) -> str:
    """Return the form that Redis knows."""
    return f"{entry_id[0]}-{entry_id[1]}"


def from_text(entry_id: str) -> EntryId:
    """Read the form that Redis uses. Raises ValueError for anything else."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)

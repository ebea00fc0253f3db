"""Tasks and history entries as frozen values, and their public JSON form."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from ..statemachine import FINAL, Policy, State
from .errors import CorruptRecord


@dataclass(frozen=True, slots=True)
class Task:
    """One task as Redis had it at one moment. All times are integer ms since 1970, by Redis' clock.

    `params`, `metadata`, `depends_on`, `result` and `error` are None in listings, which do not read them.
    """

    id: str
    type: str
    queue: str
    state: State
    attempt: int
    submitted_at: int
    entered_at: int
    policy: Policy
    owner: str | None = None
    worker_id: str | None = None
    started_at: int | None = None
    due_at: int | None = None
    timeout_at: int | None = None
    parked_at: int | None = None  # since when it waits for a worker that serves its type
    reason: str | None = None
    progress: float | None = None
    message: str | None = None
    progress_at: int | None = None
    failures: int = 0
    timeouts: int = 0
    losses: int = 0
    dependencies: int = 0  # how many tasks it depends on; `depends_on` are their ids
    cursor: str = ""  # id of its newest history entry
    params: Any = None
    metadata: Any = None
    depends_on: Sequence[str] | None = None
    result: Any = None
    error: str | None = None

    @classmethod
    def from_fields(
        cls, task_id: str, stored: Mapping[str, str], bulk: Mapping[str, str | None] | None = None
    ) -> "Task":
        """Read a task from its hash and its bulky values. Raises CorruptRecord naming the field."""
        try:
            return cls(id=task_id, **_scalars(stored), **_bulky(bulk or {}))
        except (KeyError, ValueError, RecursionError) as error:
            raise CorruptRecord(f"task {task_id}: {type(error).__name__} {error}") from error

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.state in FINAL

    @property
    def finished_at(self) -> int | None:
        """When it became final, in ms; None before."""
        return self.entered_at if self.is_final else None

    @property
    def version(self) -> str:
        """Changes with every change of what is shown: the newest entry, progress or parking, and the deadline."""
        return f"{self.cursor}.{max(self.progress_at or 0, self.parked_at or 0)}.{self.timeout_at or 0}"

    def to_dict(self) -> dict[str, Any]:
        """Return the public view, ready for JSON."""
        view = {field.name: getattr(self, field.name) for field in fields(self)}
        view["policy"] = {field.name: getattr(self.policy, field.name) for field in fields(self.policy)}
        view["finished_at"] = self.finished_at
        return view


_INTEGERS = ("attempt", "submitted_at", "entered_at")
_OPTIONAL_INTEGERS = ("started_at", "due_at", "timeout_at", "parked_at", "progress_at")
_COUNTERS = ("failures", "timeouts", "losses", "dependencies")
_OF_SCRIPTS = ("entries", "lease", "patience")  # read by scripts alone: what they call damaged is so for everybody
_TYPE_NAME = re.compile(r"[A-Za-z0-9._-]+")  # as in `lua/reading.lua`
_TEXTS = ("owner", "worker_id", "reason", "message")


def _whole(stored: Mapping[str, str], name: str) -> int:
    """Read a number as the scripts do, to which a record with any other text is damaged, and stays where it is."""
    text = stored[name]
    if not (text.isascii() and text.isdigit() and float(text) < 2**53):
        raise ValueError(f"field {name}: expected a whole number, got {text[:64]!r}")
    return int(text)


def _wholes(stored: Mapping[str, str], names: Iterable[str]) -> dict[str, int]:
    return {name: _whole(stored, name) for name in names if name in stored}


def _type_name(text: str) -> str:
    if not _TYPE_NAME.fullmatch(text):
        raise ValueError(f"field type: expected the name of a task type, got {text[:64]!r}")
    return text


def _finite(text: str) -> float:
    """Read a number that has a form in JSON."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"field progress: expected a number, got {text[:64]!r}")
    return value


def _scalars(stored: Mapping[str, str]) -> dict[str, Any]:
    _wholes(stored, _OF_SCRIPTS)
    return {
        "type": _type_name(stored["type"]),
        "queue": stored["queue"],
        "state": State(stored["state"]),
        "policy": Policy.unpack(stored["policy"], stored.get("clocks", "")),
        "progress": _finite(stored["progress"]) if "progress" in stored else None,
        "cursor": stored.get(f"h{stored.get('entries', 0)}", ""),
        **{name: _whole(stored, name) for name in _INTEGERS},
        **_wholes(stored, _OPTIONAL_INTEGERS + _COUNTERS),
        **{name: stored[name] for name in _TEXTS if name in stored},
    }


def _bulky(bulk: Mapping[str, str | None]) -> dict[str, Any]:
    decoded: dict[str, Any] = {name: json.loads(text) for name, text in bulk.items() if text and name != "error"}
    depends_on: object = decoded.get("depends_on", [])
    if not isinstance(depends_on, list) or not all(isinstance(one, str) for one in cast("list[object]", depends_on)):
        raise ValueError("depends_on is no list of ids")
    return decoded | {"error": bulk.get("error")}


@dataclass(frozen=True, slots=True)
class Entry:
    """One move of one task, as the history keeps it. `at` is ms since 1970, by Redis' clock."""

    id: str
    task: str
    event: str
    from_state: str
    to_state: str
    attempt: int
    actor: str
    reason: str
    message: str = ""
    type: str = ""
    queue: str = ""
    owner: str = ""

    @classmethod
    def from_fields(cls, entry_id: str, stored: Mapping[str, str]) -> "Entry":
        """Read an entry of the history stream. Raises CorruptRecord naming the entry."""
        try:
            given = {name: stored[name] for name in _ENTRY_TEXTS}
            return cls(
                id=entry_id,
                from_state=stored["from"],
                to_state=stored["to"],
                attempt=int(stored["attempt"]),
                **given,
            )
        except (KeyError, ValueError) as error:
            raise CorruptRecord(f"history entry {entry_id}: {type(error).__name__} {error}") from error

    @property
    def at(self) -> int:
        """When it happened, in ms."""
        return int(self.id.partition("-")[0])

    def to_dict(self) -> dict[str, Any]:
        """Return the public view, ready for JSON; the states are called `from` and `to` there."""
        return {
            "id": self.id,
            "at": self.at,
            "task": self.task,
            "event": self.event,
            "from": self.from_state or None,
            "to": self.to_state,
            "attempt": self.attempt,
            "actor": self.actor,
            "reason": self.reason,
            "message": self.message,
            "type": self.type,
            "queue": self.queue,
            "owner": self.owner or None,
        }


_ENTRY_TEXTS = ("task", "event", "actor", "reason", "message", "type", "queue", "owner")


def damaged_view(detail: str = "", **name: str) -> dict[str, Any]:
    """Return what stands for a record that cannot be read, under its id or name.

    The detail may quote the record: it is for operators, and not for the HTTP API.
    """
    return {**name, "damaged": True} | ({"detail": detail} if detail else {})

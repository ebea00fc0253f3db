"""One wish for many tasks: which are meant, what is to be done to them, and how far it is, as values."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from ..statemachine import ACTIONS, STORED, TABLE, Event, Reason, State
from . import bounds
from .errors import CorruptRecord, Fault, InvalidBulkAction
from .names import ID, KEY_LIMIT, MESSAGE_LIMIT, NAME, OWNER_LIMIT
from .values import cut, digest, mismatch, shown, text_fault

LIMIT: Final = bounds.Count(100_000)
"""Of the tasks that a bulk action acts on."""

USUAL_LIMIT: Final = 10_000
"""Tasks that a bulk action acts on at most, unless it says how many."""

IDS_MOST: Final = 1000
"""Tasks that a bulk action may name."""

LOOKED_AT: Final = ("state", "type", "queue", "owner", "entered_at")
"""The fields of a task's hash that a filter looks at."""

_GOES_AFTER: Final = (Event.CANCEL, Event.PAUSE)
"""These are meant for a task however far it has come meanwhile; the others answer a failure or a pause of before."""


def movable(action: str) -> tuple[State, ...]:
    """Return the states in which an action moves a task."""
    return tuple(state for state in STORED if (state, ACTIONS[action]) in TABLE)


@dataclass(frozen=True, slots=True)
class BulkFilter:
    """Which tasks are meant; what is None narrows nothing down, and neither do no ids.

    `after` and `before` bound the time of a task's last change of state, both included: seconds since 1970. A filter
    that narrows nothing down must say that it means `all`.
    """

    state: State | None = None
    type: str | None = None
    queue: str | None = None
    owner: str | None = None
    after: float | None = None
    before: float | None = None
    ids: Sequence[str] = ()
    all: bool = False

    @property
    def needs_records(self) -> bool:
        """Whether the indices of the states alone cannot answer it."""
        return bool(self.type or self.queue or self.owner or self.ids)

    @property
    def earliest(self) -> int:
        """The least time of entering its state that a task may have, in ms."""
        return _milliseconds(self.after or 0)

    @property
    def latest(self) -> int:
        """The greatest such time."""
        return _milliseconds(bounds.MOMENT.most if self.before is None else self.before)

    def states(self, action: str) -> tuple[State, ...]:
        """Return the states in which tasks are meant and moved by an action."""
        return tuple(state for state in movable(action) if self.state in (None, state))

    def accepts(self, task: Mapping[str, str | None]) -> bool:
        """Tell whether a task with these fields of its hash is meant; the scripts decide by the same rule."""
        pairs = ((getattr(self, name), task[name]) for name in ("state", "type", "queue", "owner"))
        entered_at = task["entered_at"] or ""
        is_in_time = entered_at.isdecimal() and self.earliest <= int(entered_at) <= self.latest
        return is_in_time and all(wanted is None or wanted == actual for wanted, actual in pairs)

    def faults(self, action: str) -> Iterator[tuple[str, str]]:
        """Yield each field and what is wrong with it, an empty text where nothing is."""
        is_narrow = self.ids or {self.state, self.type, self.queue, self.owner, self.after, self.before} != {None}
        yield "filter", "" if is_narrow or self.all else "narrows nothing down: give `all` if every task is meant"
        is_possible = self.state is None or self.state in movable(action)
        yield "filter.state", "" if is_possible else f"{action} moves tasks in {', '.join(movable(action))} only"
        yield "filter.type", "" if self.type is None else mismatch(self.type, NAME)
        yield "filter.queue", "" if self.queue is None else mismatch(self.queue, NAME)
        yield "filter.owner", "" if self.owner is None else text_fault(self.owner, OWNER_LIMIT)
        yield "filter.after", "" if self.after is None else bounds.fault(self.after, bounds.MOMENT)
        yield "filter.before", "" if self.before is None else bounds.fault(self.before, bounds.MOMENT)
        yield "filter.ids", _ids_fault(self.ids)

    def pack(self) -> str:
        """Return the stored form, without the ids, and with times in ms."""
        given = self.to_dict()
        times = {name: _milliseconds(given[name]) for name in ("after", "before") if name in given}
        return json.dumps(given | times)

    @classmethod
    def unpack(cls, text: str) -> "BulkFilter":
        """Read the stored form. Raises ValueError, TypeError."""
        stored = cast(dict[str, Any], json.loads(text))
        given = cls(**stored)
        after, before = (None if at is None else at / 1000 for at in (given.after, given.before))
        return replace(given, state=given.state and State(given.state), after=after, before=before)

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON: what narrows it down, without the ids."""
        given = {
            "state": self.state, "type": self.type, "queue": self.queue, "owner": self.owner,
            "after": self.after, "before": self.before, "all": self.all or None,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """A wish for many tasks, as it came in: an action of `ACTIONS` for those that the filter accepts, the oldest first.

    The same `idempotency_key` asks for the same bulk action again. `bound_to` is the owner whose tasks the caller may
    see, None for those of all.
    """

    action: str
    filter: BulkFilter
    limit: int = USUAL_LIMIT
    message: str = ""
    idempotency_key: str | None = None
    bound_to: str | None = None

    def checked(self) -> "BulkRequest":
        """Return it with the filter that its caller is bound to. Raises InvalidBulkAction naming every fault."""
        faults = [Fault(field, message) for field, message in self._faults() if message]
        if faults:
            raise InvalidBulkAction(faults)
        bound = replace(
            self.filter, owner=self.bound_to or self.filter.owner, ids=tuple(dict.fromkeys(self.filter.ids))
        )
        return replace(self, filter=bound, message=cut(self.message, MESSAGE_LIMIT))

    def _faults(self) -> Iterator[tuple[str, str]]:
        if self.action not in ACTIONS:
            yield "action", f"expected one of {', '.join(ACTIONS)}, got {shown(self.action)}"
            return
        yield from self.filter.faults(self.action)
        # To act on the caller's own tasks instead would be worse than to act on none.
        is_own = not self.bound_to or self.filter.owner in (None, self.bound_to)
        yield "filter.owner", "" if is_own else "expected your own, or none"
        yield "limit", "" if self.limit != 0 and self.limit in LIMIT else f"expected 1 to {LIMIT.most}"
        yield "idempotency_key", "" if self.idempotency_key is None else text_fault(self.idempotency_key, KEY_LIMIT)

    @property
    def fingerprint(self) -> str:
        """What tells it from another wish under the same idempotency key."""
        return _digest(self.action, self.filter.pack(), sorted(self.filter.ids), self.limit, self.message)

    def id_of_key(self) -> str | None:
        """Return the id that comes with the idempotency key, for each owner another one; None without a key."""
        return _digest(self.bound_to, self.idempotency_key) if self.idempotency_key else None

    def pack(self, actor: str) -> str:
        """Return the fields of the record with which the bulk action begins, as JSON."""
        event, wanted = ACTIONS[self.action], self.filter
        goes_after = event in _GOES_AFTER and wanted.state is None and wanted.before is None
        fields = {
            "event": event,
            "reason": Reason.OPERATOR if event is Event.RETRY else Reason.USER,
            "actor": actor,
            "message": self.message,
            "limit": str(self.limit),
            "filter": wanted.pack(),
            "number_of_ids": str(len(wanted.ids)),
            "states": ",".join(wanted.states(self.action)),
            "floor": str(wanted.earliest),
        }
        optional = {"goes_after": "1" if goes_after else "", "bound_to": self.bound_to or ""}
        return json.dumps(fields | {name: value for name, value in optional.items() if value})


COUNTS: Final = ("looked_at", "moved", "already", "refused", "damaged")
"""What a bulk action counts. The others that it looked at did not fit the filter."""


@dataclass(frozen=True, slots=True)
class BulkAction:
    """A bulk action as Redis had it at one moment. Times are ms since 1970, by Redis' clock."""

    id: str
    action: str
    filter: BulkFilter
    number_of_ids: int
    limit: int
    message: str
    actor: str
    bound_to: str | None  # the owner whose tasks its creator sees; None for an operator of all
    counts: Mapping[str, int]
    told: Sequence[Mapping[str, str]]  # the first tasks that could not be moved, and the state of those refused
    created_at: int
    ended_at: int | None = None
    stopped_by: str | None = None
    reached_limit: bool = False  # there may be more tasks that the filter accepts
    waits_for_watchdog: bool = False

    @property
    def state(self) -> str:
        """`running`, `done`, or `stopped` by somebody before it was done."""
        if self.ended_at is None:
            return "running"
        return "stopped" if self.stopped_by else "done"

    @property
    def note(self) -> str | None:
        """What holds it up, if anything does."""
        return "no watchdog runs: it waits for one" if self.waits_for_watchdog else None

    @classmethod
    def from_fields(cls, bulk_id: str, stored: Mapping[str, str], *, is_watched: bool) -> "BulkAction":
        """Read a bulk action from its hash. Raises CorruptRecord naming the field."""
        try:
            return cls(
                id=bulk_id,
                action=Event(stored["event"]).lower(),
                filter=BulkFilter.unpack(stored["filter"]),
                number_of_ids=int(stored["number_of_ids"]),
                limit=int(stored["limit"]),
                message=stored["message"],
                actor=stored["actor"],
                bound_to=stored.get("bound_to"),
                counts={name: int(stored.get(name, 0)) for name in COUNTS},
                told=[_told(stored[f"told{number}"]) for number in range(1, int(stored.get("told", 0)) + 1)],
                created_at=int(stored["created_at"]),
                ended_at=int(stored["ended_at"]) if "ended_at" in stored else None,
                stopped_by=stored.get("stopped_by"),
                reached_limit="reached_limit" in stored,
                waits_for_watchdog=not is_watched and "ended_at" not in stored,
            )
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptRecord(f"bulk action {bulk_id}: {type(error).__name__} {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the public view, ready for JSON."""
        return {
            "id": self.id,
            "action": self.action,
            "state": self.state,
            "filter": self.filter.to_dict(),
            "number_of_ids": self.number_of_ids,
            "limit": self.limit,
            "message": self.message,
            "counts": dict(self.counts),
            "told": list(self.told),
            "reached_limit": self.reached_limit,
            "created_at": self.created_at,
            "created_by": self.actor,
            "ended_at": self.ended_at,
            "stopped_by": self.stopped_by,
            "note": self.note,
        }


def _told(text: str) -> dict[str, str]:
    answer, task_id, state = text.split(" ", 2)
    return {"id": task_id, "answer": answer, "state": state}


def _ids_fault(ids: Sequence[str]) -> str:
    if len(ids) > IDS_MOST:
        return f"expected at most {IDS_MOST} ids, got {len(ids)}"
    return next((fault for one in ids if (fault := mismatch(one, ID))), "")


def _digest(*parts: object) -> str:
    return digest(json.dumps(parts))


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)

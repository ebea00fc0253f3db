"""Builds the full text of a script: what it needs of the rendered prelude and of the shared parts, then its verb.

The table, the states and the key names are written once, in Python; a changed one changes the text and so the SHA of
every script that looks at it, and an old process never runs a new table.

Redis runs the whole text at every call, and making tables and functions that nobody uses takes longer than most of the
work. So names of states, events, reasons and keys are put in place, and only what is named further on is kept.
"""

import pickle
import pickletools
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from importlib.resources import files
from itertools import chain

from ..statemachine import (
    ALREADY,
    BY_POLICY,
    FINAL,
    INITIAL,
    LOSSES,
    RUNNING,
    STORED,
    TABLE,
    UNRECORDED,
    WAITING_FOR_TIME,
    Event,
    Policy,
    Reason,
    State,
)
from ..statemachine.budget import BUDGETS, CLOCKS
from .definitions import definitions, needed, without_comments

ALWAYS = ("reading", "transition", "dependents")
"""Parts that stand before every verb: how a task is read and moves, and what its end means for others."""

SHARED = (
    *ALWAYS, "attempt", "person", "held", "batch", "claim_next", "look", "hand_over", "tickets", "awaited",
    "places", "invariants", "glance", "walk", "replay", "due",
)  # fmt: skip
"""Parts that verbs build on."""

VERBS = (
    "submit", "claim", "start", "finish", "heartbeat", "progress", "checkpoint", "log", "stage",
    "cancel", "pause", "resume", "retry", "begin_bulk", "work_bulk", "stop_bulk",
    "put_back", "unpark", "release", "sweep", "lose", "requeue",
    "settle", "recheck", "purge", "repair", "patrol", "prune", "unnamed", "recount", "subscribe", "listen", "dismiss",
    "dispatch", "revise", "note_worker",
)  # fmt: skip
"""The scripts, in the order of a task's life."""

TICKET_FUNCTION = "ghostless.jobs.ticket.run"
"""What rq is told to call for a task: one function without arguments, so that every ticket is alike."""

LONGEST_CALL = 1000
"""Bytes of the data of a ticket of any version, at most: that of a plain rq job may be megabytes, and is not read."""

VALUES = (
    "params", "secrets", "metadata", "callback", "depends_on", "unmet", "dependents", "checkpoint", "result", "error",
    "log",
)  # fmt: skip
"""What a task keeps beside its record, each in a key of its own."""

VALUE_TYPES = {"unmet": "set", "dependents": "zset", "log": "list"}
"""What some of them are in Redis; the others are strings."""

BATCH = 25
"""Tasks that one call moves, at most: about as many as take a millisecond, for which all others wait."""

BAND = 10**13
"""Times (ms) are below it until the year 2286."""

LISTED_FROM = {
    state: number * BAND
    for number, state in enumerate(
        (
            *(State.SCHEDULED, State.BLOCKED, State.PENDING, State.PROCESSING, State.PAUSING, State.PAUSED),
            *(State.CANCELLING, State.RETRY_WAITING, State.SUCCESS, State.FAILED, State.TIMEOUT_CANCELLED),
            State.CANCELLED,
        ),
        start=1,
    )
}
"""What is added to a time in the index of a queue's tasks of one type, so that one entry answers by the state as well.
The numbers stand in databases: a new state gets the next one.
"""

WAKE_HINTS = 100
"""Most hints kept for the idle workers of one queue."""

RESULTS_LIMIT = 1024 * 1024
"""Bytes of the results of its dependencies that an attempt gets."""

_USES = re.compile(r"^-- uses (.+)$", re.MULTILINE)
_NAME = re.compile(r"\b(?:State|Event|Reason|key)\.\w+")


@cache
def source(part: str) -> str:
    """Return the text of one file as it is. Raises FileNotFoundError for an unknown part."""
    return files(__name__.rpartition(".")[0]).joinpath(f"{part}.lua").read_text(encoding="utf-8")


def render_all(names: Mapping[str, str]) -> dict[str, str]:
    """Return the whole script of each verb; `names` are the key names of `jobs.keys.script_names`."""
    beginning, literals = prelude(names), _literals(names)
    parts = {part: definitions(_code(source(part), literals)) for part in SHARED}
    return {
        verb: _assemble(_code(source(verb), literals), beginning, (parts[part] for part in _parts_of(verb)))
        for verb in VERBS
    }


def build(code: str, names: Mapping[str, str], *parts: str) -> str:
    """Return a script that runs some code, before it what that needs of the prelude and of these parts.

    Raises KeyError for the name of a state, an event, a reason or a key that is not there.
    """
    literals = _literals(names)
    pieces = (definitions(_code(source(part), literals)) for part in (*ALWAYS, *parts))
    return _assemble(_code(code, literals), prelude(names), pieces)


def _parts_of(verb: str) -> tuple[str, ...]:
    uses = _USES.search(source(verb))
    return (*ALWAYS, *(uses.group(1).split(", ") if uses else ()))


def _code(text: str, literals: Mapping[str, str]) -> str:
    return _NAME.sub(lambda found: literals[found[0]], without_comments(text))


def _assemble(code: str, beginning: Iterable[str], parts: Iterable[Iterable[str]]) -> str:
    return "\n".join([*needed([*beginning, *chain.from_iterable(parts)], code), code])


def prelude(names: Mapping[str, str]) -> list[str]:
    """Render the table, the fixed lists and the key names, each as a Lua local in one line."""
    return [
        *(_local(name, values) for name, values in _names(names).items()),
        _local("MOVES", {f"{state} {event}": target for (state, event), target in TABLE.items()}),
        _local("ALREADY", _set(f"{state} {event}" for state, event in ALREADY)),
        _local("INITIAL", _set(INITIAL)),
        _local("UNRECORDED", _set(UNRECORDED)),
        _local("STORED", {state: str(LISTED_FROM[state]) for state in sorted(STORED)}),
        _local("FINAL", _set(FINAL)),
        _local("RUNNING", _set(RUNNING)),
        _local("WAITING_FOR_TIME", _set(WAITING_FOR_TIME)),
        _local("LOSSES", _set(LOSSES)),
        _local("REASONS", _set(Reason)),
        _local("BUDGETS", BUDGETS),
        f"local BY_POLICY = {_quote(BY_POLICY)}",
        _local("TERMS", _terms()),
        _local("DEFAULT_TERMS", {name: str(getattr(Policy(), name)) for name in _terms()}),
        f"local TICKET_FUNCTION = {_quote(TICKET_FUNCTION)}",
        f"local LONGEST_CALL = {LONGEST_CALL}",
        f"local TICKET = {{{', '.join(map(_quote, _ticket()))}}}",
        f"local VALUES = {{{', '.join(map(_quote, VALUES))}}}",
        _local("VALUE_TYPES", VALUE_TYPES),
        f"local BATCH = {BATCH}",
        f"local WAKE_HINTS = {WAKE_HINTS}",
        f"local RESULTS_LIMIT = {RESULTS_LIMIT}",
    ]


def _names(names: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """Return the tables whose fields are put in place; one that is looked at by a computed name is there as well."""
    return {"State": _by_name(State), "Event": _by_name(Event), "Reason": _by_name(Reason), "key": names}


def _literals(names: Mapping[str, str]) -> dict[str, str]:
    """Return what stands for each name of a field of these tables."""
    tables = _names(names).items()
    return {f"{table}.{name}": _quote(value) for table, values in tables for name, value in values.items()}


def _terms() -> dict[str, str]:
    """Return by which pattern each field of a packed policy is found; its clocks are a matter of workers."""
    names = [field.name for field in fields(Policy)][:-CLOCKS]
    return {name: "^" + "%d+," * place + "(%d+)" for place, name in enumerate(names)}


def _ticket() -> tuple[str, ...]:
    """Return the constant fields of a ticket: a job that never times out in rq and leaves nothing behind.

    Pickle protocol 0 is text, short without its notes for what comes twice, and the call holds no data of the task. A
    second is the shortest life of what rq calls a failed job, since a zero would make rq search its queue for it.
    """
    call = pickletools.optimize(pickle.dumps((TICKET_FUNCTION, None, (), {}), protocol=0)).decode("ascii")
    return ("data", call, "status", "queued", "timeout", "-1", "result_ttl", "0", "failure_ttl", "1")


def _by_name(names: type[StrEnum]) -> dict[str, str]:
    return {member.name: member.value for member in names}


def _set(values: Iterable[str]) -> dict[str, bool]:
    return dict.fromkeys(sorted(values), True)


def _local(name: str, table: Mapping[str, str | bool]) -> str:
    items = (f"[{_quote(key)}]={'true' if value is True else _quote(str(value))}" for key, value in table.items())
    return f"local {name} = {{{', '.join(items)}}}"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

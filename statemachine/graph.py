"""Checks the table as a graph: no state out of reach, none without a way out, none that nothing moves."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from .events import Event
from .states import FINAL, STORED, TRANSIENT, State
from .table import ALREADY, INITIAL, TABLE

Table = Mapping[tuple[State, Event], State]

DRIVERS: Final[Mapping[State, str]] = MappingProxyType(
    {
        State.SCHEDULED: "the watchdog releases it into its queue when its time has come",
        State.BLOCKED: "each task it depends on releases or cancels it on ending; the watchdog looks again",
        State.PENDING: "a worker of its queue starts it; the watchdog makes a new ticket when its own is gone",
        State.PROCESSING: "its worker ends it; the watchdog takes it away when its lease or its time is over",
        State.PAUSING: "its worker suspends it; the watchdog pauses it when its lease or its time is over",
        State.PAUSED: "a person resumes or cancels it; it waits for that and for nothing else",
        State.CANCELLING: "its worker confirms the stop; the watchdog cancels it when its lease or its time is over",
        State.RETRY_WAITING: "the watchdog releases it into its queue when the wait before its next attempt is over",
        State.SUCCESS: "nothing; it is purged when its retention ends",
        State.FAILED: "nothing, unless an operator retries it; it is purged when its retention ends",
        State.TIMEOUT_CANCELLED: "nothing, unless an operator retries it; it is purged when its retention ends",
        State.CANCELLED: "nothing; it is purged when its retention ends",
    }
)
"""What moves a task on from each state, in one line."""

DRIVING_EVENTS: Final[Mapping[State, Event]] = MappingProxyType(
    {
        State.SCHEDULED: Event.RELEASE,
        State.BLOCKED: Event.RELEASE,
        State.PENDING: Event.START,
        State.PROCESSING: Event.TIMEOUT,
        State.PAUSING: Event.TIMEOUT,
        State.PAUSED: Event.RESUME,
        State.CANCELLING: Event.TIMEOUT,
        State.RETRY_WAITING: Event.RELEASE,
    }
)
"""The event that moves a task on even when its worker is dead; only PAUSED waits for a person's."""


def problems(
    table: Table = TABLE,
    initial: Iterable[State] = INITIAL,
    already: Iterable[tuple[State, Event]] = ALREADY,
    drivers: Mapping[State, str] = DRIVERS,
    driving: Mapping[State, Event] = DRIVING_EVENTS,
) -> list[str]:
    """Return what is wrong with the table, one sentence each; an empty list when nothing is."""
    already = frozenset(already)
    return [
        *_out_of_reach(table, initial),
        *_without_end(table),
        *_leaving_final(table),
        *_undriven(table, drivers, driving),
        *_beyond_a_person(table, already),
        *(f"{state} {event} is both a move and already so" for state, event in table if (state, event) in already),
    ]


def reachable(table: Table, start: Iterable[State]) -> set[State]:
    """Return every state that some chain of events leads to, the start included."""
    found: set[State] = set()
    waiting = list(start)
    while waiting:
        state = waiting.pop()
        if state not in found:
            found.add(state)
            waiting += [target for (source, _), target in table.items() if source is state]
    return found


def _out_of_reach(table: Table, initial: Iterable[State]) -> list[str]:
    reached = reachable(table, initial)
    return [f"{state} cannot be reached" for state in State if state not in reached]


def _without_end(table: Table) -> list[str]:
    return [
        f"{state} has no way to a final state"
        for state in State
        if state not in FINAL and not reachable(table, [state]) & FINAL
    ]


def _leaving_final(table: Table) -> list[str]:
    return [
        f"{state} is final, and {event} leads out of it"
        for (state, event), target in table.items()
        if state in FINAL and target is not state and event is not Event.RETRY
    ]


def _undriven(table: Table, drivers: Mapping[State, str], driving: Mapping[State, Event]) -> list[str]:
    found = [f"nothing is said to move {state} on" for state in STORED if state not in drivers]
    found += [f"{state} is never stored, and yet has a driver" for state in TRANSIENT if state in drivers]
    for state in STORED:
        if state in FINAL:
            continue
        event = driving.get(state)
        if event is None:
            found.append(f"no event moves {state} on by itself")
        elif (state, event) not in table:
            found.append(f"{state} is to be moved on by {event}, which is not in the table")
    return found


def _beyond_a_person(table: Table, already: frozenset[tuple[State, Event]]) -> list[str]:
    answered = table.keys() | already
    return [f"{state} cannot be cancelled" for state in STORED if (state, Event.CANCEL) not in answered]

"""Looks at stored tasks one by one: whether their indices, tickets and histories are what their state demands."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis

from ..statemachine import FINAL, INITIAL, RUNNING, TABLE, UNRECORDED, WAITING_FOR_TIME, Event, State
from .errors import CorruptRecord
from .keys import Keys
from .model import Task
from .reads import entry_ids
from .scripts import translated


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken invariant: which rule, whose, what is wrong, and what becomes of it."""

    rule: str
    task_id: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.task_id}: {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class _Case:
    """A task as stored, and what the keys around it answered."""

    task_id: str
    stored: Mapping[str, str]
    answers: Mapping[str, Any]
    entries: Sequence[Mapping[str, str]]


class Examination:
    """Examines tasks of one database, a batch in two round trips, writing nothing."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis, self.keys = redis, keys

    def examine(self, task_ids: Sequence[str]) -> list[Problem]:
        """Return what is wrong with these tasks; one that is gone has nothing wrong. Raises RedisUnavailable."""
        found: list[Problem] = []
        whole: list[tuple[str, Mapping[str, str]]] = []
        for task_id, stored in self._records(task_ids):
            fault = _fault(task_id, stored)
            if fault:
                found.append(Problem("a", task_id, fault, "look at its key by hand"))
            else:
                whole.append((task_id, stored))
        for case in self._cases(whole):
            found += _problems(self.keys, case)
        return found

    def _records(self, task_ids: Sequence[str]) -> Iterator[tuple[str, Any]]:
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                pipeline.hgetall(self.keys.task(task_id))
            records = pipeline.execute(raise_on_error=False)
        yield from ((task_id, record) for task_id, record in zip(task_ids, records, strict=True) if record)

    def _cases(self, records: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[_Case]:
        asked = [_asked(self.keys, task_id, stored) for task_id, stored in records]
        ids = [entry_ids(task_id, stored) for task_id, stored in records]
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for (task_id, _), scores, entries in zip(records, asked, ids, strict=True):
                for index in scores:
                    pipeline.zscore(index, task_id)
                for entry_id in entries:
                    pipeline.xrange(self.keys.history, entry_id, entry_id)
            replies = iter(pipeline.execute(raise_on_error=False))
        for (task_id, stored), scores, entries in zip(records, asked, ids, strict=True):
            answers = {index: next(replies) for index in scores}
            history = [_entry(next(replies)) for _ in entries]
            yield _Case(task_id, stored, answers, history)


def _fault(task_id: str, stored: Any) -> str:
    if isinstance(stored, Exception):
        return f"its record is no hash ({stored})"
    try:
        Task.from_fields(task_id, stored)
        entry_ids(task_id, stored)
    except CorruptRecord as error:
        return f"its record cannot be read ({error.detail})"
    return ""


def _entry(reply: Any) -> Mapping[str, str]:
    return cast(Mapping[str, str], reply[0][1]) if isinstance(reply, list) and reply else {}


def demanded(keys: Keys, stored: Mapping[str, str]) -> list[str]:
    """Return the sorted sets in which a task in this state must stand."""
    state = State(stored["state"])
    indices = [keys.state(state)]
    if state is State.PENDING:
        indices.append(keys.pending(stored["queue"]))
    elif state in RUNNING:
        indices.append(keys.deadlines)
    elif state in WAITING_FOR_TIME:
        indices.append(keys.due)
    elif state in FINAL:
        indices.append(keys.retention)
    return indices


def _asked(keys: Keys, task_id: str, stored: Mapping[str, str]) -> list[str]:
    everywhere = [keys.deadlines, keys.due, keys.retention, keys.pending(stored["queue"])]
    return [*dict.fromkeys([*demanded(keys, stored), *everywhere, *map(keys.state, State)])]


def _problems(keys: Keys, case: _Case) -> Iterator[Problem]:
    wanted = set(demanded(keys, case.stored))
    for index, score in case.answers.items():
        if (score is not None) != (index in wanted):
            wrong = f"it is {case.stored['state']} and {'not ' if index in wanted else ''}in {index}"
            yield Problem("b", case.task_id, wrong, "its index entries are written again from its record")
    yield from _untold(case)


def _untold(case: _Case) -> Iterator[Problem]:
    state, attempt = "", 0
    for number, entry in enumerate(case.entries, start=1):
        if not entry:
            yield Problem("e", case.task_id, f"move {number} is not in the history", "it cannot be brought back")
            return
        if not _is_legal(state, entry):
            wrong = f"move {number}, {entry.get('event')} from {entry.get('from')} to {entry.get('to')}, is not legal"
            yield Problem("e", case.task_id, wrong, "it cannot be undone")
        attempt += entry.get("event") == Event.START
        state = entry.get("to", "")
    if state != case.stored["state"]:
        wrong = f"it is {case.stored['state']}, and its history ends in {state or 'nothing'}"
        yield Problem("e", case.task_id, wrong, "look at `ghostless history`")
    if attempt != int(case.stored["attempt"]):
        wrong = f"it is at attempt {case.stored['attempt']}, and its history has {attempt} starts"
        yield Problem("e", case.task_id, wrong, "look at `ghostless history`")


def _is_legal(state: str, entry: Mapping[str, str]) -> bool:
    event, source, target = entry.get("event"), entry.get("from"), entry.get("to")
    if event not in set(Event) or event in UNRECORDED or source != state:
        return False
    if not state:
        return event == Event.SUBMIT and target in INITIAL
    return TABLE.get((State(state), Event(event))) == target

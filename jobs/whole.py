"""Tasks whole, with all that belongs to them, as they are archived."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from .errors import CorruptRecord
from .model import Entry, Task
from .reads import BULKY, Reads, entry_ids
from .scripts import milliseconds, translated

VALUES = (*BULKY, "checkpoint", "callback")
"""What is kept of a task as text beside its record."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All that Redis has of one task, as it stands there."""

    id: str
    fields: Mapping[str, str]
    values: Mapping[str, str | None]
    log: Sequence[str]
    entries: Sequence[tuple[str, Mapping[str, str]]] = ()

    @property
    def last_entry(self) -> str:
        """The id of its last history entry. A final task changes only by a move, so this tells whether it changed."""
        return self.fields.get(f"h{self.fields.get('entries')}", "")

    def to_line(self, now: int) -> str:
        """Return it as JSON for an archive, at the time `now` (ms); what makes no sense stands there as it is."""
        try:
            content = self._content()
        except (CorruptRecord, ValueError, RecursionError) as error:
            content = {"damaged": str(error), **asdict(self)}
        return json.dumps({"id": self.id, "archived_at": now} | content)

    def _content(self) -> dict[str, Any]:
        if str(len(self.entries)) != self.fields.get("entries"):
            raise CorruptRecord(f"task {self.id}: {len(self.entries)} of its history entries are there")
        values = dict(self.values)
        checkpoint, callback = values.pop("checkpoint"), values.pop("callback")
        return {
            "task": Task.from_fields(self.id, self.fields, values).to_dict(),
            "callback_url": callback,
            "checkpoint": None if checkpoint is None else json.loads(checkpoint),
            "log": self.log,
            "history": [Entry.from_fields(*entry).to_dict() for entry in self.entries],
        }


def outdated(reads: Reads, most: int) -> tuple[int, list[str]]:
    """Return Redis' time in ms, and the first tasks whose retention is over then."""
    with translated(), reads.redis.pipeline(transaction=False) as pipeline:
        pipeline.time()
        pipeline.zrange(reads.keys.retention, 0, most - 1, withscores=True)
        time, places = cast(tuple[tuple[int, int], list[tuple[str, float]]], pipeline.execute())
    now = milliseconds(time)
    return now, [task_id for task_id, purge_at in places if purge_at <= now]


def read_wholes(reads: Reads, task_ids: Sequence[str]) -> tuple[list[Whole], list[str]]:
    """Return those of the tasks that are there, and what keeps others from being read, in two round trips."""
    wholes: list[Whole] = []
    problems: list[str] = []
    for task_id, answers in zip(task_ids, _answers(reads, task_ids), strict=True):
        broken = next((answer for answer in answers if isinstance(answer, Exception)), None)
        if broken:
            problems.append(f"task {task_id} cannot be archived, and stays: {broken}")
        elif answers[0]:
            fields, *values, log = answers
            wholes.append(Whole(task_id, fields, dict(zip(VALUES, values, strict=True)), log))
    return _with_entries(reads, wholes, problems), problems


def _answers(reads: Reads, task_ids: Sequence[str]) -> list[list[Any]]:
    with translated(), reads.redis.pipeline(transaction=False) as pipeline:
        for task_id in task_ids:
            # The record first: were a value newer, the task moved on since, and the purge will see that.
            pipeline.hgetall(reads.keys.task(task_id))
            for name in VALUES:
                pipeline.get(getattr(reads.keys, name)(task_id))
            pipeline.lrange(reads.keys.log(task_id), 0, -1)
        answers = pipeline.execute(raise_on_error=False)
    size = 2 + len(VALUES)
    return [answers[start : start + size] for start in range(0, len(answers), size)]


def _entry_ids(whole: Whole) -> list[str]:
    ids = entry_ids(f"task {whole.id}", whole.fields)
    if not ids:  # nothing would tell whether it changed
        raise CorruptRecord(f"task {whole.id}: no history")
    return ids


def _with_entries(reads: Reads, wholes: Sequence[Whole], problems: list[str]) -> list[Whole]:
    ids: dict[str, list[str]] = {}
    for whole in wholes:
        try:
            ids[whole.id] = _entry_ids(whole)
        except CorruptRecord as error:
            problems.append(f"task {whole.id} cannot be archived, and stays: {error.detail}")
    read = [whole for whole in wholes if whole.id in ids]
    with translated(), reads.redis.pipeline(transaction=False) as pipeline:
        for whole in read:
            for name in ids[whole.id]:
                pipeline.xrange(reads.keys.history, name, name)
            pipeline.hget(reads.keys.task(whole.id), f"h{whole.fields['entries']}")
        found = iter(pipeline.execute())
    unchanged: list[Whole] = []
    for whole in read:
        entries = [entry for _ in ids[whole.id] for entry in next(found)]
        if next(found) == whole.last_entry:  # else another archivist has purged it meanwhile, and has it whole
            unchanged.append(replace(whole, entries=entries))
    return unchanged

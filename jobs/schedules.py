"""Schedules as they stand in Redis: one hash, a JSON record each, changed only by compare-and-set."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from redis import Redis
from redis.client import Pipeline

from .errors import CorruptRecord, Fault, InvalidTask, ScheduleNotFound
from .keys import Keys
from .model import damaged_view
from .names import NAME
from .recurrence import Misfire, Overlap, Recurrence
from .scripts import milliseconds, translated
from .values import mismatch

log = logging.getLogger("ghostless")

BY_CODE = "task"
"""The source of what `@task(cron=…)` declares."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A task that is submitted again and again. Times are ms since 1970, by Redis' clock."""

    name: str
    type: str
    recurrence: Recurrence
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    queue: str | None = None
    misfire: Misfire = "once"
    overlap: Overlap = "allow"
    source: str = "cli"  # who registered it: a person, or `BY_CODE`
    paused: bool = False
    due: int = 0  # the next run
    last_due: int | None = None
    last_task: str | None = None
    last_problem: str = ""
    skipped: int = 0  # runs left out since it was registered
    declared: bool = False  # by code, whoever wrote what stands here now
    removed: bool = False  # by a person, though code declares it: kept so that it does not come back

    def check(self) -> None:
        """Raise InvalidTask naming what cannot be used; the params are checked when the type is known."""
        if wrong := mismatch(self.name, NAME):
            raise InvalidTask([Fault("name", wrong)])
        self.recurrence.check()

    def pack(self) -> str:
        """Return the stored form."""
        return _JSON.dump_json(self).decode()

    @classmethod
    def unpack(cls, name: str, text: str) -> "Schedule":
        """Read the stored form; what a later version added is passed over. Raises CorruptRecord."""
        try:
            schedule = _JSON.validate_json(text)
            schedule.check()
        except (ValidationError, InvalidTask) as error:
            raise CorruptRecord(f"schedule {name}: {' '.join(str(error).split())}") from error
        if schedule.name != name:  # what became of its runs would be noted elsewhere
            raise CorruptRecord(f"schedule {name}: its record is of {schedule.name!r}")
        return schedule


_JSON = TypeAdapter(Schedule)


class Schedules:
    """The schedules of one database. Every function raises RedisUnavailable when Redis does not answer."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis, self._key = redis, keys.schedules

    def all(self) -> tuple[dict[str, Schedule | CorruptRecord], int]:
        """Return every schedule by name, a damaged one as its error, and the time in ms."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(self._key)
            pipeline.time()
            stored, time = cast(tuple[dict[str, str], tuple[int, int]], pipeline.execute())
        found = {name: _read(name, stored[name]) for name in sorted(stored)}
        return {name: one for name, one in found.items() if not _is_removed(one)}, milliseconds(time)

    def get(self, name: str) -> Schedule:
        """Return one schedule. Raises ScheduleNotFound, CorruptRecord."""
        with translated():
            text = cast("str | None", self.redis.hget(self._key, name))
        return _needed(name, None if text is None else Schedule.unpack(name, text))

    def put(self, schedule: Schedule) -> bool:
        """Register a schedule or change what it does; tell whether anything changed. Raises InvalidTask.

        The first run is the next due time, never at once. One that is there already with the same definition keeps
        its due time.
        """
        schedule.check()
        return self._change(schedule.name, lambda there, now: _registered(schedule, there, now))

    def declare(self, types: Mapping[str, Mapping[str, Any]]) -> None:
        """Register the schedules that published task types declare, each under its type's name.

        What code declared before is changed, or forgotten, as the code says now. A person's word stands: a schedule
        that somebody registered under the name is left alone, one that was paused stays so, and one that was removed
        does not come back.
        """
        with translated():
            stored = cast("list[str | None]", self.redis.hmget(self._key, list(types))) if types else []
        for (name, kind), text in zip(types.items(), stored, strict=True):
            if text is not None or "schedule" in kind:
                self._declare(name, kind.get("schedule"))

    def _declare(self, name: str, timetable: Mapping[str, Any] | None) -> None:
        try:
            self._change(name, lambda there, now: _declared(name, timetable, there, now))
        except CorruptRecord as error:  # which must keep no worker from starting
            log.error("%s; remove it and publish the task types again", error)

    def pause(self, name: str) -> bool:
        """Let nothing run until it is resumed. Raises ScheduleNotFound."""
        return self._change(name, lambda there, now: replace(_needed(name, there), paused=True))

    def resume(self, name: str) -> bool:
        """Let it run again, from its next due time on. Raises ScheduleNotFound."""
        return self._change(name, lambda there, now: _resumed(_needed(name, there), now))

    def remove(self, name: str) -> None:
        """Forget a schedule; tasks that it submitted stay. Raises ScheduleNotFound."""
        try:
            self._change(name, lambda there, now: _removed(_needed(name, there)))
        except CorruptRecord:  # nobody can tell where it came from
            with translated():
                self.redis.hdel(self._key, name)

    def advance(self, before: Schedule, after: Schedule) -> bool:
        """Write what became of a due run, unless somebody else changed the schedule meanwhile."""
        return self._change(before.name, lambda there, now: after if there == before else there)

    def _change(self, name: str, change: Callable[[Schedule | None, int], Schedule | None]) -> bool:
        changed = False

        def attempt(pipeline: Pipeline) -> None:
            nonlocal changed
            text = cast("str | None", pipeline.hget(self._key, name))
            now = milliseconds(pipeline.time())
            there = None if text is None else Schedule.unpack(name, text)
            wanted = change(there, now)
            changed = wanted != there
            pipeline.multi()
            if wanted is None:
                pipeline.hdel(self._key, name)
            elif changed:
                pipeline.hset(self._key, name, wanted.pack())

        with translated():
            self.redis.transaction(attempt, self._key)
        return changed


def _read(name: str, text: str) -> Schedule | CorruptRecord:
    try:
        return Schedule.unpack(name, text)
    except CorruptRecord as error:
        return error


def as_dict(name: str, schedule: Schedule | CorruptRecord, *, for_operators: bool = False) -> dict[str, Any]:
    """Return the form for JSON, also of one that cannot be read; operators are told why."""
    if isinstance(schedule, CorruptRecord):
        return damaged_view(schedule.detail if for_operators else "", name=name)
    return {field: value for field, value in asdict(schedule).items() if field != "removed"}


def _is_removed(schedule: Schedule | CorruptRecord) -> bool:
    return isinstance(schedule, Schedule) and schedule.removed


def _removed(schedule: Schedule) -> Schedule | None:
    return replace(schedule, removed=True) if schedule.declared else None


def _declared(name: str, timetable: Mapping[str, Any] | None, there: Schedule | None, now: int) -> Schedule | None:
    """Return what is to stand in Redis when a published type declares this timetable, or none."""
    is_by_person = there is not None and (there.source != BY_CODE or there.removed)
    if timetable is None:
        return replace(there, declared=False) if there and is_by_person and not there.removed else None
    if there and is_by_person:
        return replace(there, declared=True)
    recurrence = Recurrence(timetable["cron"], timetable["tz"])
    options = {"misfire": timetable["misfire"], "overlap": timetable["overlap"]}
    return _registered(Schedule(name, name, recurrence, source=BY_CODE, declared=True, **options), there, now)


def _registered(schedule: Schedule, there: Schedule | None, now: int) -> Schedule:
    if there is not None and there.removed:
        return replace(_registered(schedule, None, now), declared=True)
    if there is not None and _rhythm(there) == _rhythm(schedule):
        return replace(there, **{name: getattr(schedule, name) for name in _WRITTEN})
    anchored = replace(schedule.recurrence, start=now if schedule.recurrence.every else 0)
    past = {name: getattr(there, name) for name in _PAST} if there else {}
    return replace(schedule, recurrence=anchored, due=anchored.next_after(now), **past)


_WRITTEN = ("type", "params", "queue", "misfire", "overlap", "source")
"""What its owner wrote, beside the recurrence."""

_PAST = ("paused", "last_due", "last_task", "last_problem", "skipped", "declared")


def _rhythm(schedule: Schedule) -> Recurrence:
    return replace(schedule.recurrence, start=0)


def _resumed(schedule: Schedule, now: int) -> Schedule:
    if not schedule.paused:
        return schedule
    return replace(schedule, paused=False, due=schedule.recurrence.next_after(now))


def _needed(name: str, there: Schedule | None) -> Schedule:
    if there is None or there.removed:
        raise ScheduleNotFound(name)
    return there

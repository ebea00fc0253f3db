"""What already happened, read for streams: where the history stands, what it still has, and the moves of tasks."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from ..jobs.errors import CorruptRecord, TaskNotFound
from ..jobs.model import Entry, Task
from ..jobs.reads import Reads, entry_ids
from ..jobs.scripts import translated
from .cursors import ORIGIN, Cursor, EntryId, from_text, to_text
from .frames import Moment
from .limits import Gate
from .watch import Watch

PAGE = 500
"""Entries that one read returns."""

PAGES_LIMIT = 100
"""Pages of the whole history that one replay looks through; who is further behind fetches anew."""


class Incomplete(Exception):
    """A replay cannot tell everything: it was too much (`behind`), or some of it is gone."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"not everything can be replayed: {reason}")


@dataclass(frozen=True, slots=True)
class Story:
    """One task as a stream sees it: its state, and the ids of its moves."""

    task: Task
    entries: tuple[EntryId, ...]

    @classmethod
    def read(cls, task_id: str, stored: Mapping[str, str]) -> "Story":
        """Read a task's hash. Raises CorruptRecord."""
        task = Task.from_fields(task_id, stored)
        entries = tuple(map(from_text, entry_ids(f"task {task_id}", stored)))
        if not entries:
            raise CorruptRecord(f"task {task_id}: no history")
        return cls(task, entries)

    def is_over(self, at: EntryId) -> bool:
        """Tell whether the task is final, and who has seen everything up to `at` has seen that."""
        return self.task.is_final and self.entries[-1] <= at


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The history at one moment, and those of some tasks that there are; the others were purged, or never were."""

    newest: Cursor
    deleted: EntryId  # the newest entry that a purge removed
    cursor_found: bool
    stories: Mapping[str, Story]
    missing: tuple[str, ...] = ()

    def doubt(self, cursor: Cursor) -> str | None:
        """Say why the moves after a cursor may not be all there; None when they are."""
        if cursor.epoch != self.newest.epoch:
            return "epoch"
        if cursor.at > self.newest.at:
            return "ahead"
        # A named task's moves live as long as the task: while all of them are there, none of theirs is missing.
        if self.deleted > cursor.at and (self.missing or not self.stories):
            return "purged"
        never_was = not self.cursor_found and cursor.at != ORIGIN and cursor.at > self.deleted
        return "lost" if never_was else None


class Past:
    """Reads of the history. Safe to use from several threads; each call raises RedisUnavailable."""

    def __init__(self, reads: Reads) -> None:
        self.redis, self.keys = reads.redis, reads.keys
        self._reads = reads
        self._gate = Gate("reads")

    def newest(self) -> Cursor:
        """Return where the history ends now."""
        return self.look().newest

    def task(self, task_id: str) -> Task:
        """Return a task whole. Raises TaskNotFound, CorruptRecord."""
        with self._reading():
            return self._reads.task(task_id)

    def epoch(self) -> str:
        """Return the id of the database, writing one when there is none yet."""
        with self._reading():
            return self._reads.epoch()

    @contextmanager
    def _reading(self) -> Generator[None]:
        with self._gate.turn(), translated():
            yield

    def look(self, tasks: Sequence[str] = (), cursor: Cursor | None = None) -> Snapshot:
        """Return the history's shape and these tasks at one moment. Raises CorruptRecord."""
        here = to_text(cursor.at if cursor else ORIGIN)
        # A full Redis refuses a MULTI. Where the history ends needs none: read after the epoch, it fits it or is newer.
        with self._reading(), self.redis.pipeline(transaction=bool(tasks or cursor)) as pipeline:
            pipeline.get(self.keys.epoch)
            pipeline.xinfo_stream(self.keys.history)
            pipeline.xrange(self.keys.history, here, here)
            for task_id in tasks:
                pipeline.hgetall(self.keys.task(task_id))
            epoch, stream, found, *hashes = pipeline.execute(raise_on_error=False)
        newest, deleted = ends(stream)
        found_tasks = {task_id: stored for task_id, stored in zip(tasks, hashes, strict=True) if stored}
        stories = {task_id: _story(task_id, stored) for task_id, stored in found_tasks.items()}
        missing = tuple(task_id for task_id in tasks if task_id not in stories)
        return Snapshot(Cursor(epoch or self._reads.epoch(), newest), deleted, bool(found), stories, missing)

    def entry(self, at: EntryId) -> Entry | None:
        """Return the entry at this place, if there is one that can be read."""
        here = to_text(at)
        with self._reading():
            page = cast(list[tuple[str, dict[str, str]]], self.redis.xrange(self.keys.history, here, here))
        return next((moment.entry for moment in Moment.readable(page)), None)

    def why_missing(self, task_id: str) -> TaskNotFound:
        """Return the error that tells whether a task which was not there had been purged. Raises CorruptRecord."""
        try:
            self.task(task_id)
        except TaskNotFound as error:
            return error
        return TaskNotFound(task_id)  # submitted since

    def stories(self, tasks: Iterable[str]) -> list[Story]:
        """Return those of the tasks that were not purged."""
        tasks = list(tasks)
        with self._reading(), self.redis.pipeline(transaction=False) as pipeline:
            for task_id in tasks:
                pipeline.hgetall(self.keys.task(task_id))
            hashes = cast(list[dict[str, str]], pipeline.execute())
        return [Story.read(task_id, stored) for task_id, stored in zip(tasks, hashes, strict=True) if stored]

    def moves_of(self, stories: Mapping[str, Story], after: EntryId) -> Iterator[list[Moment]]:
        """Yield the tasks' own moves after a place, oldest first, by pages. Raises TaskNotFound, CorruptRecord."""
        owners = {at: task_id for task_id, story in stories.items() for at in story.entries if at > after}
        ids = sorted(owners)
        for start in range(0, len(ids), PAGE):
            yield self._entries({at: owners[at] for at in ids[start : start + PAGE]})

    def _entries(self, owners: Mapping[EntryId, str]) -> list[Moment]:
        """Return the entries with these ids; each is of a task."""
        with self._reading(), self.redis.pipeline(transaction=False) as pipeline:
            for at in map(to_text, owners):
                pipeline.xrange(self.keys.history, at, at)
            pages = cast(list[list[tuple[str, dict[str, str]]]], pipeline.execute())
        for at, page in zip(owners, pages, strict=True):
            if not page:
                self.task(owners[at])  # raises TaskNotFound when it was purged since its ids were read
                raise CorruptRecord(f"{self.keys.history}: entry {to_text(at)} is gone")
        return [Moment(Entry.from_fields(*page[0])) for page in pages]

    def moves(self, watch: Watch, after: EntryId) -> Iterator[tuple[list[Moment], EntryId]]:
        """Yield what a watch accepts of the moves after a place, by pages, each with the place it reaches.

        There is one page at least, though nothing may be on it.
        Raises Incomplete after `PAGES_LIMIT` pages.
        """
        for _ in range(PAGES_LIMIT):
            with self._reading():
                page = cast(
                    list[tuple[str, dict[str, str]]],
                    self.redis.xrange(self.keys.history, f"({to_text(after)}", "+", count=PAGE),
                )
            after = from_text(page[-1][0]) if page else after
            yield [moment for moment in Moment.readable(page) if watch.accepts(moment.entry)], after
            if len(page) < PAGE:  # what came since then is told by the hub
                return
        raise Incomplete("behind")


def _story(task_id: str, stored: Any) -> Story:
    if isinstance(stored, Exception):
        raise CorruptRecord(f"task {task_id}: {stored}")
    return Story.read(task_id, stored)


def ends(stream: Any) -> tuple[EntryId, EntryId]:
    """Return the ids of the newest entry and of the newest that was deleted, from what XINFO STREAM answered.

    Without a history both are the origin. Raises CorruptRecord for any other error.
    """
    if isinstance(stream, Exception):
        if "no such key" not in str(stream):
            raise CorruptRecord(f"history: {stream}")
        return ORIGIN, ORIGIN
    return from_text(stream["last-generated-id"]), from_text(stream["max-deleted-entry-id"])

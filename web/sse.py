"""One stream of server-sent events: what happened, then what happens, without a hole and without a repetition.

Where a hole cannot be excluded the client gets `event: reset` with a reason, fetches anew, and the stream goes on from
now: `unreadable` (no cursor at all, or a place that is none of the caller's), `epoch` (of another database), `ahead`
(beyond the newest entry), `lost` (of an entry that Redis no longer has though nobody purged it), `rewound` (Redis
itself came back older), `purged` (moves after the cursor may have been removed with their tasks), `behind` (too much to
replay), `damaged` (a record is unreadable).

A purged task ends no stream that has others left: a browser would take the error for good, and lose those too. With
none left the stream ends. Where all its moves were sent before, the purge itself is no news.
"""

import logging
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..jobs.errors import GhostlessError, RedisUnavailable, TaskNotFound, TaskPurged
from ..statemachine import FINAL
from .cursors import ORIGIN, Cursor, EntryId
from .frames import Moment, Moves, bookmark, frame, opening, retry
from .hub import Hub
from .past import Incomplete, Past, Snapshot, Story
from .peers import Peer
from .places import Places
from .rooms import Batch, Subscription
from .watch import Watch

HEARTBEAT = 15.0
"""Seconds between two signs of life; proxies cut a connection that is silent for a minute."""

AGE = (480.0, 720.0)
"""Seconds between which a stream is ended, to be taken up again: no process keeps its clients for ever."""

AGAIN = 1.0
"""Seconds between attempts to read what a stream missed, while Redis does not answer."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """On what one client is served: for how long, over which connection, and how places are told to it."""

    seconds: float = field(default_factory=lambda: random.uniform(*AGE))
    peer: Peer = field(default_factory=lambda: Peer({}))
    places: Places = field(default_factory=Places)

    def hang_up_if_gone(self) -> None:
        """Close the connection when the client no longer answers, so that the next write fails, or this one."""
        self.peer.hang_up_if_gone(HEARTBEAT / 2)


class Stream:
    """One client's stream. Made, and closed, by the route; iterated once by the server."""

    def __init__(
        self, hub: Hub, past: Past, watch: Watch, subscription: Subscription, terms: Terms | None = None
    ) -> None:
        self._hub, self._past, self._terms = hub, past, terms or Terms()
        self._ends_at = time.monotonic() + self._terms.seconds
        self._watch, self._inbox = watch, subscription
        self._cursor = hub.position  # everything up to here was sent, or is not asked for
        self._behind = False  # moves after the cursor must be read from Redis first
        self._reset: str | None = None
        self._states: dict[str, str | None] = dict.fromkeys(watch.tasks)
        self._gone: frozenset[str] = frozenset()  # tasks that are not there any more, and whose end was not sent
        self._doubt = False  # the tasks may be final without any further move to tell

    # Where it starts

    def start(self, last_event_id: str | None) -> bool:
        """Find out where to start; False when all that was asked for was sent already and nothing will come.

        Raises TaskNotFound, CorruptRecord, RedisUnavailable.
        """
        if last_event_id is None:
            return self._start_fresh()
        cursor = self._terms.places.read(last_event_id)
        if cursor and not self._watch.tasks and self._hub.replay(self._watch, cursor):
            self._cursor, self._behind = cursor, True
            return True
        snapshot = self._past.look(sorted(self._watch.tasks), cursor)
        if snapshot.missing and not snapshot.stories:
            raise self._past.why_missing(snapshot.missing[0])
        return self._start_from(cursor, snapshot)

    def _start_fresh(self) -> bool:
        if not self._watch.tasks:
            return True
        snapshot = self._past.look(sorted(self._watch.tasks))
        self._refuse_unknown(snapshot)
        # From the first move on, so that who comes late still sees how it ended. A client that is cut off while
        # this is replayed must start over: hence the cursor before every entry, not the newest one.
        return self._start_from(Cursor(snapshot.newest.epoch, ORIGIN), snapshot)

    def _refuse_unknown(self, snapshot: Snapshot) -> None:
        """Raise TaskNotFound for an id that never was, and when there is nothing left but what was purged."""
        reasons = [self._past.why_missing(task_id) for task_id in snapshot.missing]
        for reason in reasons:
            if not isinstance(reason, TaskPurged) or not snapshot.stories:
                raise reason

    def _start_from(self, cursor: Cursor | None, snapshot: Snapshot) -> bool:
        reason = snapshot.doubt(cursor) if cursor else "unreadable"
        if cursor and not reason:
            self._cursor, self._behind = cursor, True
            self._note(snapshot.stories.values())
            return not self._all_final()
        self._reset, self._doubt = reason, True
        self._cursor = snapshot.newest
        return True

    def _note(self, stories: Iterable[Story]) -> None:
        """Keep in mind which tasks are left, and the state of those whose end was sent."""
        at = self._cursor.at
        self._states = {story.task.id: story.task.state if story.is_over(at) else None for story in stories}

    # What it sends

    def __iter__(self) -> Iterator[bytes]:
        self._inbox.look_after(HEARTBEAT, self._terms.hang_up_if_gone)
        yield self._first_block()
        beat_at = time.monotonic() + HEARTBEAT
        while True:
            if self._behind:
                yield from self._catch_up()
            if self._is_over():
                final = self._watch.tasks - self._gone
                yield frame(event="end", data={"tasks": sorted(final), "gone": sorted(self._gone)})
                return
            batch = self._hub.take(self._inbox, self._patience(beat_at))
            chunk = self._told(batch)
            if batch.closed or self._is_at_its_end:
                yield chunk + retry()
                return
            if time.monotonic() >= beat_at:
                chunk += bookmark(self._place)
                beat_at = time.monotonic() + HEARTBEAT
            if chunk:
                yield chunk

    def _first_block(self) -> bytes:
        if self._reset is None:
            return opening(self._place)
        return retry() + self._reset_block(self._reset)

    def _reset_block(self, reason: str) -> bytes:
        # First the news that something is missing, then the cursor behind it: a client cut off between the two asks
        # again with its old cursor and is told again.
        return frame(event="reset", data={"reason": reason}) + frame(id=self._place)

    @property
    def _place(self) -> str:
        return self._terms.places.shown(self._cursor)

    @property
    def _is_at_its_end(self) -> bool:
        return time.monotonic() >= self._ends_at

    def _patience(self, beat_at: float) -> float:
        left = min(beat_at, self._ends_at) - time.monotonic()
        return min(left, AGAIN) if self._behind or self._doubt or self._all_final() else left

    def _told(self, batch: Batch) -> bytes:
        live = b"".join([live.frame for live in batch.live])
        if batch.reset:
            self._restart(batch.reset.cursor)
            live += self._reset_block(batch.reset.reason)
        if self._behind or batch.lost:
            # What came in is read again from Redis, together with what was lost before it.
            self._behind = True
            return live
        return live + self._sent(batch.moves, batch.position)

    def _restart(self, position: Cursor) -> None:
        self._cursor, self._behind, self._doubt = position, False, True
        self._states, self._gone = dict.fromkeys(self._watch.tasks), frozenset()

    def _sent(self, moves: Moves, reached: Cursor) -> bytes:
        """Return the events of those moves that are new to the client, and note how far it is."""
        news = moves.after(self._cursor.at)
        for moment in news.moments if self._states else ():
            if moment.entry.task in self._states:
                self._states[moment.entry.task] = moment.entry.to_state
        self._cursor = self._cursor.or_later(reached)
        return news.frame(self._cursor.epoch)

    # What it missed

    def _catch_up(self) -> Iterator[bytes]:
        try:
            yield from filter(None, self._missed_moves())  # an empty chunk would end a chunked response
            self._behind = self._is_at_its_end  # then the client's next stream goes on from there
        except RedisUnavailable as error:
            log.info("a stream waits for Redis: %s", error)
        except Incomplete as error:
            yield self._given_up(error, error.reason)
        except GhostlessError as error:
            yield self._given_up(error, "purged" if isinstance(error, TaskNotFound) else "damaged")

    def _given_up(self, error: Exception, reason: str) -> bytes:
        log.warning("a stream cannot be completed, and its client is told: %s", error)
        self._restart(self._hub.position)
        return self._reset_block(reason)

    def _missed_moves(self) -> Iterator[bytes]:
        if self._watch.tasks:
            yield from self._moves_of_tasks()
            return
        # By parts, each looked up only when the one before it is on its way: what waits for a client stays small.
        while (part := self._hub.replay(self._watch, self._cursor)) and part.reached > self._cursor.at:
            yield self._sent(part.moves, Cursor(self._cursor.epoch, part.reached))
            if self._is_at_its_end:
                return
        if part is None:
            yield from self._moves_of_all()

    def _moves_of_tasks(self) -> Iterator[bytes]:
        snapshot = self._past.look(sorted(self._watch.tasks), self._cursor)
        if snapshot.missing:
            if doubt := snapshot.doubt(self._cursor):
                raise Incomplete(doubt)
            self._doubt = True
        for moments in self._past.moves_of(snapshot.stories, self._cursor.at):
            wanted = [moment for moment in moments if self._watch.accepts(moment.entry)]
            yield self._caught_up(wanted, moments[-1].at)
        self._cursor = self._cursor.or_later(snapshot.newest)

    def _moves_of_all(self) -> Iterator[bytes]:
        started = self._cursor
        for moments, reached in self._past.moves(self._watch, started.at):
            self._refuse_holes(started)
            yield self._caught_up(moments, reached)

    def _refuse_holes(self, started: Cursor) -> None:
        """Before each part is told: a client cut off behind it would come back for what lies behind it only."""
        if doubt := self._past.look((), started).doubt(started):
            raise Incomplete(doubt)  # purged while it was replayed

    def _caught_up(self, moments: Sequence[Moment], reached: EntryId) -> bytes:
        return self._sent(Moves(moments), Cursor(self._cursor.epoch, reached))

    # Where it ends

    def _all_final(self) -> bool:
        return bool(self._states) and all(state in FINAL for state in self._states.values())

    def _is_over(self) -> bool:
        """Tell whether all tasks are final for good and all of it was sent: FAILED may be followed by a retry."""
        if self._behind or not (self._all_final() or (self._doubt and self._states)):
            return False
        try:
            before = self._states
            self._note(self._past.stories(self._watch.tasks))
            self._gone |= {task for task, state in before.items() if task not in self._states and state not in FINAL}
            self._doubt = False
        except GhostlessError as error:
            log.info("a stream cannot tell yet whether it is at its end: %s", error)
            return False
        return not self._states or self._all_final()

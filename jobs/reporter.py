"""The thread that talks to Redis for a running attempt, so that the worker's own loop never waits for Redis.

It renews the lease every beat and learns the task's state from the replies; it carries progress, log lines,
stages and checkpoints. What could not be sent is kept (the newest progress and checkpoint, all stages, the
last log lines) and sent when Redis answers again.
"""

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..statemachine import State
from .errors import CorruptRecord, GhostlessError, RedisFull, RedisUnavailable, StaleAttempt, TaskNotFound
from .messages import Answer, Held
from .pauses import Pauses
from .store import HISTORY_ENTRIES, LOG_LINES, Store

log = logging.getLogger("rq.worker.ghostless")

SENT_TOGETHER = 100
"""Log lines in one call."""


@dataclass(frozen=True, slots=True)
class _Report:
    kind: str
    value: Any
    call_id: str = field(default_factory=lambda: secrets.token_hex(4))  # the same when it is sent again


@dataclass(slots=True)
class _Outbox:
    """What is to be sent: every stage, the last lines, the newest checkpoint and progress."""

    stages: deque[str] = field(default_factory=lambda: deque[str](maxlen=HISTORY_ENTRIES))
    lines: deque[str] = field(default_factory=lambda: deque[str](maxlen=LOG_LINES))
    checkpoint: str | None = None
    progress: tuple[float, str] | None = None
    again: _Report | None = None  # what may have been stored although its reply was lost

    def __bool__(self) -> bool:
        return bool(self.again or self.stages or self.lines or self.checkpoint is not None or self.progress)

    def take(self) -> _Report | None:
        """Take out what is to be sent next."""
        if self.again:
            report, self.again = self.again, None
            return report
        if self.stages:
            return _Report("stage", self.stages.popleft())
        if self.lines:
            together = min(len(self.lines), SENT_TOGETHER)
            return _Report("lines", [self.lines.popleft() for _ in range(together)])
        for kind in ("checkpoint", "progress"):
            value = getattr(self, kind)
            if value is not None:
                setattr(self, kind, None)
                return _Report(kind, value)
        return None

    def put_back(self, report: _Report) -> None:
        """Keep a report that could not be sent, unless a newer one replaces it."""
        if report.kind in ("stage", "lines"):
            self.again = report
        elif getattr(self, report.kind) is None:
            setattr(self, report.kind, report.value)


def _warn(text: str) -> None:
    log.warning("%s", text)


class Reporter(threading.Thread):
    """Reports for one worker. `wake` is called when a lease was renewed or lost; `on_beat` with every beat.

    `on_loss` is called once for each attempt whose task was given away, with what there is to say.
    """

    def __init__(
        self,
        store: Store,
        actor: str,
        wake: Callable[[], None],
        on_beat: Callable[[], None],
        on_loss: Callable[[str], None] = _warn,
    ) -> None:
        super().__init__(name="reporter", daemon=True)
        self._store, self._actor, self._wake, self._on_beat, self._on_loss = store, actor, wake, on_beat, on_loss
        self._changed = threading.Condition()
        self._held: Held | None = None
        self._outbox = _Outbox()
        self._longest_run: int | None = None
        self._hinted = ""
        self._beat_due = 0.0
        self._sending = False
        self._stopping = False
        self.state: State | None = None
        self.is_lost = False
        self.asked: tuple[str, float] | None = None  # why the attempt is to stop, and when its process is killed
        self.renewed_at = 0.0
        self.answered_at = 0.0  # when Redis last answered, on the monotonic clock

    # Called by the worker

    def hold(self, held: Held, state: State, since: float) -> None:
        """Begin to report for an attempt whose lease counts from `since`; once is enough, twice does no harm."""
        with self._changed:
            if self._held == held:
                return
            self._held, self.state, self.is_lost = held, state, False
            self._outbox = _Outbox()
            self._longest_run = self.asked = None
            self.renewed_at = since
            was_hinted = self._hinted == held.task_id
            # Never later than planned: a worker of many short tasks beats too.
            self._beat_by(0.0 if was_hinted else self.renewed_at + self._store.settings.beat)

    def release(self) -> None:
        """Stop reporting for the attempt; what was not sent is dropped."""
        with self._changed:
            self._held = self.asked = None
            self._outbox = _Outbox()

    def progress(self, fraction: float, message: str) -> None:
        """Report how far the attempt is; a newer report replaces one not sent yet."""
        with self._changed:
            self._outbox.progress = (fraction, message)
            self._changed.notify_all()

    def checkpoint(self, value_json: str) -> None:
        """Report a checkpoint; a newer one replaces one not sent yet."""
        with self._changed:
            self._outbox.checkpoint = value_json
            self._changed.notify_all()

    def stage(self, name: str) -> None:
        """Report a named stage."""
        with self._changed:
            self._outbox.stages.append(name)
            self._changed.notify_all()

    def line(self, line: str) -> None:
        """Report a line of the log; without an attempt there is no log to keep it in."""
        with self._changed:
            if self._held:
                self._outbox.lines.append(line)
                self._changed.notify_all()

    def extend(self, longest_run: int) -> None:
        """Report at once, and again with each beat, that the attempt may run for so many ms from its start."""
        with self._changed:
            self._longest_run = longest_run
            self._beat_by(0.0)

    def asked_to_stop(self, why: str, kill_at: float) -> None:
        """Tell with the next beat that the attempt was asked to stop; `kill_at` is of the monotonic clock."""
        self.asked = (why, kill_at)

    def look_at(self, task_id: str) -> None:
        """Look at the state of this task at once, or as soon as it is held, instead of with the next beat."""
        with self._changed:
            self._hinted = task_id
            if self._held and self._held.task_id == task_id:
                self._beat_by(0.0)

    def renew(self, patience: float) -> bool:
        """Renew the lease now, and wait at most `patience` seconds for that; tell whether it is renewed."""
        with self._changed:
            before = self.renewed_at
            self._beat_by(0.0)
            return (
                self._changed.wait_for(lambda: self.is_lost or self.renewed_at > before, patience) and not self.is_lost
            )

    def beat_soon(self, within: float = 0.0) -> None:
        """Beat in so many seconds at the latest: something about the worker has changed that others should see."""
        with self._changed:
            self._beat_by(time.monotonic() + within)

    def _beat_by(self, due: float) -> None:
        if due < self._beat_due:  # to wake the thread for each task would cost as much as the task
            self._beat_due = due
            self._changed.notify_all()

    def flush(self, patience: float) -> bool:
        """Wait at most `patience` seconds until all is sent; tell whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_lost or not (self._outbox or self._sending), patience)

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self.join()

    @property
    def task_id(self) -> str | None:
        """The task that is reported for right now."""
        held = self._held
        return held.task_id if held else None

    # The thread

    def run(self) -> None:
        """Send what there is to send, and beat."""
        pause, pauses = 0.0, Pauses(0.1, 1.0)
        while self._await_work(pause):
            try:
                self._send_all()
                pause = 0.0
                pauses.reset()
            except (RedisUnavailable, RedisFull) as error:
                log.warning("%s; trying again", error)
                if isinstance(error, RedisFull):
                    self.answered_at = time.monotonic()  # it is full, but there
                pause = pauses.next()
            except GhostlessError as error:
                log.error("%s", error)
                pause = 1.0
            except Exception:
                # The lease must be renewed whatever happens here; the next round tries again.
                log.exception("the reporter met an error it does not know")
                pause = 1.0

    def _await_work(self, pause: float) -> bool:
        with self._changed:
            self._sending = False
            self._changed.notify_all()
            if pause:
                self._changed.wait_for(lambda: self._stopping, pause)
            else:
                while not self._has_work():  # a beat may become due earlier meanwhile
                    self._changed.wait(self._beat_due - time.monotonic())
            self._sending = True
            return not self._stopping

    def _has_work(self) -> bool:
        return bool(self._stopping or (self._held and self._outbox) or time.monotonic() >= self._beat_due)

    def _send_all(self) -> None:
        with self._changed:
            held, longest_run = self._held, self._longest_run
            beat_is_due = time.monotonic() >= self._beat_due
            if beat_is_due:  # planned before it is sent: what makes one due meanwhile is not forgotten
                self._beat_due = time.monotonic() + self._store.settings.beat
        try:
            if held and not self.is_lost:
                if beat_is_due:
                    self._write(held, lambda: self._store.heartbeat(held, longest_run))
                self._send_reports(held)
            if beat_is_due:
                self._on_beat()
                self.answered_at = time.monotonic()
        except BaseException:
            if beat_is_due:
                self._beat_due = 0.0  # it may not have reached Redis
            raise

    def _send_reports(self, held: Held) -> None:
        while not self.is_lost and (report := self._take(held)):
            try:
                self._write(held, lambda report=report: self._call(held, report))
            except (RedisUnavailable, RedisFull):
                with self._changed:
                    if self._held is held:  # else it would be sent as another attempt's
                        self._outbox.put_back(report)
                raise

    def _take(self, held: Held) -> _Report | None:
        with self._changed:
            return self._outbox.take() if self._held is held else None

    def _call(self, held: Held, report: _Report) -> Answer:
        if report.kind == "stage":
            return self._store.stage(held, self._actor, report.value, report.call_id)
        if report.kind == "lines":
            return self._store.log(held, report.value, report.call_id)
        if report.kind == "checkpoint":
            return self._store.checkpoint(held, report.value)
        return self._store.progress(held, *report.value)

    def _write(self, held: Held, call: Callable[[], Answer]) -> None:
        asked_at = time.monotonic()
        try:
            answer = call()
        except (StaleAttempt, TaskNotFound) as error:
            self._note_loss(held, error)
        except CorruptRecord as error:
            log.error("%s", error)  # one damaged key must not keep the lease from being renewed
        else:
            self.answered_at = time.monotonic()
            self._note_state(held, State(answer.state), asked_at)
            if answer.word == "refused":  # the history is full of this task's stages: no more of them
                with self._changed:
                    self._outbox.stages.clear()

    def _note_state(self, held: Held, state: State, asked_at: float) -> None:
        with self._changed:
            if self._held is not held:
                return
            self.renewed_at = asked_at
            self.state = state
        self._wake()

    def _note_loss(self, held: Held, error: GhostlessError) -> None:
        with self._changed:
            if self._held is not held:
                return
            self._on_loss(str(error))
            self.is_lost = True
            self._outbox = _Outbox()
            self._changed.notify_all()
        self._wake()

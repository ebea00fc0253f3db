"""The worker's watch over one attempt, from claim to its end: frames, deadlines, the lease, the stop protocol.

Stopping is always the same: ask (the handler's next `check`, `progress` or `checkpoint` raises; where nothing
is to be saved, an exception is raised in it at once), wait the grace, kill the horse with its children. The
ending is told to Redis only when the handler is known not to run any more.
"""

import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..statemachine import Event, Reason, State
from .clocks import Clocks
from .horse_process import KILLED, Horse
from .messages import Claimed, Ending
from .reporter import Reporter
from .settings import Settings
from .wakeup import Wakeup

log = logging.getLogger("rq.worker.ghostless")

FROZEN = 0.5
"""Seconds by which a look that comes later tells that this process was frozen."""

LEASE_SHARE = 0.8
"""Part of the lease after which a worker that could not renew it stops its own work."""


@dataclass(slots=True)
class Shutdown:
    """What signals told the worker: when to stop the handler, on the monotonic clock."""

    stop_at: float | None = None

    def request(self, drain: float) -> None:
        """Note a signal: the first one leaves the handler `drain` seconds, a further one none."""
        now = time.monotonic()
        self.stop_at = now + drain if self.stop_at is None else now

    @property
    def requested(self) -> bool:
        """Whether no further task may be claimed."""
        return self.stop_at is not None


@dataclass(slots=True)
class _Stop:
    """A stop under way. Times are of the monotonic clock."""

    why: str
    asked_at: float
    force_at: float
    kill_at: float
    forced: bool = False


_PROGRESS = {"progress", "checkpoint", "stage"}
"""Frames by which a handler proves that its work goes on; a line of its log does not."""

_ENDINGS: Mapping[str, tuple[Event, Reason, str]] = {
    "cancel": (Event.STOPPED, Reason.USER, "cancelled"),
    "pause": (Event.SUSPEND, Reason.USER, "paused"),
    "shutdown": (Event.SUSPEND, Reason.SHUTDOWN, "the worker shuts down"),
    "timeout": (Event.TIMEOUT, Reason.DEADLINE, "ran longer than allowed, {run:g} s"),
    "stall": (Event.TIMEOUT, Reason.STALLED, "no progress for {silence:g} s"),
    "lease": (Event.SUSPEND, Reason.HEARTBEAT_LOST, "Redis was out of reach for the length of the lease"),
}

_STRENGTH = {"pause": 0, "shutdown": 1, "timeout": 2, "stall": 2, "cancel": 3, "lease": 4}
"""A stronger reason to stop replaces a weaker one that is under way."""

_UNSEEN = {"timeout", "stall"}
"""Reasons that only this worker knows; the others stand in the task's state, or in the beat of one that drains."""

_KILLED_BEFORE = Ending(Event.SUSPEND, Reason.SHUTDOWN, "its process was killed for what a task before it did")

_NOT_BEGUN = Ending(Event.SUSPEND, Reason.HEARTBEAT_LOST, "its lease was over before the handler could begin")

_WISHED_BY_STATE = {State.CANCELLING: "cancel", State.PAUSING: "pause"}


@dataclass(slots=True)
class Supervisor:
    """Watches one attempt in a horse. `run` returns when the handler does not run any more."""

    claimed: Claimed
    horse: Horse
    reporter: Reporter
    settings: Settings
    shutdown: Shutdown
    wakeup: Wakeup
    tmpdir: str
    give: Callable[[Mapping[str, Any]], None] | None  # gives the horse its order; None when it has it already
    alone_by: float = math.inf  # when nothing may wait behind it any more, on the monotonic clock
    go_alone: Callable[[], bool] = lambda: True  # lets nothing wait behind it; tells whether it was begun itself
    goes_on: bool = False  # the horse, with what waits behind it
    _clocks: Clocks = field(init=False)
    _has_saved: bool = False  # a checkpoint, in this attempt
    _stop: _Stop | None = None
    _told: float = -1.0
    _has_told_drain: bool = False

    def __post_init__(self) -> None:
        begins_at = self.claimed.answered_at if self.give else time.monotonic()
        self._clocks = Clocks(self.claimed.task.policy, begins_at)

    def run(self) -> Ending | None:
        """Run the handler to its end; None when the attempt was given away meanwhile, or given back before it began."""
        held, task = self.claimed.held, self.claimed.task
        self.reporter.hold(held, task.state, self.claimed.asked_at)
        self._told = self.reporter.renewed_at
        try:
            if self.give and not self._begin(self.give):
                return None if self.reporter.is_lost else _NOT_BEGUN
            if self.give is None or task.type in self.horse.set_up:  # else the horse says when the setup is over
                self._clocks.begin(time.monotonic())
            if self.give:  # the end of one behind others is told within a moment, which is worth one line only
                self._log_beginning()
            return self._watch()
        finally:
            if os.path.lexists(self.tmpdir):  # few handlers ask for it
                shutil.rmtree(self.tmpdir, ignore_errors=True)

    def _begin(self, give: Callable[[Mapping[str, Any]], None]) -> bool:
        # Frozen since the claim, or Redis took its time with it: others may run the task by now.
        if time.monotonic() >= self._lease_ends_at() and not self.reporter.renew(self.settings.beat):
            return False
        is_timed = self.claimed.task.type in self.horse.set_up
        give(order(self.claimed, self.tmpdir, self._lease_ends_at(), is_timed=is_timed))
        return True

    def _watch(self) -> Ending | None:
        while True:
            patience = self._patience()
            look_by = time.monotonic() + patience + FROZEN
            for frame in self.horse.frames(patience, [self.wakeup.fd]):
                ending = self._receive(frame)
                if ending:
                    return ending
            self.wakeup.drain()
            if time.monotonic() > look_by:
                self._clocks.excuse(time.monotonic())
            self._tell_lease()
            self._tell_drain()
            if self._must_be_alone(time.monotonic()) and not self._is_begun_alone():
                return None
            if self.reporter.is_lost:
                self.horse.kill()
                return None
            if not self.horse.alive:
                return self._died()
            ending = self._enforce(time.monotonic())
            if ending:
                return ending

    def _must_be_alone(self, now: float) -> bool:
        is_over = self.reporter.is_lost or not self.horse.alive or self._reason_to_stop(now) is not None
        return is_over or self.shutdown.requested or now >= self.alone_by

    def _is_begun_alone(self) -> bool:
        is_begun = self.go_alone()
        if is_begun and self.give is None and self.alone_by < math.inf:
            self._log_beginning()
        self.alone_by = math.inf
        return is_begun

    def _log_beginning(self) -> None:
        log.info(
            "%s: attempt %d of %s begins", self.claimed.task.type, self.claimed.held.attempt, self.claimed.held.task_id
        )

    def _tell_lease(self) -> None:
        """Let the horse know how long it may go on without a further word, should this process be frozen."""
        if self.reporter.renewed_at != self._told:
            self._told = self.reporter.renewed_at
            self.horse.extend(self.claimed.held.task_id, self.claimed.held.attempt, self._lease_ends_at())

    def _tell_drain(self) -> None:
        stop_at = self.shutdown.stop_at
        if stop_at is not None and not self._has_told_drain:
            self._has_told_drain = True
            log.info("draining: task %s has %.1f s", self.claimed.held.task_id, max(0, stop_at - time.monotonic()))
            self.reporter.beat_soon()

    # Frames

    def _receive(self, frame: Mapping[str, Any]) -> Ending | None:
        held = self.claimed.held
        if frame.get("task_id") != held.task_id or frame.get("attempt") != held.attempt:
            return None
        if frame["kind"] in _PROGRESS:
            self._clocks.report(time.monotonic())
        match frame["kind"]:
            case "started":
                self._clocks.begin(time.monotonic())
            case "progress":
                self.reporter.progress(frame["fraction"], frame["message"])
            case "log":
                self.reporter.line(frame["line"])
            case "stage":
                self.reporter.stage(frame["name"])
            case "checkpoint":
                self._has_saved = True
                self.reporter.checkpoint(frame["value"])
            case "retire":
                pass  # what it is for is noted where all frames come in
            case _:
                self.goes_on = frame.get("goes_on", False)
                if not (self.goes_on and self.horse.holds_output):  # else nothing was printed
                    self.horse.catch_up()
                return self._ended(frame)
        return None

    def _ended(self, frame: Mapping[str, Any]) -> Ending:
        if self._stop and frame["threads"]:
            self.horse.kill()  # or the threads that the handler left could meet the next attempt
        if frame["kind"] == "returned":
            told = f"returned {self._since_asked(self._stop)} after it was asked to stop" if self._stop else ""
            return Ending(Event.COMPLETE, Reason.POLICY, told, frame["result"])
        if frame["kind"] == "raised":
            return _failure(frame)
        how = "stopped by an exception raised in it" if frame["interrupted"] else "stopped when asked"
        left = ", and its process killed with the threads that it left" if frame["threads"] else ""
        return self._stopped(how + left)

    def _stopped(self, how: str) -> Ending:
        stop = self._stop or _Stop("shutdown", time.monotonic(), 0, 0)
        event, reason, _ = _ENDINGS[stop.why]
        where = f" in the setup of {self.horse.setting_up}" if self.horse.setting_up else ""
        told = f"{self._words(stop)}: {how}{where} after {self._since_asked(stop)}"
        if event is Event.SUSPEND and not self._has_saved and self.claimed.checkpoint is None:
            told += "; it saved no checkpoint and starts anew"
        return Ending(event, reason, told)

    def _words(self, stop: _Stop) -> str:
        run, silence = self._clocks.run / 1000, self._clocks.policy.stall_timeout / 1000
        return _ENDINGS[stop.why][2].format(run=run, silence=silence)

    @staticmethod
    def _since_asked(stop: _Stop) -> str:
        return f"{time.monotonic() - stop.asked_at:.1f} s"

    def _died(self) -> Ending:
        # What the horse sent before it died counts: its last frames may hold the result.
        for frame in self.horse.frames(0):
            ending = self._receive(frame)
            if ending:
                self.horse.cause_of_death()  # which may be what one behind it did
                return ending
        cause = self.horse.cause_of_death()
        if cause == KILLED and not self._stop:
            return _KILLED_BEFORE
        if self._stop:
            return self._stopped(f"its process ended ({cause})")
        part = f"setup of {self.horse.setting_up}" if self.horse.setting_up else "handler"
        return crashed(part, cause)

    # Deadlines

    def _patience(self) -> float:
        stop = self._stop
        times = [self._lease_ends_at(), self.alone_by]
        if stop:
            times.append(stop.kill_at if stop.forced else stop.force_at)
        else:
            times.append(self._clocks.next_at)
            times += [] if self.shutdown.stop_at is None else [self.shutdown.stop_at]
        return max(0.0, min(times) - time.monotonic())

    def _lease_ends_at(self) -> float:
        return self.reporter.renewed_at + LEASE_SHARE * self.settings.lease

    def _enforce(self, now: float) -> Ending | None:
        if self._stop is None and self._clocks.extend(now):
            self.reporter.extend(self._clocks.run)
        why = self._reason_to_stop(now)
        if why and (self._stop is None or _STRENGTH[why] > _STRENGTH[self._stop.why]):
            self._begin_stop(why, now)
        stop = self._stop
        if stop is None:
            return None
        if stop.why == "lease" or now >= stop.kill_at:
            self.horse.kill()
            return self._stopped("killed with SIGKILL")
        if not stop.forced and now >= stop.force_at:
            stop.forced = True
            self._ask(stop)
        return None

    def _reason_to_stop(self, now: float) -> str | None:
        wished = _WISHED_BY_STATE.get(self.reporter.state or State.PROCESSING)
        shuts_down = self.shutdown.stop_at is not None and now >= self.shutdown.stop_at
        reasons = {
            "lease": now >= self._lease_ends_at(),
            "cancel": wished == "cancel",
            "timeout": now >= self._clocks.ends_at,
            "stall": now >= self._clocks.silent_until,
            "shutdown": shuts_down,
            "pause": wished == "pause",
        }
        return next((why for why, holds in reasons.items() if holds), None)

    def _begin_stop(self, why: str, now: float) -> None:
        # Who is to go on later, and saves its work, first gets the chance to reach its next checkpoint.
        waits = self.settings.grace if why in ("pause", "shutdown") and self._has_saved else 0.0
        self._stop = _Stop(why, now, now + waits, now + waits + self.settings.grace, forced=waits == 0)
        log.info("task %s is asked to stop: %s", self.claimed.held.task_id, why)
        self.reporter.asked_to_stop(self._words(self._stop), self._stop.kill_at)
        if why in _UNSEEN:
            self.reporter.beat_soon()
        self._ask(self._stop)

    def _ask(self, stop: _Stop) -> None:
        held = self.claimed.held
        self.horse.ask_to_stop(held.task_id, held.attempt, stop.why, force=stop.forced)


def order(claimed: Claimed, tmpdir: str, until: float, *, is_timed: bool = True) -> dict[str, Any]:
    """Return what a horse is told of an attempt; `until` is when its lease ends, on the monotonic clock."""
    return {
        "task_id": claimed.held.task_id,
        "attempt": claimed.held.attempt,
        "type": claimed.task.type,
        "params": claimed.params,
        "checkpoint": claimed.checkpoint,
        "results": claimed.results,
        "tmpdir": tmpdir,
        "until": until,
        "is_timed": is_timed,
    }


def crashed(part: str, cause: str) -> Ending:
    """Return the end of an attempt whose process died while it ran this part, with the cause of its death."""
    return Ending(Event.FAIL, Reason.CRASHED, f"the process running the {part} died: {cause}")


def _failure(frame: Mapping[str, Any]) -> Ending:
    reason = Reason(frame["reason"])
    if reason is Reason.UNKNOWN_TYPE:  # no failure of the task: it is to wait for a worker that knows its type
        return Ending(Event.SUSPEND, reason, frame["message"])
    return Ending(Event.FAIL, reason, frame["message"], frame["error"], frame["retryable"], frame["asked"])

"""The scheduler: rq-scheduler's process, which also submits tasks when their schedules are due.

Plain jobs of rq-scheduler are handed over as it always did. A schedule's run is one submit under an idempotency key
made of the schedule and its due time; only then is the schedule moved on, by compare-and-set. So a crash between the
two, or any number of schedulers at once, neither doubles a run nor ends a schedule.
"""

import logging
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from types import FrameType
from typing import Any, cast

from cronsim import CronSim, CronSimError
from dateutil.tz import gettz
from redis import Redis
from redis.exceptions import RedisError
from rq.job import Job
from rq_scheduler import Scheduler as RqScheduler

from .client import Client
from .errors import CorruptRecord, GhostlessError, RedisFull, RedisRefused, RedisUnavailable, TaskConflict, TaskNotFound
from .pauses import Pauses
from .schedules import BY_CODE, Schedule
from .scripts import translated

log = logging.getLogger("ghostless.scheduler")

MISSED = 60_000
"""Milliseconds after which a run that did not begin counts as missed."""

MOST_AT_ONCE = 100
"""Runs of a schedule that are submitted at once, at most: the newest."""

LONGEST_PAUSE = 5.0
"""Seconds between two tries while Redis does not answer."""


class Scheduler(RqScheduler):
    """Submits what is due, and keeps rq-scheduler's keys, lock and habits for plain jobs. `interval` is seconds."""

    def __init__(self, client: Client, *, interval: float = 1.0, name: str | None = None) -> None:
        connection = Redis.from_url(client.settings.redis_url, protocol=2)
        super().__init__(connection=connection, name=name)
        self._interval = interval
        self.client = client
        self.schedules = client.schedules
        self.stopping = threading.Event()
        self._registered = False

    def run(self, burst: bool = False) -> None:
        """Submit and hand over what is due until a signal, whatever happens to Redis; or once with `burst`.

        With `burst` alone what happens is raised: RedisUnavailable, RedisFull, RedisRefused, and whatever a plain job
        raises that cannot be read.
        """
        self._install_signal_handlers()
        try:
            if burst:
                with translated():
                    self.tick()
            else:
                self._go_on()
        finally:
            self._depart()

    def _go_on(self) -> None:
        pauses = Pauses(2 * self._interval, LONGEST_PAUSE)
        while not self.stopping.is_set():
            try:
                self.tick()
                pause = self._interval
                pauses.reset()
            except (RedisError, GhostlessError) as error:
                log.error("%s; trying again", error)
                pause = pauses.next()
            except Exception:  # from a plain job that cannot be read, say
                log.exception("the scheduler met an error it does not know, and goes on")
                pause = LONGEST_PAUSE
            self.stopping.wait(pause)

    def tick(self) -> None:
        """Do once what is due. Raises RedisError, RedisUnavailable, RedisFull."""
        if not self._registered:
            self.register_birth()
            self._registered = True
        self.heartbeat()
        self.submit_due()
        if self.acquire_lock():
            try:
                self.enqueue_jobs()
            finally:
                self.remove_lock()

    def _depart(self) -> None:
        try:
            self.register_death()
        except RedisError as error:  # its entry expires by itself
            log.warning("%s", error)

    def _install_signal_handlers(self) -> None:
        def stop(_signum: int, _frame: FrameType | None) -> None:
            self.stopping.set()  # only a note: an exception here would cut a hand-over in two

        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)

    # Schedules

    def submit_due(self) -> int:
        """Submit every run that is due; return how many schedules were moved on."""
        found, now = self.schedules.all()
        moved = 0
        for schedule in found.values():
            if isinstance(schedule, CorruptRecord):
                log.error("%s; the others go on", schedule)
            elif not schedule.paused and schedule.due <= now:
                moved += self._fire(schedule, now)
        return moved

    def _fire(self, schedule: Schedule, now: int) -> bool:
        after = schedule
        for due in chosen(schedule, now):
            after = self._submit(after, due)
        return self.schedules.advance(schedule, replace(after, due=schedule.recurrence.next_after(now)))

    def _submit(self, schedule: Schedule, due: int) -> Schedule:
        hindrance = self._hindrance(schedule)
        if hindrance:
            level = logging.INFO if schedule.overlap == "skip" else logging.WARNING  # as was asked for, or not
            return _left_out(schedule, due, level, f"left out: {hindrance}")
        try:
            task_id = self._task_of(schedule, due)
        except (RedisUnavailable, RedisFull, RedisRefused):
            raise
        except GhostlessError as error:  # this run cannot be; the next one may
            return _left_out(schedule, due, logging.ERROR, f"not submitted: {error}")
        return replace(schedule, last_due=due, last_task=task_id, last_problem="")

    def _task_of(self, schedule: Schedule, due: int) -> str:
        try:
            return submit_run(self.client, schedule, f"{schedule.name}:{due}", due)
        except TaskConflict as error:  # submitted for this time before its params were changed
            return error.task_id

    def _hindrance(self, schedule: Schedule) -> str:
        if schedule.last_task is None or (schedule.overlap == "allow" and schedule.source != BY_CODE):
            return ""
        try:
            task = self.client.get(schedule.last_task)
        except (TaskNotFound, CorruptRecord):
            return ""
        if task.parked_at and schedule.source == BY_CODE:  # the code that declared it may be gone for good
            return f"no worker serves {task.type}, and the run before, {task.id}, waits for one"
        is_allowed = task.is_final or schedule.overlap == "allow"
        return "" if is_allowed else f"the run before, {task.id}, is {task.state}"

    # Plain jobs

    def cron(self, cron_string: str, *arguments: Any, **options: Any) -> Job:
        """Register a plain job as rq-scheduler does, due by UTC, or by the machine's time with `use_local_timezone`."""
        job = cast(Job, super().cron(cron_string, *arguments, **options))
        self._put_right(job)
        return job

    def enqueue_job(self, job: Job) -> None:
        """Hand a plain job over; one with a cron expression is due again by the rules of `cron`."""
        super().enqueue_job(job)
        if "cron_string" in job.meta and not job.meta.get("interval"):
            self._put_right(job)

    def _put_right(self, job: Job) -> None:
        """Let a plain job be due in its own zone: rq-scheduler takes the machine's in any case, and no daylight saving.

        What only rq-scheduler's own library can read keeps the time that it has.
        """
        now = datetime.now(gettz() if job.meta.get("use_local_timezone") else UTC)
        with suppress(CronSimError):
            due = next(CronSim(job.meta["cron_string"], now))
            self.connection.zadd(self.scheduled_jobs_key, {job.id: due.timestamp()}, xx=True)


def _left_out(schedule: Schedule, due: int, level: int, problem: str) -> Schedule:
    """Return a schedule of which one run is not submitted, and log why, unless that was so the last time too."""
    if problem != schedule.last_problem:
        log.log(level, "schedule %s: %s", schedule.name, problem)
    return replace(schedule, last_due=due, last_problem=problem, skipped=schedule.skipped + 1)


def chosen(schedule: Schedule, now: int) -> Sequence[int]:
    """Return the due times of a schedule for which a task is submitted now, the oldest first."""
    dues = schedule.recurrence.latest(schedule.due, now, MOST_AT_ONCE)
    missed = [due for due in dues if now - due > MISSED]
    made_up = {"skip": [], "once": missed[-1:], "all": missed}[schedule.misfire]
    return made_up + dues[len(missed) :]


def submit_run(client: Client, schedule: Schedule, key: str, due: int) -> str:
    """Submit one run of a schedule and return the task's id. Raises GhostlessError."""
    wishes: dict[str, Any] = {"queue": schedule.queue, "metadata": {"schedule": schedule.name, "due": due}}
    actor = f"schedule:{schedule.name}"
    return client.submit(
        schedule.type, schedule.params, actor=actor, idempotency_key=f"schedule:{key}", **wishes
    ).task_id

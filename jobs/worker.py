"""The worker: an rq worker that claims tasks by script and runs them in a warm horse.

What rq gives stays rq's: registration, commands, suspension, `rq info`, plain jobs. What concerns a task goes
through the store. The worker process itself never imports a task module.
"""

import json
import logging
import random
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

from rq.queue import Queue
from rq.utils import now as utc_now
from rq.worker.base import WorkerStatus

from .batch import Pace
from .claims import Claims
from .connection import BLOCK, dedicated
from .diary import Diary
from .gpus import GpuMeter
from .health import HealthServer, own_address
from .horse_process import HorseBroken
from .messages import Claim, Claimed, ClaimReply, NothingToClaim, PlainJob
from .pauses import Pauses
from .plain import PlainWorker
from .record import WorkerRecord
from .registered import tolerate
from .reporter import Reporter
from .runs import Runs
from .stable import Stable
from .store import Store
from .supervisor import Shutdown
from .vitals import Vitals
from .wakeup import Wakeup
from .workspace import Workspace

log = logging.getLogger("rq.worker.ghostless")  # below rq's logger, so that one set-up serves both

MISFITS = 3
"""Tasks in a row that could not be run here, after which the worker ends: others may be able to."""

SHOWN_WITHIN = 1.0
"""Seconds after which others see that the worker is busy, or idle; for less than that, it is not worth a call."""

DOUBLED = 0.5
"""Seconds within which a second signal is the first one again: a pool passes on what its workers may have got too."""

Taken = tuple[Any, Queue]
"""What rq's loop passes on: a claimed task or a plain job, and its queue."""


class Worker(PlainWorker):
    """Serves queues: tasks in a warm horse, plain rq jobs exactly as rq does.

    Takes the arguments of rq's worker, so that `rq worker -w ghostless.jobs.worker.Worker` makes one; settings
    are then those of the environment.
    """

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.actor = f"worker:{self.name}"
        self.shutdown = Shutdown()
        self._wakeup = Wakeup()
        self._reporter: Reporter | None = None
        self._workspace: Workspace | None = None
        self._diary = Diary(self.store.redis, self.store.keys, self.name)
        self._stable = Stable(self.store, self._diary, lambda: self.shutdown.requested, self._on_line)
        claims_store = Store(dedicated(self.store.redis), self.settings)  # beats have another connection
        self._claims = Claims(claims_store, self.actor, give_up=lambda: self.shutdown.requested)
        gpus = GpuMeter(self.settings.beat).latest
        self._vitals = Vitals(
            self.name, self.settings, self._stable, self._claims, self.connected_at, self.shutdown, gpus
        )
        self._health: HealthServer | None = None
        self._jobs_left: int | None = None
        self._pace = Pace()
        self._broken_horse = Pauses(2.0, 30.0)  # after one that could not be started
        self._ended_well = True
        self._deaf_until = 0.0  # to signals, on the monotonic clock
        self.on_ready: Callable[[], None] | None = None  # is called when the first horse has loaded its modules

    # Life

    def work(self, *args: Any, max_jobs: int | None = None, **kw: Any) -> bool:
        """Run rq's loop; remember how many jobs are allowed, so that none too many is claimed."""
        self._jobs_left = max_jobs
        return super().work(*args, max_jobs=max_jobs, **kw)

    @property
    def exit_code(self) -> int:
        """0 when the worker ended because it was to end, 1 when something forced it to."""
        return 0 if (self._ended_well or self.shutdown.requested) and not self.is_displaced else 1

    def bootstrap(self, *args: Any, **kw: Any) -> None:
        """Register, so that others see the worker load, and then load the task modules.

        Raises HorseBroken, PortTaken, RedisUnavailable, and leaves nothing in rq's registry then.
        """
        self.meet_redis()
        self._serve_health()
        self._workspace = Workspace()
        self._vitals.reporter = self._reporter = Reporter(
            self.store, self.actor, self._wakeup.wake, self._on_beat, self._on_loss
        )
        self._runs = Runs(
            self.actor, self.store, self._claims, self._stable, self._vitals, self._reporter, self._workspace,
            self.shutdown, self._wakeup, self._next_claim, self.count_attempt, self._pace,
        )  # fmt: skip
        self._install_signal_handlers()
        super().bootstrap(*args, **kw)
        self._reporter.start()
        try:
            self._load()
        except BaseException:
            self.teardown()
            raise

    def _load(self) -> None:
        try:
            self._stable.fresh_horse()
        except HorseBroken:
            if not self.shutdown.requested:
                raise
        self._stable.publish()
        self._vitals.come_round()
        self._tell_news()
        if self.on_ready:
            self.on_ready()

    def _serve_health(self) -> None:
        if self.settings.health_port:
            host = own_address(self.connection)
            self._health = HealthServer(host, self.settings.health_port, self._vitals.report)
            self._vitals.address = self._health.address

    def teardown(self) -> None:
        """Give back what is held, end the horse, and leave rq's registry."""
        self._claims.give_back()
        self._stable.retire(self.settings.grace)
        if self._reporter and self._reporter.is_alive():
            self._reporter.stop()
        if self._workspace:
            self._workspace.close()
        tolerate(self._diary.send)
        if self._health:
            self._health.close()
        tolerate(super().teardown)

    def let_go(self) -> None:
        """In a fork for a plain job: close what ties the horse and the port to this worker."""
        self._stable.let_go()
        if self._health:
            self._health.let_go()

    def _on_line(self, stream: TextIO, line: str) -> None:
        task_id = self._reporter.task_id if self._reporter else None
        print(f"[{task_id or self.name}] {line}", file=stream, flush=True)
        if self._reporter:
            self._reporter.line(line)

    # Signals: they only leave a note, since an exception in the middle of a claim would lose its reply.

    def _install_signal_handlers(self) -> None:
        signal.signal(signal.SIGINT, self._on_stop_signal)
        signal.signal(signal.SIGTERM, self._on_stop_signal)

    def _on_stop_signal(self, signum: int, frame: FrameType | None) -> None:
        if time.monotonic() < self._deaf_until:
            return
        self._deaf_until = time.monotonic() + DOUBLED
        again = self.shutdown.requested
        self.shutdown.request(self.settings.drain)
        self._stop_requested = True
        self._wakeup.wake()
        if again and self.runs_plain_job:
            self.request_force_stop(signum, frame)
        self._shutdown_requested_date = self._shutdown_requested_date or utc_now()

    # Beats and commands

    def _on_beat(self) -> None:
        if self.birth_date:
            self.beat()
            if self.is_displaced:
                self._give_way()
            self._stable.publish_if_lost()
            tolerate(self._diary.send)

    def _on_loss(self, text: str) -> None:
        self._diary.note("task given away", text, logging.WARNING)

    def record(self) -> WorkerRecord:
        """Return what a beat tells of this worker besides rq's own fields."""
        return self._vitals.record(super().record())

    def _give_way(self) -> None:
        """Stop at once: this worker was cut off, and another one was started under its name."""
        if not self.shutdown.requested:
            log.error("another worker is called %s now; this one ends", self.name)
            self.shutdown.request(0.0)
            self._stop_requested = True
            self._wakeup.wake()

    def handle_payload(self, message: Any) -> None:
        """Take the hint that a held task was cancelled, paused or resumed; other commands are rq's."""
        payload = json.loads(message["data"])
        if payload.get("command") != "ghostless":
            super().handle_payload(message)
        elif self._reporter:
            self._reporter.look_at(payload["task_id"])

    # Claiming

    def _horse_is_ready(self) -> bool:
        if self._stable.is_ready:
            return True
        self._claims.give_back()
        self._vitals.await_horse()
        try:
            self._stable.fresh_horse()
        except HorseBroken as error:
            if self.shutdown.requested:
                return False
            log.error("%s", error)
            self._vitals.await_horse(error.summary)
            self._rest(self._broken_horse.next())
        else:
            self._broken_horse.reset()
            self._vitals.come_round()
        self._tell_news()
        return self._stable.is_ready

    def dequeue_job_and_maintain_ttl(self, timeout: int | None, max_idle_time: int | None = None) -> Taken | None:
        """Wait for the next task or plain job; None when the worker is to end."""
        idle_since = time.monotonic()
        self._ended_well = False  # until it is known why the loop ends
        while not self.shutdown.requested and self._runs.misfits < MISFITS:
            if not self._horse_is_ready():
                continue
            self._vitals.come_round()
            reply = self._claims.take(self._wish)
            taken = self._take(reply)
            is_idle_for_long = max_idle_time is not None and time.monotonic() - idle_since >= max_idle_time
            self._ended_well = timeout is None or is_idle_for_long or self._jobs_left == 1
            if taken or timeout is None or is_idle_for_long:
                return taken
            self._idle(reply)
        return None

    def _take(self, reply: ClaimReply | None) -> Taken | None:
        if isinstance(reply, PlainJob):
            return self.fetch_plain(reply)
        if isinstance(reply, Claimed):
            queue = self.queue_named(reply.task.queue)
            self.set_state(WorkerStatus.BUSY)
            self.reorder_queues(queue)
            return reply, queue
        return None

    def _idle(self, reply: ClaimReply | None) -> None:
        is_suspended = isinstance(reply, NothingToClaim) and reply.why == "suspended"
        self.set_state(WorkerStatus.SUSPENDED if is_suspended else WorkerStatus.IDLE)
        if self.should_run_maintenance_tasks:
            self.run_maintenance_tasks()
        if is_suspended:
            self._rest(1)
        elif not tolerate(self._wait_for_hint):
            self._rest(random.uniform(0.5, 1))

    def tell_soon(self) -> None:
        """Beat soon: rq's listings are to show that the worker is busy, or idle."""
        if self._reporter:
            self._reporter.beat_soon(SHOWN_WITHIN)

    def run_maintenance_tasks(self) -> None:
        """Run rq's maintenance of plain jobs, and remove what killed workers left on this machine."""
        super().run_maintenance_tasks()
        if self._workspace:
            self._workspace.remove_orphans()

    def _wait_for_hint(self) -> None:
        self._wakeup.drain()  # of what is left over from the last task
        if not self.shutdown.requested:  # asked after that, since a signal wakes after it is noted
            self._claims.store.wait_for_hint((queue.name for queue in self.queues), BLOCK, self._wakeup.fd)

    def _tell_news(self) -> None:
        if self._diary.has_news and self._reporter:
            self._reporter.beat_soon()

    def _rest(self, seconds: float) -> None:
        self._wakeup.drain()
        if not self.shutdown.requested:
            self._wakeup.wait(seconds)

    # Running

    def execute_job(self, job: Any, queue: Queue) -> None:
        """Run a claimed task in the horse, or a plain job as rq does."""
        if self._jobs_left is not None:
            self._jobs_left -= 1
        if isinstance(job, Claimed):
            self._runs.run(job)
            self._tell_news()
        else:
            self._vitals.begin(None)
            self.run_plain(job, queue)
        self._vitals.end()

    def _next_claim(self) -> Claim | None:
        no_more = self._jobs_left is not None and self._jobs_left <= 0
        if no_more or self.shutdown.requested or not self._stable.is_ready:
            return None
        return self._wish()

    def _wish(self) -> Claim:
        queues = [queue.name for queue in self._ordered_queues]
        return Claim.new(self.name, queues, self._stable.served, self._together())

    def _together(self) -> list[tuple[str, int]]:
        is_counted = self._jobs_left is not None or self.settings.max_tasks_per_horse or self.settings.max_horse_rss
        horse = self._stable.horse
        if is_counted or horse is None:
            return []
        return [(name, most) for name, most in self._pace.together() if name in horse.set_up]

"""Plain rq jobs in a worker of ours: run exactly as rq does, beside the tasks of the same queues."""

import logging
import signal
from typing import Any, NoReturn

from rq.executions import Execution
from rq.job import Job
from rq.queue import Queue

from .connection import let_go
from .messages import PlainJob
from .registered import RegisteredWorker, tolerate

log = logging.getLogger("rq.worker.ghostless")


class PlainWorker(RegisteredWorker):
    """What a worker does with the jobs in its queues that are no tasks."""

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.runs_plain_job = False

    def let_go(self) -> None:
        """In a fork for a plain job: close what only the worker itself may keep open."""
        raise NotImplementedError

    def fetch_plain(self, plain: PlainJob) -> tuple[Job, Queue] | None:
        """Return a claimed plain job and its queue; None when there is none to run."""
        queue = self.queue_named(plain.queue)
        try:
            job = Job.fetch(plain.job_id, connection=self.connection, serializer=self.serializer)
        except Exception:
            # As rq: a job that is gone is passed over; one that cannot be read is for rq's own clean-up.
            log.exception("plain job %s of queue %s cannot be read", plain.job_id, plain.queue)
            return None
        self.reorder_queues(queue)
        return job, queue

    def queue_named(self, name: str) -> Queue:
        """Return one of the served queues."""
        return next(queue for queue in self.queues if queue.name == name)

    def run_plain(self, job: Job, queue: Queue) -> None:
        """Run it as rq does, in a fork; what an outage of Redis leaves undone, rq's clean-up does later."""
        self.runs_plain_job = True
        try:
            tolerate(lambda: super(PlainWorker, self).execute_job(job, queue))
        finally:
            self.runs_plain_job = False

    def kill_horse(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """Kill the fork of a plain job; while there is none, rq would kill the worker's own process group."""
        if self.horse_pid:
            super().kill_horse(sig)

    def maintain_heartbeats(self, job: Job, execution: Execution) -> None:
        """Renew a running plain job in rq's registries; an outage of Redis must not end the watch over its fork."""
        tolerate(lambda: super(PlainWorker, self).maintain_heartbeats(job, execution))

    def main_work_horse(self, job: Job, queue: Queue) -> NoReturn:
        """Run a plain job in a fork, to which neither our own horse may be tied nor the worker's name."""
        self.let_go()
        let_go(self.store.redis)
        super().main_work_horse(job, queue)

    def prepare_job_execution(self, job: Job, remove_from_intermediate_queue: bool = False) -> None:
        """Let a plain job leave rq's intermediate list also when several queues are served."""
        super().prepare_job_execution(job, remove_from_intermediate_queue=True)

"""What a task's ticket tells a stock rq worker to call: run the task in one cold horse, by the same rules."""

import logging
import secrets
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TextIO

from rq.job import Job, get_current_job

from ..statemachine import Event, Reason
from .connection import connect_like
from .errors import RedisUnavailable
from .horse_process import Horse, HorseBroken
from .installed import task_modules
from .messages import Claimed, ClaimReply, Ending
from .names import MESSAGE_LIMIT
from .reporter import Reporter
from .settings import Settings
from .settle import settle
from .store import Store
from .supervisor import Shutdown, Supervisor
from .values import cut
from .wakeup import Wakeup
from .workspace import Workspace

log = logging.getLogger("rq.worker.ghostless")

RQ_ENDS_ITS_JOB = 1000
"""Milliseconds before which no attempt follows: rq deletes the job behind the ticket only after us, and would delete
that of a new ticket."""


def run() -> None:
    """Run the task of the current rq job. Called by rq, in the process that rq made for the job.

    rq's SimpleWorker makes none: all that is opened here is closed again.
    """
    job = get_current_job()
    if job is None:
        raise RuntimeError("ghostless.jobs.ticket.run is called by an rq worker, with the task's ticket as its job")
    settings = Settings.from_environment()
    store = Store(connect_like(job.connection), settings)
    with closing(store.redis.connection_pool):
        reply = _start(store, job)
        if isinstance(reply, Claimed):
            _run_attempt(store, settings, reply)
        else:
            log.info("task %s is not started here: it is not PENDING any more", job.id)


def _on_line(reporter: Reporter, stream: TextIO, line: str) -> None:
    print(line, file=stream, flush=True)
    reporter.line(line)


def _start(store: Store, job: Job) -> ClaimReply:
    token = secrets.token_hex(8)
    while True:
        try:
            return store.start(job.id, job.worker_name or "rq", token)
        except RedisUnavailable as error:
            log.warning("%s; trying again", error)
            time.sleep(1)


def _run_attempt(store: Store, settings: Settings, claimed: Claimed) -> None:
    wakeup = Wakeup()
    actor = f"worker:{claimed.task.worker_id}"
    reporter = Reporter(store, actor, wake=wakeup.wake, on_beat=lambda: None)
    workspace = Workspace()
    horse = Horse(task_modules(settings), settings.artifacts, partial(_on_line, reporter))
    reporter.hold(claimed.held, claimed.task.state, claimed.asked_at)
    reporter.start()
    try:
        ending = _ending(horse, claimed, reporter, settings, workspace, wakeup)
        horse.kill()  # which takes a moment, and rq is to end the job soon after the task
        if ending:
            ending = replace(ending, asked=max(ending.asked, RQ_ENDS_ITS_JOB))
            settle(store, reporter, [(claimed, ending)], actor, next_claim=None, give_up=lambda: False)
    finally:
        horse.kill()
        reporter.stop()
        workspace.close()
        wakeup.close()


def _ending(
    horse: Horse, claimed: Claimed, reporter: Reporter, settings: Settings, workspace: Workspace, wakeup: Wakeup
) -> Ending | None:
    try:
        if not horse.wait_until_ready(lambda: reporter.is_lost):
            return None
    except HorseBroken as error:
        return Ending(Event.FAIL, Reason.CRASHED, cut(str(error), MESSAGE_LIMIT), str(error))
    tmpdir = workspace.folder_for(claimed.held.task_id, claimed.held.attempt)
    return Supervisor(claimed, horse, reporter, settings, Shutdown(), wakeup, tmpdir, horse.run).run()

"""Every operation that a process carries out on Redis, to be walked step by step."""

import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import pytest
from faults.steps import ANY, NEVER, OTHER_TYPE, QUEUE, TYPE, Operation, Victim, World, command_line
from ghostless.app import create_app
from ghostless.jobs.cli import act, scheduler, schedules, worker  # noqa: F401  imported once for all processes
from ghostless.jobs.cli import submit as submit_verb  # noqa: F401
from ghostless.jobs.client import Client
from ghostless.jobs.errors import ScheduleNotFound
from ghostless.jobs.lost import report_dead
from ghostless.jobs.messages import Claimed, Ending
from ghostless.jobs.recurrence import Recurrence
from ghostless.jobs.schedules import Schedule
from ghostless.jobs.submission import Request
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Event, Reason, State
from helpers import expect
from redis import Redis
from rq_scheduler import Scheduler as RqScheduler

SUCCESS, CANCELLED, PAUSED, FAILED = (State.SUCCESS,), (State.CANCELLED,), (State.PAUSED,), (State.FAILED,)
ONE = {"t1": SUCCESS}
TWO = {"t1": SUCCESS, "t2": SUCCESS}

# What there is before it


def nothing(world: World) -> None:
    """Start with an empty database."""


def a_waiting_task(world: World) -> None:
    """Submit a task."""
    world.submit("t1")


def two_waiting_tasks(world: World) -> None:
    """Submit two tasks."""
    world.submit("t1")
    world.submit("t2")


def a_delayed_task(world: World) -> None:
    """Submit a task that waits for its time."""
    world.submit("t1", delay=0.5)


def a_running_task(world: World) -> None:
    """Start a task on a worker that is never heard of again."""
    world.submit("t1")
    assert world.begin("aa11")


def a_pausing_task(world: World) -> None:
    """Ask a running task to pause."""
    a_running_task(world)
    world.client.pause("t1")


def a_paused_task(world: World) -> None:
    """Pause a waiting task."""
    world.submit("t1")
    world.client.pause("t1")


def a_failed_task(world: World) -> None:
    """Let a task fail for good."""
    a_running_task(world)
    _end(world, world.client.store.claim(world.claim("aa11")), Event.FAIL, Reason.EXCEPTION, retryable=False)


def a_popped_ticket(world: World) -> None:
    """Take a task's ticket from the queue as a stock rq worker does."""
    world.submit("t1")
    redis, keys = world.client.store.redis, world.client.store.keys
    redis.lpop(keys.rq_queue(QUEUE))
    redis.hset(keys.rq_job("t1"), "status", "started")


def parked_tasks(world: World) -> None:
    """Let a worker that does not serve their type meet two tasks."""
    two_waiting_tasks(world)
    assert world.begin("aa11", OTHER_TYPE) is None


def work_for_a_watchdog(world: World) -> None:
    """Leave something to do for each of its duties: t1 is lost, t2 due, the ticket of t3 gone, t4 to be purged."""
    redis, keys = world.client.store.redis, world.client.store.keys
    for task_id in ("t1", "t4"):
        world.submit(task_id)
    assert world.begin("aa11")
    claimed = world.begin("bb22")
    assert claimed
    _end(world, claimed)
    world.submit("t2", delay=0.001)
    world.submit("t3")
    redis.lrem(keys.rq_queue(QUEUE), 1, "t3")
    redis.hset(keys.task("t3"), "unticketed_at", 1)
    seconds, micros = redis.time()
    now = seconds * 1000 + micros // 1000
    redis.delete(keys.heartbeat("t1"))
    redis.zadd(keys.deadlines, {"t1": 1})
    redis.hset(keys.watchdog, mapping={"swept_at": now, "judge_from": now - 1})
    redis.pexpire(keys.watchdog, 4000)
    redis.zadd(keys.retention, {"t4": 1})


def a_registered_worker_with_a_task(world: World) -> None:
    """Enter a worker into rq's registry, and give it a task."""
    a_running_task(world)
    redis, key = world.client.store.redis, world.client.store.keys.rq_worker(world.worker)
    redis.hset(key, mapping={"incarnation": "life", "queues": QUEUE, "birth": "2026-01-01T00:00:00Z"})
    redis.sadd(world.client.store.keys.rq_workers, key)


def a_schedule(world: World) -> None:
    """Register a schedule whose run is not due."""
    assert world.client.schedules.put(Schedule("tidy", TYPE, Recurrence(every=3_600_000), _params(world)))


def a_due_schedule(world: World) -> None:
    """Register a schedule whose run has been due for a moment, and a plain job of rq-scheduler that is due."""
    connection = Redis.from_url(world.url, protocol=2)
    RqScheduler(queue_name="plain", connection=connection).enqueue_at(datetime(2026, 1, 1), time.sleep, 0)
    connection.close()
    a_schedule(world)
    there = world.client.schedules.get("tidy")
    due = there.recurrence.start - 100
    late = replace(there, due=due, recurrence=replace(there.recurrence, start=due))
    assert world.client.schedules.advance(there, late)


def _params(world: World) -> dict[str, str]:
    return {"trace": str(world.folder)}


def _end(
    world: World, claimed: object, event: Event = Event.COMPLETE, reason: Reason = Reason.POLICY, **wishes: bool
) -> None:
    assert isinstance(claimed, Claimed)
    ending = Ending(event, reason, text="1", **wishes)
    world.client.store.finish(claimed.held, ending, f"worker:{world.worker}", fraction=0.0)


# Submitting


def submit(world: World) -> None:
    """Submit by the client."""
    world.submit("t1")


def submit_under_a_key(world: World) -> None:
    """Submit under an idempotency key, with no id."""
    world.client.submit(TYPE, _params(world), idempotency_key="order-7")


def submit_delayed(world: World) -> None:
    """Submit for later."""
    world.submit("t1", delay=0.05)


def submit_together(world: World) -> None:
    """Submit many at once."""
    world.client.submit_many([Request(TYPE, _params(world), id=f"t{number}") for number in (1, 2, 3)])


def submit_by_command(world: World) -> None:
    """Submit by the command line."""
    command_line("submit", TYPE, "--id", "t1", "-p", f"trace={world.folder}")


def submit_by_http(world: World) -> None:
    """Submit by the API."""
    app = create_app(client=Client(world.client.settings))
    reply = app.test_client().post("/api/tasks", json={"type": TYPE, "id": "t1", "params": _params(world)})
    app.extensions["ghostless"].hub.close()
    assert reply.status_code in (200, 201, 202), reply.text


# People


def cancel(world: World) -> None:
    """Cancel by the client."""
    world.client.cancel("t1")


def cancel_by_command(world: World) -> None:
    """Cancel by the command line."""
    command_line("cancel", "t1")


def pause(world: World) -> None:
    """Pause."""
    world.client.pause("t1")


def resume(world: World) -> None:
    """Resume."""
    world.client.resume("t1")


def retry(world: World) -> None:
    """Retry."""
    world.client.retry("t1")


# A worker's calls, one after the other


def work(world: World) -> None:
    """Report in every way, complete, claim the next task in the same call, and let that fail."""
    store, first = world.client.store, world.begin("bb22")
    assert first
    store.heartbeat(first.held)
    store.heartbeat(first.held, 3_600_000)
    store.progress(first.held, 0.5, "half")
    store.checkpoint(first.held, "1")
    store.stage(first.held, "worker", "begun")
    store.log(first.held, ["a line"])
    done = Ending(Event.COMPLETE, Reason.POLICY, text="1")
    _, second = store.finish(first.held, done, f"worker:{world.worker}", world.claim("cc33"))
    assert isinstance(second, Claimed)
    world.note(second)
    _end(world, second, Event.FAIL, Reason.EXCEPTION)


def run_out_of_time(world: World) -> None:
    """Start a task, and end it at its deadline."""
    _end(world, world.begin("bb22"), Event.TIMEOUT, Reason.DEADLINE)


def hand_back(world: World) -> None:
    """Start a task, and give it back for a shutdown."""
    _end(world, world.begin("bb22"), Event.SUSPEND, Reason.SHUTDOWN)


def pause_at_a_checkpoint(world: World) -> None:
    """Start a task that is then to pause, and pause it."""
    claimed = world.begin("bb22")
    assert claimed
    world.client.pause("t1")
    world.client.store.checkpoint(claimed.held, "1")
    _end(world, claimed, Event.SUSPEND, Reason.USER)


def stop(world: World) -> None:
    """Start a task that is then cancelled, and stop it."""
    claimed = world.begin("bb22")
    assert claimed
    world.client.cancel("t1")
    _end(world, claimed, Event.STOPPED, Reason.USER)


def not_know_the_type(world: World) -> None:
    """Start a task and find that its type is unknown here."""
    _end(world, world.begin("bb22"), Event.SUSPEND, Reason.UNKNOWN_TYPE)


def pass_over(world: World) -> None:
    """Ask for tasks of another type than those that wait."""
    world.client.store.claim(world.claim("bb22", OTHER_TYPE))


def start(world: World) -> None:
    """Start the task whose ticket was popped, and complete it."""
    claimed = world.client.store.start("t1", world.worker, "bb22")
    assert isinstance(claimed, Claimed)
    world.note(claimed)
    _end(world, claimed)


# Watchdog, pool, scheduler, deploy


def sweep(world: World) -> None:
    """Do each duty of a watchdog once."""
    Watchdog(world.client.store, "mortal").sweep_all()


def unpark(world: World) -> None:
    """Give parked tasks back to rq's list."""
    world.client.store.unpark([TYPE])


def report_a_death(world: World) -> None:
    """Report a dead worker as its pool does."""
    report_dead(world.client.store, world.worker, "life", "pool:p", "it was killed")


def be_a_scheduler(world: World) -> None:
    """Register, submit what is due, and depart when told to."""
    command_line("scheduler", "--interval", "0.1")


def add_a_schedule(world: World) -> None:
    """Register a schedule by the command line."""
    command_line("schedules", "add", "tidy", "--every", "1h", "--type", TYPE, "-p", f"trace={world.folder}")


def pause_a_schedule(world: World) -> None:
    """Pause a schedule."""
    world.client.schedules.pause("tidy")


def remove_a_schedule(world: World) -> None:
    """Remove a schedule; who does so again may hear that it is gone."""
    with suppress(ScheduleNotFound):
        world.client.schedules.remove("tidy")


# Workers


def be_a_worker(world: World) -> None:
    """Register, run what there is, and leave."""
    command_line("worker", QUEUE, "--tasks", "faults.step_tasks", "--name", world.worker, "--burst")


def serve(world: World) -> None:
    """Register, and work until told to stop."""
    command_line("worker", QUEUE, "--tasks", "faults.step_tasks", "--name", world.worker)


def a_task_that_fails_first(world: World) -> None:
    """Submit a task that fails in its first attempt, and one that does not."""
    world.submit("t1", failures=1)
    world.submit("t2")


def two_long_tasks(world: World) -> None:
    """Submit two tasks that last longer than the test."""
    world.submit("t1", seconds=60)
    world.submit("t2", seconds=60)


# What happens meanwhile


def cancel_one_and_stop_at_the_other(world: World, victim: Victim) -> None:
    """Cancel the first task once it has reported; send SIGTERM once the second one has."""
    if _has_reported(world, "t1") and not world.client.get("t1").is_final:
        world.client.cancel("t1")
    if _has_reported(world, "t2"):
        victim.tell_to_stop()


def _has_reported(world: World, task_id: str) -> bool:
    return any(entry.event == Event.STAGE for entry in world.client.history(task_id))


def stop_when_submitted(world: World, victim: Victim) -> None:
    """Send SIGTERM once the schedule has gone on."""
    if world.client.schedules.get("tidy").last_due:
        victim.tell_to_stop()


def is_handed_over(world: World) -> None:
    """Check that the run was submitted, and that the plain job is in its queue or still waits to be handed over.

    rq-scheduler hands over at least once: killed between its two commands, it does so again when its lock has run out.
    """
    assert len(world.states()) == 1
    redis, keys = world.client.store.redis, world.client.store.keys
    expect(redis.llen(keys.rq_queue("plain")) or redis.zcard(RqScheduler.scheduled_jobs_key))


def is_scheduled(world: World) -> None:
    """Check that the schedule is there, and has run nothing at once."""
    assert world.client.schedules.get("tidy")
    expect(not world.states())


def is_removed(world: World) -> None:
    """Check that the schedule is gone."""
    with pytest.raises(ScheduleNotFound):
        world.client.schedules.get("tidy")


def is_paused(world: World) -> None:
    """Check that the schedule is paused."""
    expect(world.client.schedules.get("tidy").paused)


EITHER_END = {"t1": SUCCESS + CANCELLED}
SWEPT = {"t1": SUCCESS, "t2": SUCCESS, "t3": SUCCESS, "t4": (NEVER, State.SUCCESS)}

OPERATIONS = (
    Operation(submit, nothing, {"t1": (NEVER, *SUCCESS)}),
    Operation(submit, nothing, ONE, repeats=True),
    Operation(submit_under_a_key, nothing, {ANY: SUCCESS}, repeats=True),
    Operation(submit_delayed, nothing, ONE, repeats=True),
    Operation(submit_together, nothing, {**TWO, "t3": SUCCESS}, repeats=True),
    Operation(submit_by_command, nothing, ONE, repeats=True),
    Operation(submit_by_http, nothing, ONE, repeats=True),
    Operation(cancel, a_waiting_task, EITHER_END),
    Operation(cancel, a_delayed_task, {"t1": CANCELLED}, repeats=True),
    Operation(cancel, a_paused_task, {"t1": CANCELLED}, repeats=True),
    Operation(cancel, a_running_task, {"t1": CANCELLED}, repeats=True),
    Operation(cancel_by_command, a_waiting_task, {"t1": CANCELLED}, repeats=True),
    Operation(pause, a_waiting_task, {"t1": SUCCESS + PAUSED}),
    Operation(pause, a_running_task, {"t1": PAUSED}, repeats=True),
    Operation(resume, a_paused_task, {"t1": SUCCESS + PAUSED}),
    Operation(resume, a_paused_task, ONE, repeats=True),
    Operation(resume, a_pausing_task, ONE, repeats=True),
    Operation(retry, a_failed_task, {"t1": SUCCESS + FAILED}),
    Operation(retry, a_failed_task, ONE, repeats=True),
    Operation(work, two_waiting_tasks, TWO),
    Operation(run_out_of_time, a_waiting_task, ONE),
    Operation(hand_back, a_waiting_task, ONE),
    Operation(pause_at_a_checkpoint, a_waiting_task, {"t1": SUCCESS + PAUSED}),
    Operation(stop, a_waiting_task, EITHER_END),
    Operation(not_know_the_type, a_waiting_task, ONE),
    Operation(pass_over, two_waiting_tasks, TWO),
    Operation(start, a_popped_ticket, ONE),
    Operation(sweep, work_for_a_watchdog, SWEPT),
    Operation(unpark, parked_tasks, TWO),
    Operation(report_a_death, a_registered_worker_with_a_task, ONE),
    Operation(
        be_a_scheduler,
        a_due_schedule,
        {ANY: SUCCESS},
        repeats=True,
        meddle=stop_when_submitted,
        check=is_handed_over,
        is_costly=True,
    ),
    Operation(add_a_schedule, nothing, {}, repeats=True, check=is_scheduled),
    Operation(pause_a_schedule, a_schedule, {}, repeats=True, check=is_paused),
    Operation(remove_a_schedule, a_schedule, {}, repeats=True, check=is_removed),
    Operation(be_a_worker, a_task_that_fails_first, TWO, gives_up=True, is_costly=True),
    Operation(
        serve,
        two_long_tasks,
        {"t1": SUCCESS + CANCELLED, "t2": SUCCESS},
        meddle=cancel_one_and_stop_at_the_other,
        is_costly=True,
        counts_from=b"EVALSHA",
    ),
)

"""Every operation that a process carries out on Redis, to be walked step by step."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from faults import callback_operations, http_operations, listener_operations
from faults import step_scenes as before
from faults.step_scenes import end, params_of, work_together
from faults.steps import ANY, NEVER, Operation
from faults.victims import Victim, command_line
from faults.world import OTHER_TYPE, QUEUE, TYPE, World
from ghostless.app import create_app
from ghostless.jobs.cli import act, scheduler, schedules, worker  # noqa: F401  imported once for all processes
from ghostless.jobs.cli import submit as submit_verb  # noqa: F401
from ghostless.jobs.client import Client
from ghostless.jobs.errors import ScheduleNotFound
from ghostless.jobs.lost import report_dead
from ghostless.jobs.messages import Claimed, Ending
from ghostless.jobs.submission import Request
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Event, Reason, State
from helpers import expect
from rq_scheduler import Scheduler as RqScheduler

SUCCESS, CANCELLED, PAUSED, FAILED = (State.SUCCESS,), (State.CANCELLED,), (State.PAUSED,), (State.FAILED,)
ONE = {"t1": SUCCESS}
TWO = {"t1": SUCCESS, "t2": SUCCESS}

# Submitting


def submit(world: World) -> None:
    """Submit by the client."""
    world.submit("t1")


def submit_under_a_key(world: World) -> None:
    """Submit under an idempotency key, with no id."""
    world.client.submit(TYPE, params_of(world), idempotency_key="order-7")


def submit_delayed(world: World) -> None:
    """Submit for later."""
    world.submit("t1", delay=0.05)


def submit_together(world: World) -> None:
    """Submit many at once."""
    world.client.submit_many([Request(TYPE, params_of(world), id=f"t{number}") for number in (1, 2, 3)])


def submit_by_command(world: World) -> None:
    """Submit by the command line."""
    command_line("submit", TYPE, "--id", "t1", "-p", f"trace={world.folder}")


def submit_by_http(world: World) -> None:
    """Submit by the API."""
    app = create_app(client=Client(world.client.settings))
    reply = app.test_client().post("/api/tasks", json={"type": TYPE, "id": "t1", "params": params_of(world)})
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
    end(world, second, Event.FAIL, Reason.EXCEPTION)


def run_out_of_time(world: World) -> None:
    """Start a task, and end it at its deadline."""
    end(world, world.begin("bb22"), Event.TIMEOUT, Reason.DEADLINE)


def hand_back(world: World) -> None:
    """Start a task, and give it back for a shutdown."""
    end(world, world.begin("bb22"), Event.SUSPEND, Reason.SHUTDOWN)


def pause_at_a_checkpoint(world: World) -> None:
    """Start a task that is then to pause, and pause it."""
    claimed = world.begin("bb22")
    assert claimed
    world.client.pause("t1")
    world.client.store.checkpoint(claimed.held, "1")
    end(world, claimed, Event.SUSPEND, Reason.USER)


def stop(world: World) -> None:
    """Start a task that is then cancelled, and stop it."""
    claimed = world.begin("bb22")
    assert claimed
    world.client.cancel("t1")
    end(world, claimed, Event.STOPPED, Reason.USER)


def not_know_the_type(world: World) -> None:
    """Start a task and find that its type is unknown here."""
    end(world, world.begin("bb22"), Event.SUSPEND, Reason.UNKNOWN_TYPE)


def pass_over(world: World) -> None:
    """Ask for tasks of another type than those that wait."""
    world.client.store.claim(world.claim("bb22", OTHER_TYPE))


def start(world: World) -> None:
    """Start the task whose ticket was popped, and complete it."""
    claimed = world.client.store.start("t1", world.worker, "bb22")
    assert isinstance(claimed, Claimed)
    world.note(claimed)
    end(world, claimed)


def work_by_http(world: World) -> None:
    """Claim a task over HTTP, report in every way, and complete it."""
    app = create_app(client=Client(world.client.settings))
    web = app.test_client()
    claim = {"worker": world.worker, "types": [TYPE], "token": "bb22bb22bb22bb22"}
    task = web.post(f"/api/queues/{QUEUE}/claim", json=claim).json or {}
    mine = {name: task[name] for name in ("worker", "attempt", "token")}
    world.note_attempt(task["id"], task["attempt"])
    replies = [
        web.put(f"/api/tasks/{task['id']}/heartbeat", json=mine),
        web.post("/api/heartbeats", json={"worker": world.worker, "tasks": [mine_of(task)]}),
        web.post(f"/api/tasks/{task['id']}/progress", json=mine | {"fraction": 0.5}),
        web.post(f"/api/tasks/{task['id']}/checkpoint", json=mine | {"value": 1}),
        web.post(f"/api/tasks/{task['id']}/log", json=mine | {"lines": ["a line"]}),
        web.post(f"/api/tasks/{task['id']}/complete", json=mine | {"result": 1}),
    ]
    app.extensions["ghostless"].hub.close()
    assert {200} == {reply.status_code for reply in replies}, [reply.text for reply in replies]


def mine_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a batch of beats says of one attempt."""
    return {name: task[name] for name in ("id", "attempt", "token")}


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
    expect("tidy" not in world.client.schedules.all()[0])


def is_paused(world: World) -> None:
    """Check that the schedule is paused."""
    expect(world.client.schedules.get("tidy").paused)


EITHER_END = {"t1": SUCCESS + CANCELLED}
SWEPT = {"t1": SUCCESS, "t2": SUCCESS, "t3": SUCCESS, "t4": (NEVER, State.SUCCESS)}

OPERATIONS = (
    Operation(submit, before.nothing, {"t1": (NEVER, *SUCCESS)}),
    Operation(submit, before.nothing, ONE, repeats=True),
    Operation(submit_under_a_key, before.nothing, {ANY: SUCCESS}, repeats=True),
    Operation(submit_delayed, before.nothing, ONE, repeats=True),
    Operation(submit_together, before.nothing, {**TWO, "t3": SUCCESS}, repeats=True),
    Operation(submit_by_command, before.nothing, ONE, repeats=True),
    Operation(submit_by_http, before.nothing, ONE, repeats=True),
    Operation(cancel, before.a_waiting_task, EITHER_END),
    Operation(cancel, before.a_delayed_task, {"t1": CANCELLED}, repeats=True),
    Operation(cancel, before.a_paused_task, {"t1": CANCELLED}, repeats=True),
    Operation(cancel, before.a_running_task, {"t1": CANCELLED}, repeats=True),
    Operation(cancel_by_command, before.a_waiting_task, {"t1": CANCELLED}, repeats=True),
    Operation(pause, before.a_waiting_task, {"t1": SUCCESS + PAUSED}),
    Operation(pause, before.a_running_task, {"t1": PAUSED}, repeats=True),
    Operation(resume, before.a_paused_task, {"t1": SUCCESS + PAUSED}),
    Operation(resume, before.a_paused_task, ONE, repeats=True),
    Operation(resume, before.a_pausing_task, ONE, repeats=True),
    Operation(retry, before.a_failed_task, {"t1": SUCCESS + FAILED}),
    Operation(retry, before.a_failed_task, ONE, repeats=True),
    Operation(work, before.two_waiting_tasks, TWO),
    Operation(work_together, before.two_waiting_tasks, TWO),
    Operation(work_by_http, before.a_waiting_task, ONE, is_costly=True),
    Operation(run_out_of_time, before.a_waiting_task, ONE),
    Operation(hand_back, before.a_waiting_task, ONE),
    Operation(pause_at_a_checkpoint, before.a_waiting_task, {"t1": SUCCESS + PAUSED}),
    Operation(stop, before.a_waiting_task, EITHER_END),
    Operation(not_know_the_type, before.a_waiting_task, ONE),
    Operation(pass_over, before.two_waiting_tasks, TWO),
    Operation(start, before.a_popped_ticket, ONE),
    Operation(sweep, before.work_for_a_watchdog, SWEPT),
    Operation(unpark, before.parked_tasks, TWO),
    Operation(report_a_death, before.a_registered_worker_with_a_task, ONE),
    Operation(
        be_a_scheduler,
        before.a_due_schedule,
        {ANY: SUCCESS},
        repeats=True,
        meddle=stop_when_submitted,
        check=is_handed_over,
        is_costly=True,
    ),
    Operation(add_a_schedule, before.nothing, {}, repeats=True, check=is_scheduled),
    Operation(pause_a_schedule, before.a_schedule, {}, repeats=True, check=is_paused),
    Operation(remove_a_schedule, before.a_schedule, {}, repeats=True, check=is_removed),
    Operation(be_a_worker, before.a_task_that_fails_first, TWO, gives_up=True, is_costly=True),
    Operation(
        serve,
        before.two_long_tasks,
        {"t1": SUCCESS + CANCELLED, "t2": SUCCESS},
        meddle=cancel_one_and_stop_at_the_other,
        is_costly=True,
        counts_from=b"EVALSHA",
    ),
    *listener_operations.OPERATIONS,
    *callback_operations.OPERATIONS,
    *http_operations.OPERATIONS,
)

"""What operators and the ends of dependencies do to Redis, to be walked step by step."""

from dataclasses import asdict

from faults import step_scenes as before
from faults.step_scenes import end
from faults.steps import ANY, NEVER, Operation
from faults.victims import command_line
from faults.world import QUEUE, TYPE, World
from ghostless.jobs.archive_file import find_archived
from ghostless.jobs.archivist import Archivist
from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.cli import archive, schedules  # noqa: F401  imported once for all processes
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.publishing import publish
from ghostless.jobs.registry import registry
from ghostless.jobs.timetable import Timetable
from ghostless.jobs.upkeep import Upkeep
from ghostless.statemachine import Event, Reason, State
from helpers import expect

SUCCESS, CANCELLED, FAILED = (State.SUCCESS,), (State.CANCELLED,), (State.FAILED,)
NIGHTLY = Timetable("30 2 * * *", "UTC", "once", "allow")
RUN = {"t1": SUCCESS, "t2": SUCCESS, "t3": SUCCESS}
CUT_OFF = {"t1": CANCELLED, "t2": CANCELLED, "t3": CANCELLED}

# Dependencies


def submit_a_dependent(world: World) -> None:
    """Submit a task that waits for another one."""
    world.submit("t2", depends_on=["t1"])


def complete(world: World) -> None:
    """Start the next task, and complete it."""
    end(world, world.begin("bb22"))


def fail_for_good(world: World) -> None:
    """Start the next task, and fail it for good."""
    end(world, world.begin("bb22"), Event.FAIL, Reason.EXCEPTION, retryable=False)


def cancel_the_first(world: World) -> None:
    """Cancel the task that others wait for."""
    world.client.cancel("t1")


def settle_and_recheck(world: World) -> None:
    """Tell those that wait how it ended, and look again at those that still wait."""
    world.client.store.settle()
    world.client.store.recheck("watchdog:mortal")


# Many tasks at once


def cancel_all_at_once(world: World) -> None:
    """Begin a bulk action, and work it off as a watchdog does."""
    actions = world.client.bulk
    actions.begin(BulkRequest("cancel", BulkFilter(type=TYPE), idempotency_key="k1"))
    while world.client.store.redis.llen(world.client.store.keys.bulks_running):
        actions.work_off()


# The doctor, queues, types, schedules and the archive


def repair(world: World) -> None:
    """Let the doctor put right what is wrong."""
    list(Doctor(world.client.store, "doctor:mortal").audit())


def look_through(world: World) -> None:
    """Let the watchdogs' audit put right what is wrong."""
    upkeep = Upkeep(world.client.store)
    upkeep.patrol("watchdog:mortal")
    upkeep.prune("watchdog:mortal")


def pause_the_queue(world: World) -> None:
    """Pause a queue."""
    world.client.pause_queue(QUEUE)


def resume_the_queue(world: World) -> None:
    """Resume a queue."""
    world.client.resume_queue(QUEUE)


def publish_types(world: World) -> None:
    """Publish types as `ghostless types publish` does when it has read the modules."""
    kind = registry.get(TYPE)
    assert kind
    publish(world.client.store, {TYPE: kind.published() | {"schedule": asdict(NIGHTLY)}})
    world.client.store.unpark([TYPE])


def run_a_schedule(world: World) -> None:
    """Submit a run of a schedule now."""
    command_line("schedules", "run", "tidy")


def resume_a_schedule(world: World) -> None:
    """Resume a schedule."""
    world.client.schedules.resume("tidy")


def archive_by_command(world: World) -> None:
    """Archive by the command line, and purge."""
    command_line("archive", "--to", str(world.folder))


def be_an_archivist(world: World) -> None:
    """Archive and purge as the thread of a watchdog does."""
    Archivist(world.client.store, world.folder, "mortal").sweep_all()


def queue_is_paused(world: World) -> None:
    """Check that nothing of the queue starts."""
    expect(world.client.queues()[QUEUE] == "paused")


def is_published(world: World) -> None:
    """Check that the type and what it declares are there."""
    expect(TYPE in world.client.types())
    expect(world.client.schedules.get(TYPE).declared)


def schedule_goes_on(world: World) -> None:
    """Check that the schedule is paused no more."""
    expect(not world.client.schedules.get("tidy").paused)


def is_archived(world: World) -> None:
    """Check that the purged task stands in the archive with its end."""
    expect(find_archived(world.folder, "t1")["task"]["state"] == State.SUCCESS)


CHORES = (
    Operation(submit_a_dependent, before.a_waiting_task, {"t1": SUCCESS, "t2": (NEVER, *SUCCESS)}),
    Operation(submit_a_dependent, before.a_waiting_task, {"t1": SUCCESS, "t2": SUCCESS}, repeats=True),
    Operation(submit_a_dependent, before.a_failed_task, {"t1": FAILED, "t2": CANCELLED}, repeats=True),
    Operation(complete, before.a_task_with_dependents, RUN),
    Operation(fail_for_good, before.a_task_with_dependents, dict.fromkeys(RUN, SUCCESS + FAILED + CANCELLED)),
    Operation(cancel_the_first, before.a_task_with_dependents, dict.fromkeys(RUN, SUCCESS + CANCELLED)),
    Operation(cancel_the_first, before.a_task_with_dependents, CUT_OFF, repeats=True),
    Operation(
        settle_and_recheck,
        before.ends_that_were_not_told,
        {"t1": SUCCESS, "t2": SUCCESS, "t3": CANCELLED, "t4": CANCELLED},
    ),
    Operation(cancel_all_at_once, before.two_waiting_tasks, dict.fromkeys(("t1", "t2"), SUCCESS + CANCELLED)),
    Operation(cancel_all_at_once, before.two_waiting_tasks, dict.fromkeys(("t1", "t2"), CANCELLED), repeats=True),
    Operation(repair, before.damage, {"t1": SUCCESS}, repeats=True, is_costly=True, counts_from=b"EVALSHA"),
    Operation(
        look_through,
        before.entries_out_of_order,
        {"t1": SUCCESS, "t2": SUCCESS},
        is_costly=True,
        counts_from=b"EVALSHA",
    ),
    Operation(pause_the_queue, before.nothing, {}, repeats=True, check=queue_is_paused, is_costly=True),
    Operation(resume_the_queue, before.a_task_in_a_paused_queue, {"t1": SUCCESS}, repeats=True, is_costly=True),
    Operation(
        publish_types,
        before.parked_tasks,
        {"t1": SUCCESS, "t2": SUCCESS},
        repeats=True,
        check=is_published,
        is_costly=True,
    ),
    Operation(run_a_schedule, before.a_schedule, {ANY: SUCCESS}),
    Operation(resume_a_schedule, before.a_paused_schedule, {}, repeats=True, check=schedule_goes_on, is_costly=True),
    *(
        Operation(
            act,
            before.a_task_past_its_retention,
            {"t1": (NEVER,)},
            repeats=True,
            check=is_archived,
            is_costly=True,
        )
        for act in (archive_by_command, be_an_archivist)
    ),
)

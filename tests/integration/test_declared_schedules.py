"""`@task(cron=…)`: registered by whoever publishes the type, once, and a person's word stands."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ghostless.jobs import Context
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.errors import InvalidHandler, ScheduleNotFound
from ghostless.jobs.messages import Claim
from ghostless.jobs.publishing import publish
from ghostless.jobs.recurrence import Recurrence
from ghostless.jobs.registry import Registry
from ghostless.jobs.scheduler import Scheduler
from ghostless.jobs.schedules import Schedule, Schedules
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from redis import Redis

NAME = "report.build"
DAILY = {"cron": "0 3 * * *", "tz": "Europe/Berlin"}


def declared(**terms: Any) -> dict[str, Any]:
    """Return what is published of a module with one handler of these terms."""
    registry = Registry()

    @registry.task(NAME, **terms)
    def build(ctx: Context, pages: int = 10) -> None:
        """Build the report."""

    return registry.published()


@pytest.fixture
def schedules(redis: Redis, store: Store) -> Schedules:
    """The schedules of the database."""
    return Schedules(redis, store.keys)


def test_publishing_registers_and_runs_nothing(schedules: Schedules, store: Store, client: Client) -> None:
    """The schedule has its type's name and the options of the code, and waits for its first due time."""
    publish(store, declared(**DAILY, misfire="all", overlap="skip"))
    there = schedules.get(NAME)
    assert (NAME, "0 3 * * *", "Europe/Berlin", "all", "skip", "task", {}) == (
        there.type, there.recurrence.cron, there.recurrence.zone, there.misfire, there.overlap, there.source,
        there.params,
    )  # fmt: skip
    _, now = schedules.all()
    assert there.due == Recurrence("0 3 * * *", "Europe/Berlin").next_after(now)
    assert 0 == Scheduler(client).submit_due()
    publish(store, declared(**DAILY, misfire="all", overlap="skip"))
    assert there == schedules.get(NAME)


@pytest.mark.parametrize("by_code", [True, False])
def test_a_type_that_nobody_serves_any_more(schedules: Schedules, store: Store, client: Client, by_code: bool) -> None:
    """Its schedule cannot know that the code is gone: one parked run waits and no further ones pile up.

    One that a person registered submits as it says.
    """
    publish(store, declared(**DAILY))
    if not by_code:
        schedules.put(replace(schedules.get(NAME), source="cli"))
    for _ in range(3):
        there, (_, now) = schedules.get(NAME), schedules.all()
        assert schedules.advance(there, replace(there, due=there.recurrence.latest(0, now, 1)[0], misfire="once"))
        Scheduler(client).submit_due()
        store.claim(Claim.new("w", ["default"], ["another"]))
    after = schedules.get(NAME)
    assert (2 if by_code else 0) == after.skipped
    assert by_code == (f"no worker serves {NAME}" in after.last_problem)


def test_a_due_run_is_submitted_without_params(schedules: Schedules, store: Store, client: Client) -> None:
    """The handler's defaults are its params; the run goes to the type's queue."""
    publish(store, declared(**DAILY, queue="reports"))
    there = schedules.get(NAME)
    schedules.advance(there, replace(there, due=1))
    assert 1 == Scheduler(client).submit_due()
    (task,) = client.list(Filter()).tasks
    assert (NAME, "reports") == (task.type, task.queue)  # type: ignore[union-attr]
    assert {} == client.get(task.id).params


def test_many_workers_at_once_register_one(schedules: Schedules, settings: Settings) -> None:
    """Eight that publish together register it once: its due time is set by the first and by no other."""
    gate, changes = threading.Barrier(8), list[bool]()

    def start() -> None:
        client = Client(settings)
        change = client.schedules._change  # noqa: SLF001
        mine = client.schedules
        mine._change = lambda name, how: changes.append(change(name, how)) or True  # type: ignore[method-assign]
        gate.wait(10)
        mine.declare(declared(**DAILY))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [True] == [changed for changed in changes if changed]
    assert "task" == schedules.get(NAME).source


def test_what_a_person_removed_does_not_come_back(schedules: Schedules, store: Store) -> None:
    """Neither with the next worker nor with another expression, nor when their own one under its name is removed."""
    publish(store, declared(**DAILY))
    schedules.remove(NAME)
    publish(store, declared(**DAILY))
    publish(store, declared(cron="0 4 * * *"))
    assert {} == schedules.all()[0]
    for act in (schedules.get, schedules.pause, schedules.resume, schedules.remove):
        with pytest.raises(ScheduleNotFound):
            act(NAME)
    schedules.put(Schedule(NAME, NAME, Recurrence(every=60_000)))
    publish(store, declared(**DAILY))
    assert ("cli", 60_000, False) == (
        schedules.get(NAME).source, schedules.get(NAME).recurrence.every, schedules.get(NAME).removed
    )  # fmt: skip
    schedules.remove(NAME)
    publish(store, declared(**DAILY))
    assert {} == schedules.all()[0]


def test_what_a_person_registered_is_left_alone(schedules: Schedules, store: Store) -> None:
    """A schedule of the same name that is not from code stays as it is, also when the code has no cron."""
    schedules.put(Schedule(NAME, NAME, Recurrence("0 5 * * *"), params={"pages": 3}))
    before = schedules.get(NAME)
    publish(store, declared(**DAILY))
    assert replace(before, declared=True) == schedules.get(NAME)
    publish(store, declared())
    assert before == schedules.get(NAME)
    schedules.remove(NAME)
    publish(store, declared(**DAILY))
    assert "task" == schedules.get(NAME).source


def test_a_changed_expression_changes_the_schedule(schedules: Schedules, store: Store) -> None:
    """What came from code follows the code; what ran, and a pause by hand, stay known."""
    publish(store, declared(**DAILY))
    there = schedules.get(NAME)
    schedules.advance(there, replace(there, last_task="t1", skipped=2))
    schedules.pause(NAME)
    publish(store, declared(cron="0 4 * * *", tz="Europe/Berlin", overlap="skip"))
    changed = schedules.get(NAME)
    assert ("0 4 * * *", "skip", "t1", 2, True) == (
        changed.recurrence.cron, changed.overlap, changed.last_task, changed.skipped, changed.paused
    )  # fmt: skip
    assert changed.due != there.due


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_type_without_cron_has_no_schedule_from_code(schedules: Schedules, store: Store, is_removed: bool) -> None:
    """When the expression goes from the code the schedule goes; when it comes back it is registered anew."""
    publish(store, declared(**DAILY))
    if is_removed:
        schedules.remove(NAME)
    publish(store, declared())
    assert {} == schedules.all()[0]
    publish(store, declared(**DAILY))
    assert not schedules.get(NAME).paused


def test_a_damaged_record_keeps_no_worker_from_starting(schedules: Schedules, store: Store, redis: Redis) -> None:
    """It is told, and can be removed by hand; then the next publication registers it again."""
    redis.hset(store.keys.schedules, NAME, "no JSON")
    publish(store, declared(**DAILY))
    assert "no JSON" == redis.hget(store.keys.schedules, NAME)
    schedules.remove(NAME)
    publish(store, declared(**DAILY))
    assert "0 3 * * *" == schedules.get(NAME).recurrence.cron


def test_the_removed_are_not_told(schedules: Schedules, store: Store, client: Client) -> None:
    """A removed schedule is neither run nor listed."""
    publish(store, declared(**DAILY))
    there = schedules.get(NAME)
    schedules.advance(there, replace(there, due=1))
    schedules.remove(NAME)
    assert 0 == Scheduler(client).submit_due()


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({"cron": "nonsense"}, "cron: expected a cron expression in a time zone"),
        ({"cron": "0 0 31 2 *"}, "cron: expected a cron expression in a time zone"),
        ({"cron": 7}, "cron: expected a cron expression in a time zone"),
        ({"cron": "0 3 * * *", "tz": "Europe/Atlantis"}, "expected the name of a time zone"),
        ({"cron": "0 3 * * *", "misfire": "perhaps"}, "misfire: expected one of skip, once, all"),
        ({"cron": "0 3 * * *", "overlap": "perhaps"}, "overlap: expected one of allow, skip"),
        ({"tz": "UTC"}, "tz: expected a cron expression beside it"),
        ({"misfire": "once"}, "misfire: expected a cron expression beside it"),
    ],
)
def test_what_cannot_be_declared(terms: dict[str, Any], told: str) -> None:
    """It is refused where it is written."""
    with pytest.raises(InvalidHandler, match=told):
        declared(**terms)


def _needs_a_param(ctx: Context, url: str, pages: int = 3) -> None:
    """Build a report of something."""


@pytest.mark.parametrize("handler", [_needs_a_param])
def test_a_handler_with_a_param_to_give(handler: Callable[..., None]) -> None:
    """Nobody gives a scheduled run params, so each needs a default."""
    with pytest.raises(InvalidHandler, match="parameter url: expected a default, since cron runs the handler"):
        Registry().task(NAME, cron="0 3 * * *")(handler)

"""Schedules: each due run is submitted once, whatever comes between, and no run ends its schedule."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from audit import audit
from click.testing import CliRunner
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.errors import CorruptRecord, InvalidTask, RedisUnavailable, ScheduleNotFound
from ghostless.jobs.keys import Keys
from ghostless.jobs.model import Task
from ghostless.jobs.recurrence import Recurrence
from ghostless.jobs.scheduler import MOST_AT_ONCE, Scheduler, chosen
from ghostless.jobs.schedules import Schedule, Schedules
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import Event, Policy, State
from redis import Redis
from rq import Queue
from rq.job import Job
from web_tools import Hand

MINUTE = 60_000


@pytest.fixture(autouse=True)
def sound(redis: Redis, keys: Keys) -> Iterator[None]:
    """End each test with the audit."""
    yield
    assert audit(redis, keys) == []


@pytest.fixture
def schedules(redis: Redis, store: Store) -> Schedules:
    """The schedules, with a type to submit."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    store.publish_types({"work": {"queue": "work", "policy": Policy().pack(), "schema": schema, "description": ""}})
    return Schedules(redis, store.keys)


@pytest.fixture
def scheduler(client: Client, schedules: Schedules) -> Scheduler:
    """A scheduler that does one thing at a time."""
    return Scheduler(client)


def schedule(name: str = "tidy", every: int = MINUTE, **fields: object) -> Schedule:
    """Return a schedule of once a minute."""
    return replace(Schedule(name, "work", Recurrence(every=every)), **fields)  # type: ignore[arg-type]


def late(schedules: Schedules, by: int, name: str = "tidy") -> Schedule:
    """Let the first run of a schedule have been due some time ago; return it so."""
    there, (_, now) = schedules.get(name), schedules.all()
    start = now - by
    changed = replace(there, due=start, recurrence=replace(there.recurrence, start=start))
    assert schedules.advance(there, changed)
    return changed


def submitted(client: Client) -> list[Task]:
    """Return the tasks that there are, the first first."""
    tasks = [task for task in client.list(Filter(), limit=500).tasks if isinstance(task, Task)]
    return sorted(tasks, key=lambda task: task.submitted_at)


def purge(client: Client, task_id: str) -> None:
    """Cancel a task and let its retention be over."""
    client.cancel(task_id)
    client.store.redis.zadd(client.store.keys.retention, {task_id: 0})
    assert 1 == client.store.purge().moved


def test_the_first_registration_runs_nothing(scheduler: Scheduler, schedules: Schedules, client: Client) -> None:
    """A new schedule waits for its next due time, and registering it again changes nothing."""
    assert schedules.put(schedule())
    due = schedules.get("tidy").due
    assert not schedules.put(schedule())
    assert due == schedules.get("tidy").due
    assert 0 == scheduler.submit_due()
    assert [] == submitted(client)


def test_a_due_run_is_submitted_once(scheduler: Scheduler, schedules: Schedules, client: Client) -> None:
    """The task carries the schedule's params and name; the schedule goes on with the next due time."""
    schedules.put(schedule(params={"n": 3}))
    due = late(schedules, 100).due
    assert 1 == scheduler.submit_due()
    assert 0 == scheduler.submit_due()
    (task,) = submitted(client)
    whole = client.get(task.id)
    assert ({"n": 3}, {"schedule": "tidy", "due": due}) == (whole.params, whole.metadata)
    assert "schedule:tidy" == client.history(task.id)[0].actor
    after = schedules.get("tidy")
    assert (due + MINUTE, due, task.id) == (after.due, after.last_due, after.last_task)


def test_a_crash_after_the_submit_doubles_nothing(
    scheduler: Scheduler, schedules: Schedules, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was submitted and the schedule not moved on: the next scheduler submits nothing more, and moves it on."""
    schedules.put(schedule())
    late(schedules, 100)

    def crash(*_: object) -> bool:
        raise RedisUnavailable(ConnectionError("gone"))

    with monkeypatch.context() as patch:
        patch.setattr(scheduler.schedules, "advance", crash)
        with pytest.raises(RedisUnavailable):
            scheduler.submit_due()
    assert 1 == len(submitted(client))
    assert 1 == Scheduler(client).submit_due()
    assert 1 == len(submitted(client))
    assert schedules.get("tidy").last_task == submitted(client)[0].id


def test_many_schedulers_at_once(schedules: Schedules, client: Client, settings: Settings) -> None:
    """Four schedulers that see the same due runs submit each once."""
    for number in range(20):
        schedules.put(schedule(f"s{number}"))
        late(schedules, 100, f"s{number}")
    everybody = [Scheduler(Client(settings)) for _ in range(4)]
    threads = [threading.Thread(target=one.submit_due) for one in everybody]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 20 == len(submitted(client))
    _, now = schedules.all()
    assert all(schedules.get(f"s{number}").due > now for number in range(20))


def test_a_scheduler_that_was_stopped_in_the_middle(
    scheduler: Scheduler, schedules: Schedules, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on with what it read long ago: its run is known already, and what others did meanwhile stands (B46)."""
    schedules.put(schedule())
    late(schedules, 100)
    there = schedules.advance

    def stopped_here(before: Schedule, after: Schedule) -> bool:
        assert 1 == Scheduler(client).submit_due()
        late(schedules, 50)
        assert 1 == Scheduler(client).submit_due()
        return there(before, after)

    with monkeypatch.context() as patch:
        patch.setattr(scheduler.schedules, "advance", stopped_here)
        assert 0 == scheduler.submit_due()
    assert 2 == len(submitted(client))
    assert 0 == scheduler.submit_due()
    assert schedules.get("tidy").last_task == submitted(client)[1].id


def test_a_run_that_fails_or_is_removed_ends_no_schedule(
    scheduler: Scheduler, schedules: Schedules, client: Client, hand: Hand
) -> None:
    """FAILED, cancelled, purged, or its record lost: the next one is submitted, also without overlap."""
    schedules.put(schedule(overlap="skip"))
    ends: list[Callable[[str], object]] = [
        lambda _task_id: hand.run(event=Event.FAIL, retryable=False),
        client.cancel,
        lambda task_id: purge(client, task_id),
        lambda task_id: client.store.redis.delete(client.store.keys.task(task_id)),
    ]
    for number, end in enumerate(ends, start=1):
        late(schedules, 100 - number)
        assert 1 == scheduler.submit_due()
        end(str(schedules.get("tidy").last_task))
    late(schedules, 10)
    assert 1 == scheduler.submit_due()
    told = schedules.get("tidy")
    assert (0, "") == (told.skipped, told.last_problem)
    assert State.PENDING == client.get(str(told.last_task)).state
    assert list(Doctor(client.store, "doctor:test").audit()), "which puts away what is left of the lost one"


@pytest.mark.parametrize(("misfire", "runs"), [("skip", 0), ("once", 1), ("all", 5)])
def test_missed_runs(scheduler: Scheduler, schedules: Schedules, client: Client, misfire: str, runs: int) -> None:
    """What was due while nobody ran a scheduler is skipped, run once, or made up for, as the schedule says."""
    schedules.put(schedule(every=60 * MINUTE, misfire=misfire))
    late(schedules, 4 * 60 * MINUTE + 2 * MINUTE)
    assert 1 == scheduler.submit_due()
    assert runs == len(submitted(client))
    _, now = schedules.all()
    assert schedules.get("tidy").due > now


def test_a_run_that_is_a_little_late_is_not_missed(scheduler: Scheduler, schedules: Schedules, client: Client) -> None:
    """A scheduler that was restarted within a minute skips nothing."""
    schedules.put(schedule(every=60 * MINUTE, misfire="skip"))
    late(schedules, 20_000)
    scheduler.submit_due()
    assert 1 == len(submitted(client))


def test_made_up_runs_are_bounded(scheduler: Scheduler, schedules: Schedules, client: Client) -> None:
    """After a long outage the newest runs are made up for, not thousands."""
    schedules.put(schedule(every=1_000, misfire="all"))
    late(schedules, 1_000_000)
    scheduler.submit_due()
    assert MOST_AT_ONCE == len(submitted(client))


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_runs_that_are_little_late_are_all_submitted(
    scheduler: Scheduler, schedules: Schedules, client: Client, misfire: str
) -> None:
    """What is due more often than a scheduler looks loses no run, whatever becomes of missed ones."""
    schedules.put(schedule(every=1_000, misfire=misfire))
    first = late(schedules, 5_500).due
    scheduler.submit_due()
    dues = [client.get(task.id).metadata["due"] for task in submitted(client)]
    assert [first + number * 1_000 for number in range(6)] == sorted(dues)


def test_one_run_for_an_outage_and_each_of_the_last_minute(schedules: Schedules) -> None:
    """With `once`: of the runs that were missed the last, then those that are only a little late."""
    schedules.put(schedule(every=20_000))
    there = late(schedules, 141_000)
    dues = chosen(there, there.due + 141_000)
    assert [80_000, 100_000, 120_000, 140_000] == [due - there.due for due in dues]


def test_no_overlap(
    scheduler: Scheduler, schedules: Schedules, client: Client, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """With `skip` a run is left out, and told, while the one before is not over; then it goes on.

    That is no error, since it was asked for.
    """
    caplog.set_level("INFO", "ghostless.scheduler")
    schedules.put(schedule(overlap="skip"))
    late(schedules, 100)
    scheduler.submit_due()
    late(schedules, 50)
    scheduler.submit_due()
    assert 1 == len(submitted(client))
    told = schedules.get("tidy")
    assert 1 == told.skipped
    left_out = f"left out: the run before, {submitted(client)[0].id}, is PENDING"
    assert left_out == told.last_problem
    assert [("INFO", f"schedule tidy: {left_out}")] == [(log.levelname, log.message) for log in caplog.records]
    Hand(store).run()
    late(schedules, 10)
    scheduler.submit_due()
    assert 2 == len(submitted(client))
    assert "" == schedules.get("tidy").last_problem


def test_a_run_that_cannot_be_ends_nothing(
    scheduler: Scheduler, schedules: Schedules, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A type that is gone, or params that do not fit any more, cost their run and are told; the schedule goes on."""
    schedules.put(schedule("gone", type="never.published"))
    schedules.put(schedule("wrong", params={"n": "three"}))
    schedules.put(schedule("good"))
    for name in ("gone", "wrong", "good"):
        late(schedules, 100, name)
    assert 3 == scheduler.submit_due()
    assert 1 == len(submitted(client))
    assert ["ERROR", "ERROR"] == [log.levelname for log in caplog.records]
    assert "never.published" in schedules.get("gone").last_problem
    assert "params.n" in schedules.get("wrong").last_problem
    _, now = schedules.all()
    assert all(schedules.get(name).due > now for name in ("gone", "wrong", "good"))


def test_a_damaged_schedule_holds_no_other(
    scheduler: Scheduler, schedules: Schedules, client: Client, redis: Redis
) -> None:
    """One record that cannot be read is told; the others are submitted."""
    whole = {"name": "x", "type": "work", "recurrence": {"every": 60_000}, "due": 1}
    wrong = [
        {"due": "soon"}, {"recurrence": {"cron": "* * * * *", "zone": "Europe/Atlantis"}}, {"recurrence": {"every": 0}},
        {"recurrence": {"cron": "nonsense"}}, {"params": "none"}, {"misfire": "perhaps"},
    ]  # fmt: skip
    damaged = {f"readable{number}": json.dumps(whole | fields) for number, fields in enumerate(wrong)}
    redis.hset(client.store.keys.schedules, mapping={"a": "no JSON", "b": '{"recurrence": 7}', "c": "{}", **damaged})
    redis.hset(client.store.keys.schedules, mapping={b"\xff": b"\xff", "d": "[" * 100_000, "": json.dumps(whole)})
    assert 12 == sum(isinstance(found, CorruptRecord) for found in schedules.all()[0].values())
    schedules.put(schedule())
    late(schedules, 100)
    assert 1 == scheduler.submit_due()
    assert 1 == len(submitted(client))


def test_pause_resume_and_removal(scheduler: Scheduler, schedules: Schedules, client: Client) -> None:
    """A paused schedule submits nothing; resumed, it makes up for nothing; removed, its tasks stay."""
    schedules.put(schedule(misfire="all"))
    schedules.pause("tidy")
    late(schedules, 10 * MINUTE)
    assert 0 == scheduler.submit_due()
    schedules.resume("tidy")
    assert 0 == scheduler.submit_due()
    late(schedules, 10)
    scheduler.submit_due()
    schedules.remove("tidy")
    assert 1 == len(submitted(client))
    for act in (schedules.remove, schedules.pause, schedules.resume, schedules.get):
        with pytest.raises(ScheduleNotFound):
            act("tidy")


def test_a_changed_schedule(schedules: Schedules) -> None:
    """Other params keep the rhythm; another rhythm begins anew, and what ran stays known."""
    schedules.put(schedule())
    first = late(schedules, -5_000)
    schedules.put(schedule(params={"n": 1}))
    assert (first.due, {"n": 1}) == (schedules.get("tidy").due, schedules.get("tidy").params)
    schedules.advance(schedules.get("tidy"), replace(schedules.get("tidy"), last_task="t1", paused=True))
    schedules.put(schedule(every=5 * MINUTE))
    changed = schedules.get("tidy")
    assert changed.due > first.due
    assert ("t1", True) == (changed.last_task, changed.paused)


@pytest.mark.parametrize("wrong", [schedule("no name"), schedule(every=10)])
def test_what_cannot_be_registered(schedules: Schedules, wrong: Schedule) -> None:
    """Nothing is stored of a schedule that is refused."""
    with pytest.raises(InvalidTask):
        schedules.put(wrong)
    assert {} == schedules.all()[0]


def test_plain_jobs_of_rq_scheduler_are_handed_over(scheduler: Scheduler, client: Client, settings: Settings) -> None:
    """What `rq_scheduler` was told to run still runs, beside the schedules."""
    job = scheduler.enqueue_in(timedelta(seconds=-1), print, "hello")
    scheduler.tick()
    with Redis.from_url(settings.redis_url, protocol=2) as connection:
        assert [job.id] == Queue("default", connection=connection).job_ids
        assert "print" in Job.fetch(job.id, connection=connection).func_name


@pytest.fixture
def at_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this machine be in Berlin."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


IGNORES_FUTURE = pytest.mark.filterwarnings("ignore:Version 0.22:FutureWarning")
"""That of the library by which rq-scheduler works out its own times."""


@IGNORES_FUTURE
@pytest.mark.usefixtures("at_berlin")
@pytest.mark.parametrize(
    ("is_local", "start", "dues"),
    [
        # 2031-03-30: 02:00 becomes 03:00 in Berlin. UTC knows nothing of that.
        (False, "2031-03-29T12:00", ["2031-03-30T02:30", "2031-03-31T02:30"]),
        (True, "2031-03-29T12:00", ["2031-03-30T01:00", "2031-03-31T00:30"]),
        # 2031-10-26: 03:00 becomes 02:00.
        (False, "2031-10-25T12:00", ["2031-10-26T02:30", "2031-10-27T02:30"]),
        (True, "2031-10-25T12:00", ["2031-10-26T00:30", "2031-10-27T01:30"]),
    ],
)
def test_plain_cron_jobs_are_due_in_their_zone(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, is_local: bool, start: str, dues: list[str]
) -> None:
    """By UTC, or by the machine's time where asked for, when they are registered and each time they ran."""

    class Clock(datetime):
        at = datetime.fromisoformat(start).replace(tzinfo=UTC)

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return cls.at.astimezone(tz)

    monkeypatch.setattr("ghostless.jobs.scheduler.datetime", Clock)
    job = scheduler.cron("30 2 * * *", print, use_local_timezone=is_local)
    for expected in dues:
        due = scheduler.connection.zscore(scheduler.scheduled_jobs_key, job.id)
        Clock.at = datetime.fromtimestamp(due, UTC)  # type: ignore[arg-type]
        assert expected == f"{Clock.at:%Y-%m-%dT%H:%M}"
        scheduler.enqueue_job(job)


@IGNORES_FUTURE
def test_a_plain_expression_that_only_rq_scheduler_knows(scheduler: Scheduler) -> None:
    """It is due when rq-scheduler says."""
    job = scheduler.cron("@hourly", print)
    assert job in scheduler
    scheduler.enqueue_job(job)
    assert job in scheduler


def test_the_loop_survives_redis(scheduler: Scheduler, schedules: Schedules, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage is waited out; the loop ends when told to, not when Redis fails."""
    rounds: list[int] = []

    def tick() -> None:
        rounds.append(1)
        if len(rounds) < 3:
            raise RedisUnavailable(ConnectionError("gone")) if len(rounds) == 1 else KeyError("unknown")
        scheduler.stopping.set()

    monkeypatch.setattr(scheduler, "tick", tick)
    monkeypatch.setattr(scheduler, "_interval", 0.01)
    monkeypatch.setattr("ghostless.jobs.scheduler.LONGEST_PAUSE", 0.02)
    scheduler.run()
    assert 3 == len(rounds)


@pytest.fixture
def cli(settings: Settings, schedules: Schedules) -> Callable[..., str]:
    """The command line, which must succeed unless a code is given."""

    def run(*arguments: str, code: int = 0) -> str:
        outcome = CliRunner().invoke(main, ["--redis-url", settings.redis_url, *arguments])
        assert code == outcome.exit_code, outcome.output
        return outcome.output

    return run


def test_a_single_look_that_fails_is_told(cli: Callable[..., str], redis: Redis) -> None:
    """Whoever runs the scheduler by a timer sees it by the exit code."""
    cli("scheduler", "--burst")
    redis.set(Scheduler.scheduled_jobs_key, "no sorted set")
    assert "WRONGTYPE" in cli("scheduler", "--burst", code=1)
    redis.delete(Scheduler.scheduled_jobs_key)


def test_command_line(cli: Callable[..., str], client: Client) -> None:
    """A schedule's whole life by hand."""
    assert "no schedule is registered" in cli("schedules")
    added = ("schedules", "add", "nightly", "--type", "work", "-p", "n=1")
    assert "next run" in cli(*added, "--cron", "30 2 * * *", "--tz", "Europe/Berlin")
    assert "30 2 * * * (Europe/Berlin)" in cli("schedules", "list")
    task_id = cli("schedules", "run", "nightly").strip()
    assert State.PENDING == client.get(task_id).state
    assert "is paused" in cli("schedules", "pause", "nightly")
    assert "paused" in cli("schedules")
    assert "next run" in cli("schedules", "resume", "nightly")
    assert '"zone": "Europe/Berlin"' in cli("schedules", "--json")
    assert "overdue" not in cli("schedules")
    nightly = client.schedules.get("nightly")
    client.schedules.advance(nightly, replace(nightly, due=client.reads.now() - 11_000))
    assert "it is overdue; does a scheduler run? `ghostless scheduler`" in cli("schedules")
    assert "is removed" in cli("schedules", "remove", "nightly")
    assert "no schedule has the name" in cli("schedules", "remove", "nightly", code=1)


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        (["--every", "10m"], {"recurrence": {"every": 600_000}}),
        (["--every", "1d", "--misfire", "once"], {"recurrence": {"every": 86_400_000}, "misfire": "once"}),
        (["--cron", "0 3 * * *", "--misfire", "all"], {"misfire": "all"}),
        (["--cron", "0 3 * * *", "--misfire", "skip", "--overlap", "allow"], {"misfire": "skip", "overlap": "allow"}),
        (["--every", "2h", "--overlap", "skip", "--params", '{"n": 7}'], {"overlap": "skip", "params": {"n": 7}}),
        (["--every", "90s", "--queue", "elsewhere"], {"queue": "elsewhere"}),
    ],
)
def test_what_the_command_line_stores(cli: Callable[..., str], options: list[str], stored: dict[str, Any]) -> None:
    """Each option is kept as it was given."""
    cli("schedules", "add", "tidy", "--type", "work", *options)
    (schedule,) = json.loads(cli("schedules", "--json"))["schedules"]
    recurrence = stored.pop("recurrence", {})
    assert stored.items() <= schedule.items()
    assert recurrence.items() <= schedule["recurrence"].items()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--cron", "nonsense"], "cron"),
        (["--every", "soon"], "90s, 10m, 2h or 1d"),
        ([], "exactly one of cron and every"),
        (["--every", "10m", "--tz", "Mars/Olympus"], "tz"),
        (["--every", "10m", "-p", "n=text"], "params.n"),
        (["--every", "10m", "--queue", "no queue"], "queue"),
    ],
)
def test_what_the_command_line_refuses(cli: Callable[..., str], wrong: list[str], told: str) -> None:
    """Everything is checked before anything is stored."""
    code = 2 if "soon" in wrong else 1
    assert told in cli("schedules", "add", "tidy", "--type", "work", *wrong, code=code)
    assert "no schedule is registered" in cli("schedules")

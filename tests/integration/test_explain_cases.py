"""Every case of `explain`, made in Redis and told alike to a caller, a browser and a person."""

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner, Result
from flask.testing import FlaskClient
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.errors import TaskNotFound
from ghostless.jobs.horse_process import killed_by
from ghostless.jobs.keys import WORKER_RECORD
from ghostless.jobs.record import WorkerRecord
from ghostless.jobs.settings import Settings
from ghostless.jobs.supervisor import crashed
from ghostless.statemachine import Event, Policy
from redis import Redis
from web_tools import SCHEMA, Hand, publish, submitted


@dataclass
class World:
    """What a case is made with."""

    client: Client
    hand: Hand
    redis: Redis

    def submit(self, **wishes: object) -> str:
        """Submit a task."""
        return submitted(self.client, **wishes)

    def start(self) -> str:
        """Submit a task and start it."""
        task_id = self.submit()
        self.hand.start()
        return task_id

    def run(self, event: Event, message: str = "", **wishes: object) -> str:
        """Submit a task and run it to its end."""
        task_id = self.submit()
        self.hand.run(event=event, message=message, **wishes)
        return task_id

    def register(self, name: str, *types: str, **known: Any) -> None:
        """Let a worker listen on the queue that serves these types, with what else is known of it."""
        seconds, _ = self.redis.time()  # type: ignore[misc]
        beat = {"lease": 15_000, "beat_at": seconds * 1000, "horse_rss": 2**29, "health": "10.0.0.7:9000"}
        record = WorkerRecord(types=types, **beat | known)
        key = self.client.store.keys.rq_worker(name)
        self.redis.hset(key, mapping={"queues": "work", "state": "idle", WORKER_RECORD: record.to_json()})
        self.redis.sadd(self.client.store.keys.rq_workers, key)

    def sweep(self) -> None:
        """Let a watchdog be there, which judges leases from now on."""
        self.client.store.sweep("watchdog:test")
        self.redis.hset(self.client.store.keys.watchdog, "judge_from", 1)


def no_worker(world: World) -> str:
    """Nobody listens."""
    return world.submit()


def frozen_worker(world: World) -> str:
    """The only worker is frozen, or out of reach."""
    world.register("w1", "work", beat_at=world.client.reads.now() - 600_000)
    return world.submit()


def frozen_among_others(world: World) -> str:
    """The worker that serves the type is frozen, and another one knows other types."""
    world.register("w2", "other")
    return frozen_worker(world)


def no_worker_of_the_type(world: World) -> str:
    """A worker listens that knows other types."""
    world.register("w1", "other")
    return world.submit()


def queue_paused(world: World) -> str:
    """Somebody paused the queue."""
    task_id = world.submit()
    world.client.pause_queue("work")
    return task_id


def suspended(world: World) -> str:
    """`rq suspend` holds."""
    world.redis.set(world.client.store.keys.rq_suspended, 1)
    return world.submit()


def in_its_place(world: World) -> str:
    """Others are before it."""
    world.register("w1", "work")
    world.run(Event.COMPLETE)
    for _ in range(2):
        world.submit(id=f"0{_}")
    return world.submit(id="1")


def ticket_lost(world: World) -> str:
    """rq's list was emptied, and nobody watches."""
    world.register("w1", "work")
    task_id = world.submit()
    world.redis.delete(world.client.store.keys.rq_queue("work"))
    return task_id


def scheduled_unwatched(world: World) -> str:
    """Its time will come, and nobody will see it."""
    return world.submit(delay=60)


def retry_waiting(world: World) -> str:
    """An attempt failed."""
    return world.run(Event.FAIL, "ValueError: no model")


def running(world: World) -> str:
    """A worker has it."""
    world.register("hand", "work")
    return world.start()


def asked_to_stop(world: World) -> str:
    """Its worker has asked it to stop, since it reported no progress."""
    task_id = world.start()
    known = {"task_id": task_id, "attempt": 1, "stopping": "no progress for 60 s", "kill_at": 4_000_000_000_000}
    world.register("hand", "work", **known)
    return task_id


def lease_over(world: World) -> str:
    """Its worker fell silent, and the watchdog will look at it."""
    task_id = world.start()
    world.redis.delete(world.client.store.keys.heartbeat(task_id))
    world.sweep()
    return task_id


def cancelling(world: World) -> str:
    """Its worker was asked to stop it."""
    task_id = world.start()
    world.sweep()
    world.client.cancel(task_id, actor="cli:ann", message="wrong prompt")
    return task_id


def paused(world: World) -> str:
    """A person paused it."""
    task_id = world.submit()
    world.client.pause(task_id, actor="cli:ann", message="lunch")
    return task_id


def redis_full(world: World) -> str:
    """Redis is at its memory limit."""
    task_id = world.submit()
    world.redis.config_set("maxmemory", 1)
    return task_id


def succeeded(world: World) -> str:
    """All is well."""
    return world.run(Event.COMPLETE)


def failed_by_memory(world: World) -> str:
    """The kernel killed it."""
    died = crashed("handler", killed_by(signal.SIGKILL, ran_out=True))
    return world.run(died.event, died.message, retryable=False)


def out_of_time(world: World) -> str:
    """It ran too long, too often."""
    return world.run(Event.TIMEOUT, "ran longer than allowed, 600 s: stopped when asked after 0.1 s", retryable=False)


def host_lost(world: World) -> str:
    """Its host vanished, and its losses are used up."""
    kind = {"queue": "work", "policy": Policy(max_losses=0).pack(), "schema": SCHEMA, "description": ""}
    world.client.store.publish_types({"work": kind})
    task_id = lease_over(world)
    world.redis.zadd(world.client.store.keys.deadlines, {task_id: 0})
    world.sweep()
    return task_id


def cancelled(world: World) -> str:
    """A person did not want it any more."""
    task_id = world.submit()
    world.client.cancel(task_id, actor="cli:ann", message="wrong prompt")
    return task_id


Case = Callable[[World], str]

CASES: list[tuple[Case, str, str, str]] = [
    (no_worker, "no worker listens on its queue work", "`ghostless worker work` runs", "no watchdog swept lately"),
    (
        frozen_worker,
        "every worker of its queue work has fallen silent: w1 has not beaten for 10 min",
        "nothing until one of them goes on, or another `ghostless worker work` runs",
        "SUBMIT",
    ),
    (frozen_among_others, "no worker of its queue work serves", "--tasks MODULE", "w1 has not beaten for 10 min"),
    (no_worker_of_the_type, "no worker of its queue work serves the type work", "--tasks MODULE", "w1 serves other"),
    (queue_paused, "its queue work is paused", "`ghostless queues resume work`", "SUBMIT by client"),
    (suspended, "all workers are suspended", "`rq resume`", "SUBMIT"),
    (in_its_place, "it is number 3 of 3 in the queue work", "the worker w1 starts it when its turn comes, in", "by w1"),
    (ticket_lost, "its ticket is not in the queue work", "makes a new one if it was lost, once a watchdog", "no watch"),
    (scheduled_unwatched, "for a later time", "to its queue, once a watchdog runs", "no watchdog swept lately"),
    (retry_waiting, "attempt 1 ended: ValueError: no model", "for attempt 2", "failures so far: 1"),
    (running, "the worker hand runs attempt 1", "its worker stops it at its timeout", "handlers holds 512 MiB"),
    (
        asked_to_stop,
        "the worker hand has asked attempt 1 to stop: no progress for 60 s",
        "it ends as soon as its handler stops, or its worker kills its process",
        "it reported no progress so far",
    ),
    (lease_over, "its worker hand has gone silent", "the watchdog takes it away", "the last sweep was"),
    (cancelling, "to stop by cli:ann: wrong prompt", "worker kills its process after the grace", "its lease was"),
    (paused, "it was paused by cli:ann: lunch", "`ghostless resume", "PAUSE by cli:ann: lunch"),
    (redis_full, "no worker listens", "nothing until Redis takes writes again: it is at its memory limit", "SUBMIT"),
    (succeeded, "attempt 1 completed", "until its retention ends", "COMPLETE by worker:hand"),
    (failed_by_memory, "(SIGKILL), probably out of memory", "unless you `ghostless retry", "failures so far: 1"),
    (
        out_of_time,
        "given up; attempt 1 ended: ran longer than allowed, 600 s",
        "`ghostless retry",
        "timeouts so far: 1",
    ),
    (host_lost, "given up; attempt 1 ended: no heartbeat from worker hand", "`ghostless retry", "lost processes so"),
    (cancelled, "it was cancelled by cli:ann: wrong prompt", "nothing; it is kept", "CANCEL by cli:ann"),
]


@pytest.fixture
def world(client: Client, hand: Hand, redis: Redis) -> Iterator[World]:
    """One in which the type `work` is published; a memory limit is lifted after it."""
    publish(client.store)
    yield World(client, hand, redis)
    redis.config_set("maxmemory", 0)


def run(settings: Settings, *arguments: str) -> Result:
    """Run a verb."""
    return CliRunner().invoke(main, list(arguments), env={"GHOSTLESS_REDIS_URL": settings.redis_url})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_a_case_is_told_alike_everywhere(
    world: World, web: FlaskClient, settings: Settings, case: tuple[Case, str, str, str]
) -> None:
    """Why, what is next and what speaks for it: by the client, the API and the command line."""
    make, why, upcoming, evidence = case
    task_id = make(world)
    told = world.client.explain(task_id).to_dict()
    of_web = web.get(f"/api/tasks/{task_id}/explain").json
    of_line = json.loads(run(settings, "explain", task_id, "--json").stdout)
    for answer in (told, of_web, of_line):
        assert why in answer["why"]
        assert upcoming in answer["next"]
        assert any(evidence in line for line in answer["evidence"]), answer["evidence"]
        assert (told["state"], told["since"], told["actions"]) == (
            answer["state"], answer["since"], tuple(answer["actions"]),
        )  # fmt: skip
    shown = " ".join(run(settings, "explain", task_id).stdout.split())
    assert why in shown
    assert upcoming in shown


def test_the_times_of_what_is_next(world: World) -> None:
    """When the watchdog looks at it, when its process is killed: by the terms of its worker, on Redis' clock."""
    task_id = cancelling(world)
    settings, task = world.client.settings, world.client.get(task_id)
    assert task.entered_at + 1000 * settings.grace == world.client.explain(task_id).next_at
    silent = lease_over(world)
    look_at = world.redis.zscore(world.client.store.keys.deadlines, silent)
    assert look_at == world.client.explain(silent).next_at


def test_a_stop_of_another_attempt_is_none_of_this_one(world: World) -> None:
    """What the worker told last may be of what it ran before."""
    task_id = asked_to_stop(world)
    assert 4_000_000_000_000 == world.client.explain(task_id).next_at
    for earlier in ({"task_id": "t0", "attempt": 1}, {"task_id": task_id, "attempt": 0}):
        world.register("hand", "work", stopping="no progress for 60 s", **earlier)
        assert "the worker hand runs attempt 1" == world.client.explain(task_id).why


def test_a_stopping_worker_that_is_late_is_the_watchdogs(world: World) -> None:
    """After the time of the kill the next one to act is told, with its time."""
    task_id = cancelling(world)
    name = world.client.store.keys.task(task_id)
    since = world.client.get(task_id).entered_at - 6_000
    world.redis.hset(name, "entered_at", since)
    told = world.client.explain(task_id)
    assert "the watchdog takes it away from the worker" in told.next
    assert since + int(world.redis.hget(name, "patience") or 0) == told.next_at


@pytest.mark.parametrize(
    ("tombstone", "parts", "code"),
    [
        (None, ["no task has the id"], 404),
        ("FAILED 1700000000000", ["ended in FAILED", "purged at 2023-11-14 22:13:20"], 410),
        ("SUCCESS 1700000000000 20231114-a.jsonl.gz", ["it is archived in 20231114-a.jsonl.gz"], 410),
    ],
)
def test_what_is_not_there_any_more(
    world: World, web: FlaskClient, settings: Settings, tombstone: str | None, parts: list[str], code: int
) -> None:
    """An unknown id, a purged task, an archived one: never a guess."""
    if tombstone:
        world.redis.set(world.client.store.keys.tombstone("t1"), tombstone)
    with pytest.raises(TaskNotFound) as caught:
        world.client.explain("t1")
    answer, shown = web.get("/api/tasks/t1/explain"), run(settings, "explain", "t1")
    assert (code, 1) == (answer.status_code, shown.exit_code)
    for part in parts:
        assert all(part in text for text in (str(caught.value), answer.json["detail"], shown.stderr))


def test_a_place_in_a_very_long_queue_is_told_at_once(world: World, redis: Redis) -> None:
    """Beyond 10,000 tasks too: the place is looked up, not counted, and the ticket is searched no further."""
    task_id = world.submit(id="zz")
    keys = world.client.store.keys
    world.register("w1", "work")
    now = world.client.get(task_id).entered_at
    redis.zadd(keys.pending("work"), {f"t{number}": now - 1 for number in range(30_000)})
    redis.lpush(keys.rq_queue("work"), *(f"t{number}" for number in range(30_000)))
    assert "it is number 30001 of 30001" in world.client.explain(task_id).why
    redis.lrem(keys.rq_queue("work"), 0, task_id)
    assert "it is number 30001 of 30001" in world.client.explain(task_id).why

"""Every case of `explain`, made in Redis and told alike to a caller, a browser and a person."""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest
from click.testing import CliRunner, Result
from flask.testing import FlaskClient
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.errors import TaskNotFound
from ghostless.jobs.settings import Settings
from ghostless.statemachine import STORED, State
from redis import Redis
from scripts.seeding import ID, put, scene
from web_tools import Hand, publish

from .explain_cases import CASES, Case
from .explain_scenes import KILLED_AT, World, asked_to_stop, cancelling


@pytest.fixture
def world(client: Client, hand: Hand, redis: Redis) -> Iterator[World]:
    """One in which the type `work` is published; a memory limit is lifted after it."""
    publish(client.store)
    yield World(client, hand, redis)
    redis.config_set("maxmemory", 0)


def run(settings: Settings, *arguments: str) -> Result:
    """Run a verb."""
    return CliRunner().invoke(main, list(arguments), env={"GHOSTLESS_REDIS_URL": settings.redis_url})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)
def test_a_case_is_told_alike_everywhere(world: World, web: FlaskClient, settings: Settings, case: Case) -> None:
    """Why, what is next and when, what speaks for it and what a person can do: by client, API and command line."""
    task_id = case.make(world)
    told = world.client.explain(task_id).to_dict()
    of_web = web.get(f"/api/tasks/{task_id}/explain").json
    of_line = json.loads(run(settings, "explain", task_id, "--json").stdout)
    for answer in (told, of_web, of_line):
        assert_like(answer["why"], case.why, task_id)
        assert_like(answer["next"], case.next, task_id)
        for evidence in case.evidence:
            assert any(fnmatchcase(line, evidence) for line in answer["evidence"]), (evidence, answer["evidence"])
        assert (case.when(world, task_id), case.actions) == (answer["next_at"], tuple(answer["actions"]))
        task = world.client.get(task_id)
        assert (task.state, task.entered_at) == (answer["state"], answer["since"])
    shown = " ".join(run(settings, "explain", task_id).stdout.split())
    assert_like(shown, f"*{case.why}*{case.next}*", task_id)


@pytest.mark.parametrize("state", STORED)
def test_since_is_when_the_task_entered_its_state(
    world: World, web: FlaskClient, settings: Settings, state: State
) -> None:
    """In each state there is, and through each door: not when it was submitted or started, nor what time it is."""
    put(scene(world.redis), state)
    since = world.client.get(ID).entered_at - 6_000
    world.redis.hset(world.client.store.keys.task(ID), "entered_at", since)
    of_line = json.loads(run(settings, "explain", ID, "--json").stdout)
    for answer in (world.client.explain(ID).to_dict(), web.get(f"/api/tasks/{ID}/explain").json, of_line):
        assert (state, since) == (answer["state"], answer["since"])


def assert_like(sentence: str, pattern: str, task_id: str) -> None:
    """Check a whole sentence."""
    assert fnmatchcase(sentence, pattern.replace("ID", task_id)), sentence


def test_a_stop_of_another_attempt_is_none_of_this_one(world: World) -> None:
    """What the worker told last may be of what it ran before."""
    task_id = asked_to_stop(world)
    assert KILLED_AT == world.client.explain(task_id).next_at
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

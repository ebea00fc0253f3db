"""Poison in every index at once, under a real watchdog and a real worker: the good tasks move, and the bad are told."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, story
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.statemachine import STORED, State
from helpers import eventually, expect
from scripts.seeding import scene
from scripts.test_poison import MEMBERS, MISSING, clear_poison, poison

pytestmark = pytest.mark.slow

INDICES = (
    *("due", "deadlines", "retention", "settling", "pending:default", "parked:default:life.once", "owned:ann"),
    *(f"state:{state}" for state in STORED),
)
"""Those that are there already: what waits for a task comes to be with it."""

DAMAGED = {*MEMBERS} - {*MISSING}
"""Those with a record: they stay where tasks are counted."""


def spread(client: Client) -> None:
    """Put each damaged member at the front of every index and list, and damage what the whole database shares."""
    redis, keys = client.store.redis, client.store.keys
    poison(scene(redis), State.PENDING)
    redis.sadd(keys.parked_types("default"), "life.once")  # before its members, which may be taken out at once
    for index in INDICES:
        redis.zadd(keys.prefix + index, {member: -number for number, member in enumerate(MEMBERS)})
    redis.lpush(keys.rq_queue("default"), *MEMBERS)
    redis.hset(keys.queues, mapping={b"\xff": b"\xff", "gone": "perhaps", "": ""})
    redis.hset(keys.types, mapping={"broken": "{", b"\xff": "[]"})
    redis.hset(keys.watchdog, mapping={"swept_at": "yesterday", "judge_from": "inf"})


def test_poison_everywhere(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """Tasks behind the poison end once each, what is damaged is in quarantine and in the log, and no process ends.

    Then the quarantine itself is damaged, and the same again: the log alone tells then.
    """
    serving()
    redis, keys = client.store.redis, client.store.keys
    spread(client)
    first, *ids = submit_all(client, trace)
    eventually(lambda: assert_none_left(client, first, ids), seconds=30)
    assert all(len(line) < 2_000 for line in fleet.logs().splitlines())
    in_lists = len(DAMAGED)  # a ticket of nothing at all is no damage
    looked_through = {*(keys.prefix + index for index in INDICES), keys.dependents(first)}
    places = [place.partition(" ")[0] for place in redis.hkeys(keys.quarantine)]
    assert looked_through <= set(places), set(places) ^ looked_through
    counted = len(STORED) * len(DAMAGED)
    assert len(places) == len(looked_through) * len(MEMBERS) - counted + in_lists, Counter(places)
    told = fleet.logs()
    silent = {index for index in looked_through if f": CORRUPT {index}: no task " not in told}
    assert silent <= {keys.parked("default:life.once")}, "what a worker meets is noted, and not in the watchdog's log"
    redis.delete(keys.quarantine)
    redis.set(keys.quarantine, "no hash")
    spread(client)
    second, *others = submit_all(client, trace)
    eventually(lambda: assert_none_left(client, second, others), seconds=30)
    assert f"CORRUPT {keys.quarantine}: expected hash, got string" in fleet.logs()
    assert [process.poll() for process in fleet.processes] == [None, None]
    ids += others
    assert [story(client, task_id) for task_id in ids] == [["SUBMIT", "RELEASE", "START", "COMPLETE"]] * len(ids)
    tidy_up(client)
    assert_clean(client, fleet, first, second, *ids)


def submit_all(client: Client, trace: Path) -> list[str]:
    """Submit good tasks: one, others that wait for it in the midst of damaged members, and some that wait a moment."""
    redis, keys, params = client.store.redis, client.store.keys, {"trace": str(trace)}
    client.pause_queue("default")
    first = client.submit("life.once", params, owner="ann").task_id
    waiting = [client.submit("life.once", params, depends_on=[first]).task_id for _ in range(10)]
    redis.zadd(keys.dependents(first), {member: -number for number, member in enumerate(MEMBERS)})
    client.resume_queue("default")
    return [first, *waiting, *(client.submit("life.once", params, delay=0.2).task_id for _ in range(10))]


def assert_none_left(client: Client, first: str, ids: list[str]) -> None:
    """Check that all ended, and that no damaged member is left in any index but in those that count tasks."""
    redis, keys = client.store.redis, client.store.keys
    assert {client.get(task_id).state for task_id in (first, *ids)} == {State.SUCCESS}
    indices = (*(keys.prefix + index for index in INDICES), keys.dependents(first))
    left = {index: {member for member in MEMBERS if redis.zscore(index, member) is not None} for index in indices}
    states = {*map(keys.state, STORED)}
    assert left == {index: DAMAGED if index in states else set() for index in indices}
    expect(redis.llen(keys.rq_queue("default")) == 0)


def tidy_up(client: Client) -> None:
    """Remove the damage that is for the audit to find, so that it can look at the good tasks."""
    redis, keys = client.store.redis, client.store.keys
    clear_poison(scene(redis))
    for state in STORED:
        redis.zrem(keys.state(state), *MEMBERS)
    redis.delete(keys.quarantine)

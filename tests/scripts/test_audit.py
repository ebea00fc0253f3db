"""The oracle itself: it is silent on a sound database, and it sees each kind of damage."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from audit import audit
from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.bulk_actions import BulkActions
from ghostless.jobs.client import Client
from ghostless.jobs.keys import CALLBACKS
from ghostless.statemachine import STORED, State
from looks import LEAVES_DAMAGE, NAMED
from redis import Redis
from scripts.seeding import ID, OWNER, QUEUE, Scene, park, put, scene, submission


@pytest.mark.parametrize("state", STORED)
def test_it_is_silent_on_a_sound_database(backend: Redis, state: State) -> None:
    """A task in any state, and an empty database, hold no violation."""
    stage = scene(backend)
    assert [] == audit(backend, stage.keys)
    put(stage, state)
    assert [] == audit(backend, stage.keys, [ID])


def test_it_is_silent_on_a_parked_task(backend: Redis) -> None:
    """A parked task has no ticket, and needs none."""
    stage = scene(backend)
    put(stage, State.PENDING)
    park(stage)
    assert [] == audit(backend, stage.keys, [ID])


def _entry(stage: Scene, at: int) -> str:
    return stage.task[f"h{at}"]


def _rewrite(stage: Scene, at: int, **changes: str) -> None:
    entry_id = _entry(stage, at)
    ((_, fields),) = stage.redis.xrange(stage.keys.history, entry_id, entry_id)
    stage.redis.xdel(stage.keys.history, entry_id)
    stage.redis.hset(stage.keys.task(ID), f"h{at}", stage.redis.xadd(stage.keys.history, {**fields, **changes}))


def _bulk_action(stage: Scene) -> str:
    wish = BulkRequest("cancel", BulkFilter(ids=("none",)))
    return BulkActions(stage.store).begin(wish, "tester").bulk_id


def _delivery(stage: Scene) -> str:
    """Let a task end whose callback waits to be told."""
    client = Client(stage.store.settings, stage.redis)
    client.listeners.create(CALLBACKS)
    stage.store.submit(submission("called", callback_url="https://example.com/"))
    stage.store.cancel("called", "tester")
    client.deliveries.plan(client.history("called")[-1])
    return stage.keys.deliveries("called")


def _also_parked(stage: Scene) -> None:
    park(stage)
    stage.redis.hdel(stage.keys.task(ID), "parked_at")
    stage.redis.rpush(stage.keys.rq_queue(QUEUE), ID)


def _orphan(stage: Scene) -> str:
    """Let rq keep a ticket whose task is gone, in no list; return the name of its record."""
    put(stage, State.PENDING)
    stage.redis.copy(stage.keys.rq_job(ID), stage.keys.rq_job("gone"))
    return stage.keys.rq_job("gone")


DAMAGE: list[tuple[str, State, Callable[[Scene], object], str]] = [
    ("the task is gone", State.PENDING, lambda s: s.redis.delete(s.keys.task(ID)), "a: t1 was accepted and is gone"),
    ("an unknown state", State.PENDING, lambda s: s.redis.hset(s.keys.task(ID), "state", "X"), "a: t1 is damaged"),
    (
        "the record is a string",
        State.PENDING,
        lambda s: s.redis.set(s.keys.task(ID), "x"),
        "c: ghostless:task:t1 is a string",
    ),
    (
        "not in its state's index",
        State.PENDING,
        lambda s: s.redis.delete(s.keys.state("PENDING")),
        "b: t1 is PENDING and not in",
    ),
    (
        "in another state's index",
        State.PENDING,
        lambda s: s.redis.zadd(s.keys.state("FAILED"), {ID: 1}),
        "b: t1 is PENDING and yet in",
    ),
    (
        "a wrong score",
        State.PENDING,
        lambda s: s.redis.zadd(s.keys.state("PENDING"), {ID: 1}),
        "b: t1 has the score 1.0",
    ),
    (
        "not in its owner's index",
        State.PROCESSING,
        lambda s: s.redis.delete(s.keys.owned(OWNER)),
        f"b: t1 is PROCESSING and not in ghostless:owned:{OWNER}",
    ),
    (
        "in another owner's index",
        State.PAUSED,
        lambda s: s.redis.zadd(s.keys.owned("Ann Lee"), {ID: 1}),
        "b: t1 is PAUSED and yet in ghostless:owned:Ann Lee",
    ),
    (
        "a wrong score in its owner's index",
        State.SUCCESS,
        lambda s: s.redis.zadd(s.keys.owned(OWNER), {ID: 1}),
        "b: t1 has the score 1.0",
    ),
    (
        "an owner's task that is none",
        State.PENDING,
        lambda s: s.redis.zadd(s.keys.owned("Ann: [*] ?"), {"gone": 1}),
        "c: ghostless:owned:Ann: [*] ? lists 'gone', which is no task",
    ),
    (
        "no ticket",
        State.PENDING,
        lambda s: s.redis.delete(s.keys.rq_queue(QUEUE)),
        "d: t1 is PENDING and nothing will move it",
    ),
    (
        "two tickets",
        State.PENDING,
        lambda s: s.redis.rpush(s.keys.rq_queue(QUEUE), ID),
        "b: t1 is PENDING and has the tickets {'q': 2}",
    ),
    (
        "an empty ticket",
        State.PENDING,
        lambda s: s.redis.delete(s.keys.rq_job(ID)),
        "b: t1 is PENDING and its rq job is {}",
    ),
    (
        "a ticket too many",
        State.PAUSED,
        lambda s: s.redis.rpush(s.keys.rq_queue(QUEUE), ID),
        "b: t1 is PAUSED and has the tickets",
    ),
    ("parked and queued", State.PENDING, _also_parked, "b: t1 is PENDING and yet in ghostless:parked:q:demo.add"),
    (
        "parked without a mark",
        State.PENDING,
        lambda s: (park(s), s.redis.hdel(s.keys.task(ID), "parked_at")),
        "b: t1 is PENDING and has the tickets {}",
    ),
    (
        "parked, and its type not named",
        State.PENDING,
        lambda s: (park(s), s.redis.delete(s.keys.parked_types(QUEUE))),
        "d: t1 is PENDING and nothing will move it",
    ),
    (
        "parked with a wrong score",
        State.PENDING,
        lambda s: (park(s), s.redis.zadd(s.keys.parked("q:demo.add"), {ID: 1})),
        "b: t1 has the score 1.0",
    ),
    (
        "parked under another type",
        State.PENDING,
        lambda s: (park(s), s.redis.rename(s.keys.parked("q:demo.add"), s.keys.parked("q:demo.sub"))),
        "b: t1 is PENDING and not in ghostless:parked:q:demo.add",
    ),
    (
        "a mark of parking that stayed",
        State.PAUSED,
        lambda s: s.redis.hset(s.keys.task(ID), "parked_at", 1),
        "b: t1 is PAUSED and its parked_at is '1'",
    ),
    (
        "a parked type without tasks",
        State.PENDING,
        lambda s: s.redis.sadd(s.keys.parked_types(QUEUE), "demo.sub"),
        "c: ghostless:parked_types:q names 'demo.sub', and none is parked",
    ),
    (
        "no deadline",
        State.PROCESSING,
        lambda s: s.redis.delete(s.keys.deadlines),
        "d: t1 is PROCESSING and nothing will move it",
    ),
    (
        "no due time",
        State.RETRY_WAITING,
        lambda s: s.redis.delete(s.keys.due),
        "d: t1 is RETRY_WAITING and nothing will move it",
    ),
    (
        "another due time",
        State.SCHEDULED,
        lambda s: s.redis.zadd(s.keys.due, {ID: 5}),
        "b: t1 has the score 5.0 in ghostless:due",
    ),
    (
        "no retention",
        State.SUCCESS,
        lambda s: s.redis.delete(s.keys.retention),
        "b: t1 is SUCCESS and not in ghostless:retention",
    ),
    (
        "a lease of another",
        State.PROCESSING,
        lambda s: s.redis.set(s.keys.heartbeat(ID), "w9 1", px=9_000),
        "c: the lease of t1 is 'w9 1'",
    ),
    (
        "a lease of nobody",
        State.PAUSED,
        lambda s: s.redis.set(s.keys.heartbeat(ID), "w1 1", px=9_000),
        "c: the lease of t1",
    ),
    ("a member without a task", State.PENDING, lambda s: s.redis.zadd(s.keys.due, {b"\xff": 1}), "which is no task"),
    (
        "a ticket of nothing",
        State.PAUSED,
        lambda s: s.redis.rpush(s.keys.rq_queue(QUEUE), "no"),
        "c: the queue q holds 'no'",
    ),
    ("an entry of nobody", State.PENDING, lambda s: s.redis.xadd(s.keys.history, {"task": "x"}), "belongs to no task"),
    (
        "an entry is gone",
        State.PROCESSING,
        lambda s: s.redis.xdel(s.keys.history, _entry(s, 1)),
        "is not in the history",
    ),
    (
        "an entry is not named",
        State.PROCESSING,
        lambda s: s.redis.hdel(s.keys.task(ID), "h2"),
        "c: t1 has 2 entries and the fields [1]",
    ),
    ("an illegal step", State.PROCESSING, lambda s: _rewrite(s, 2, to="SUCCESS"), "is no legal step from 'PENDING'"),
    ("a jump", State.PROCESSING, lambda s: _rewrite(s, 2, **{"from": "PAUSED"}), "is no legal step from 'PENDING'"),
    (
        "a state without a step",
        State.PAUSED,
        lambda s: _rewrite(s, 2, event="CANCEL", to="CANCELLED"),
        "its history ends in 'CANCELLED'",
    ),
    ("entries in another order", State.PROCESSING, lambda s: _rewrite(s, 1), "is not newer than the one before"),
    ("an unknown reason", State.PENDING, lambda s: _rewrite(s, 1, reason="whim"), "gives the reason 'whim'"),
    ("nobody did it", State.PENDING, lambda s: _rewrite(s, 1, actor=""), "names no actor"),
    (
        "another attempt",
        State.PROCESSING,
        lambda s: s.redis.hset(s.keys.task(ID), "attempt", 2),
        "e: t1 is at attempt 2",
    ),
    ("a key without TTL", State.PENDING, lambda s: s.redis.set("ghostless:cache", 1), "g: ghostless:cache has no TTL"),
    ("a strange key", State.PENDING, lambda s: s.redis.set("cache", 1), "g: cache has no TTL"),
    (
        "a task that will expire",
        State.PENDING,
        lambda s: s.redis.expire(s.keys.task(ID), 60),
        "g: ghostless:task:t1 has a TTL",
    ),
    (
        "a lease without TTL",
        State.PROCESSING,
        lambda s: s.redis.persist(s.keys.heartbeat(ID)),
        "g: ghostless:heartbeat:t1 has no TTL",
    ),
    ("a value of nobody", State.PENDING, lambda s: s.redis.set(s.keys.result("x"), 1), "c: ghostless:result:x exists"),
    (
        "a tombstone too early",
        State.PENDING,
        lambda s: s.redis.set(s.keys.tombstone(ID), "x", ex=9),
        "c: ghostless:tombstone:t1 exists",
    ),
    (
        "a wrong count",
        State.PENDING,
        lambda s: s.redis.hincrby(s.keys.ledger, "submitted", 1),
        "h: 2 were submitted, 1 are here",
    ),
    (
        "something in quarantine",
        State.PENDING,
        lambda s: s.redis.hset(s.keys.quarantine, "due x", "y"),
        "c: quarantine holds 1, not 0",
    ),
    (
        "the passing state",
        State.PENDING,
        lambda s: s.redis.hset(s.keys.task(ID), "state", "TIMEOUT"),
        "b: t1 rests in TIMEOUT",
    ),
    (
        "a worker of nothing",
        State.PAUSED,
        lambda s: s.redis.hset(s.keys.task(ID), "worker_id", "w"),
        "its worker_id is 'w'",
    ),
    (
        "a bulk action that would expire",
        State.PAUSED,
        lambda s: s.redis.expire(s.keys.bulk(_bulk_action(s)), 99),
        "g: ghostless:bulk:",
    ),
    (
        "a bulk action that ended and would not expire",
        State.PAUSED,
        lambda s: (b := _bulk_action(s), BulkActions(s.store).stop(b), s.redis.persist(s.keys.bulk(b))),
        "g: ghostless:bulk:",
    ),
    (
        "a bulk action without a turn",
        State.PAUSED,
        lambda s: (_bulk_action(s), s.redis.delete(s.keys.bulks_running)),
        "d: the bulk action ",
    ),
    (
        "a bulk action without a record",
        State.PAUSED,
        lambda s: s.redis.delete(s.keys.bulk(_bulk_action(s))),
        "c: ghostless:bulks_running names ",
    ),
    (
        "a delivery that would expire",
        State.PAUSED,
        lambda s: s.redis.expire(_delivery(s), 99),
        "g: ghostless:deliveries:called is not over and has a TTL",
    ),
    (
        "a delivery without a record",
        State.PAUSED,
        lambda s: s.redis.delete(_delivery(s)),
        "d: the delivery called ",
    ),
    (
        "a delivery without a record, of a task that is purged",
        State.PAUSED,
        lambda s: [
            s.redis.zadd(*at)
            for at in (
                (s.keys.due_deliveries("x.example"), {"none 1-1": 1}),
                (s.keys.due_receivers, {"x.example": 1}),
            )
        ],
        "d: the delivery none 1-1 ",
    ),
]


@pytest.mark.parametrize(("what", "state", "damage", "violation"), DAMAGE, ids=[case[0] for case in DAMAGE])
def test_it_sees_each_kind_of_damage(redis: Redis, what: str, state: State, damage: Callable, violation: str) -> None:
    """One thing put out of order by hand is named in a violation."""
    stage = scene(redis)
    put(stage, state)
    damage(stage)
    found = audit(redis, stage.keys, [ID])
    assert any(violation in line for line in found), found


def test_it_sees_a_side_effect_that_happened_twice(redis: Redis) -> None:
    """One effect an attempt is sound; two, one of an attempt that never began, and one of no task are not."""
    stage = scene(redis)
    put(stage, State.SUCCESS)
    assert [] == audit(redis, stage.keys, [ID], effects={ID: [1]})
    assert ["f"] == [line[0] for line in audit(redis, stage.keys, [ID], effects={ID: [1, 1]})]
    assert ["f"] == [line[0] for line in audit(redis, stage.keys, [ID], effects={ID: [1, 2]})]
    assert ["f"] == [line[0] for line in audit(redis, stage.keys, [ID], effects={ID: [1], "nobody": [1]})]


def test_it_sees_what_an_attempt_left_behind(redis: Redis, tmp_path: Path) -> None:
    """A process that lives, a zombie, and a folder that still exists."""
    found = audit(redis, pids=[os.getpid()], folders=[tmp_path])
    assert ["i: process", "i: folder"] == [line[:10].rstrip() for line in found]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert [] == audit(redis, pids=[ended.pid], folders=[tmp_path / "gone"])


OF_RQ: dict[str, Callable[[Scene], object]] = {
    "c: rq:job:gone exists, and task gone does not": _orphan,
    "c: the queue q holds 'gone', which is no task and no rq job": lambda s: (
        _orphan(s),
        s.redis.rpush(s.keys.rq_queue(QUEUE), "gone"),
    ),
    "c: the queue q:intermediate holds 'gone', which is no task": lambda s: s.redis.rpush(
        s.keys.rq_intermediate(QUEUE), "gone"
    ),
    "c: rq:wip:q lists 'gone', which is no task": lambda s: s.redis.zadd(s.keys.rq_started(QUEUE), {"gone:run": 1}),
    "c: rq:failed:q lists 'gone', which is no task": lambda s: s.redis.zadd("rq:failed:q", {"gone": 1}),
    "c: rq:executions:gone exists, and task gone does not": lambda s: s.redis.zadd(
        s.keys.rq_executions("gone"), {"run": 1}
    ),
}


@pytest.mark.parametrize("violation", OF_RQ)
def test_it_sees_what_rq_keeps_of_tasks_that_are_gone(redis: Redis, violation: str) -> None:
    """Tickets in whatever list or in none, and entries of rq's registries."""
    stage = scene(redis)
    OF_RQ[violation](stage)
    assert any(line.startswith(violation) for line in audit(redis, stage.keys)), audit(redis, stage.keys)


def test_it_is_silent_on_plain_jobs_and_on_what_passes(redis: Redis) -> None:
    """What is rq's own is no matter of ours, wherever it stands; a ticket that expires is gone in a moment."""
    stage = scene(redis)
    stage.redis.hset(stage.keys.rq_job("plain"), mapping={"origin": QUEUE, "data": "some call"})
    stage.redis.rpush(stage.keys.rq_queue(QUEUE), "plain")
    stage.redis.rpush(stage.keys.rq_intermediate(QUEUE), "plain")
    stage.redis.zadd(stage.keys.rq_started(QUEUE), {"plain:run": 1})
    stage.redis.zadd(stage.keys.rq_executions("plain"), {"run": 1})
    stage.redis.expire(_orphan(stage), 60)
    assert [] == audit(redis, stage.keys, [ID])


def test_only_tests_of_the_table_of_faults_are_excepted_from_it() -> None:
    """After each other test that is named there the database is audited; an exception for none is forgotten here."""
    assert LEAVES_DAMAGE.keys() <= NAMED

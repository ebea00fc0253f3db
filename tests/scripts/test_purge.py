"""The end of a task's retention: all of it goes, and its id stays taken for a while."""

from dataclasses import replace

import pytest
from audit import audit
from ghostless.jobs.client import Client
from ghostless.jobs.errors import TaskConflict, TaskNotFound
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import BATCH
from ghostless.statemachine import FINAL, STORED, Event, Policy, State
from redis import Redis
from scripts.seeding import ID, QUEUE, claimed, finish, make_due, make_outdated, put, scene, submission, wish
from scripts.snapshot import difference, snapshot


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_purge_removes_all_of_a_task_and_leaves_a_tombstone(backend: Redis, state: State) -> None:
    """Record, values, places and history entries are gone; what stays is the tombstone with its time to live."""
    stage = scene(backend)
    put(stage, state, metadata_json="{}", owner="ann")
    for value in ("checkpoint", "result", "error"):
        backend.set(getattr(stage.keys, value)(ID), "{}")
    backend.rpush(stage.keys.log(ID), "line")
    stage.store.submit(submission("t2"))
    make_outdated(stage)
    swept = stage.store.purge()
    assert (1, 1, ()) == (swept.looked_at, swept.moved, swept.problems)
    tombstone, life = stage.keys.tombstone(ID), round(1000 * Settings().tombstone)
    assert [tombstone] == [key for key in backend.scan_iter() if ID in key]
    assert life - 10_000 < backend.pttl(tombstone) <= life
    assert state == str(backend.get(tombstone)).split()[0]
    assert ["t2"] == [entry["task"] for _, entry in backend.xrange(stage.keys.history)]
    assert {"submitted": "2", "purged": "1"} == backend.hgetall(stage.keys.ledger)
    assert [] == audit(backend, stage.keys, [ID, "t2"])


@pytest.mark.parametrize("state", [state for state in STORED if state not in FINAL])
def test_a_task_that_is_not_final_is_never_purged(backend: Redis, state: State) -> None:
    """A live task in `retention` is taken out of it, and otherwise untouched."""
    stage = scene(backend)
    put(stage, state)
    before = snapshot(backend)
    make_outdated(stage)
    assert 0 == stage.store.purge().moved
    assert {} == difference(before, snapshot(backend))


def test_retention_begins_at_the_last_move_and_is_the_tasks_own(redis: Redis) -> None:
    """A task with a retention of a minute is due a minute after it became final, and not purged before."""
    stage = scene(redis)
    put(stage, State.SUCCESS, Policy(retention=60_000))
    assert int(stage.task["entered_at"]) + 60_000 == redis.zscore(stage.keys.retention, ID)
    assert 0 == stage.store.purge().looked_at


def test_live_tasks_and_their_values_have_no_time_to_live(redis: Redis) -> None:
    """However short the retention: nothing of a task that is not final expires (B26)."""
    stage = scene(redis)
    for state in STORED:
        stage.start_over()
        put(stage, state, replace(Policy(), retention=60_000), metadata_json="{}")
        assert [] == [
            key for key in redis.scan_iter() if redis.pttl(key) > 0 and not key.startswith(expiring(stage.keys))
        ]


def expiring(keys) -> tuple[str, ...]:
    """Return the beginnings of the keys that have a time to live by design."""
    return keys.heartbeat(""), keys.claim(""), keys.idempotency(""), keys.tombstone(""), keys.watchdog


def test_the_id_of_a_purged_task_stays_taken_until_its_tombstone_is_gone(redis: Redis, settings: Settings) -> None:
    """A submit hears `purged`, a read when it happened; without the tombstone the id is free and begins anew."""
    stage = scene(redis)
    put(stage, State.SUCCESS)
    make_outdated(stage)
    stage.store.purge()
    before = snapshot(redis)
    client = Client(settings, redis)
    assert "purged" == stage.store.submit(submission()).word
    with pytest.raises(TaskNotFound, match="its retention ended and it was purged") as caught:
        client.get(ID)
    assert stage.now() - 10_000 < caught.value.purged_at <= stage.now()
    with pytest.raises(TaskNotFound) as caught:
        client.history(ID)
    assert caught.value.purged_at is not None
    assert {} == difference(before, snapshot(redis))
    redis.delete(stage.keys.tombstone(ID))
    assert "moved" == stage.store.submit(submission()).word
    assert ("0", "1") == (stage.task["attempt"], stage.task["entries"])
    assert [] == audit(redis, stage.keys, [ID])


def test_a_purged_id_is_a_conflict_for_the_client(client: Client, redis: Redis) -> None:
    """`Client.submit` of an id whose task was purged raises TaskConflict."""
    client.store.publish_types(
        {"demo.add": {"queue": QUEUE, "policy": Policy().pack(), "schema": {}, "description": ""}}
    )
    client.submit("demo.add", {}, id=ID)
    client.cancel(ID)
    redis.zadd(client.store.keys.retention, {ID: 0})
    client.store.purge()
    with pytest.raises(TaskConflict, match=ID):
        client.submit("demo.add", {}, id=ID)
    with pytest.raises(TaskNotFound):
        client.cancel(ID)


def test_the_ledger_adds_up_whatever_happens(redis: Redis) -> None:
    """Submits, repeated submits, refused ones, ends and purges: submitted = live + final + purged."""
    stage = scene(redis)
    ids = [f"t{number:03}" for number in range(BATCH + 20)]
    for number, task_id in enumerate(ids):
        stage.store.submit(submission(task_id))
        stage.store.submit(submission(task_id))
        stage.store.submit(replace(submission(task_id), fingerprint="another"))
        if number % 6:
            stage.store.cancel(task_id, "tester")
    redis.zadd(stage.keys.retention, dict.fromkeys(ids, 0), xx=True)
    moved = [stage.store.purge().moved for _ in range(3)]
    assert [100, 0, 0] == moved
    assert {"submitted": "120", "purged": "100"} == redis.hgetall(stage.keys.ledger)
    assert [] == audit(redis, stage.keys, ids)


def test_the_entries_of_a_long_history_are_all_deleted(redis: Redis) -> None:
    """More than a thousand entries are deleted in several commands of one script."""
    stage = scene(redis)
    stage.store.submit(submission())
    for number in range(420):
        stage.held = claimed(stage.store, wish("w1", f"{number:04x}")).held
        finish(stage, Event.SUSPEND)
    stage.store.cancel(ID, "tester")
    assert 1 + 420 * 3 + 1 == redis.xlen(stage.keys.history) == int(stage.task["entries"])
    assert [] == audit(redis, stage.keys, [ID])
    make_outdated(stage)
    assert 1 == stage.store.purge().moved
    assert 0 == redis.xlen(stage.keys.history)
    assert [] == audit(redis, stage.keys, [ID])


def test_a_retried_task_leaves_the_retention(redis: Redis) -> None:
    """An operator's RETRY takes a task out of `retention`, and its next end puts it in again, later."""
    stage = scene(redis)
    put(stage, State.FAILED)
    first = redis.zscore(stage.keys.retention, ID)
    stage.store.retry(ID, "tester")
    assert redis.zscore(stage.keys.retention, ID) is None
    make_due(stage)
    stage.store.release("watchdog")
    stage.held = claimed(stage.store, wish("w1", "ee")).held
    finish(stage, Event.COMPLETE)
    assert first <= redis.zscore(stage.keys.retention, ID)
    assert [] == audit(redis, stage.keys, [ID])

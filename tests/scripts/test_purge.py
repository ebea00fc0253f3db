"""The end of a task's retention: all of it goes, and its id stays taken for a while."""

from dataclasses import replace

import pytest
from audit import audit
from ghostless.jobs.client import Client
from ghostless.jobs.errors import TaskConflict, TaskNotFound
from ghostless.jobs.settings import Settings
from ghostless.jobs.watchdog_steps import ENTRIES_DELETED
from ghostless.lua import BATCH
from ghostless.statemachine import FINAL, STORED, Event, Policy, State
from redis import Redis
from scripts.seeding import (
    ALL,
    ID,
    QUEUE,
    Carrier,
    Scene,
    archived,
    claimed,
    finish,
    fire,
    make_due,
    make_outdated,
    put,
    scene,
    set_up,
    submission,
    wish,
)
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


@pytest.mark.parametrize("carrier", ALL, ids=lambda carrier: carrier.verb)
def test_no_call_gives_a_live_task_a_time_to_live(redis: Redis, carrier: Carrier) -> None:
    """Nor does whatever is done to one, a report say, set what it keeps to expire (B26)."""
    stage = scene(redis)
    set_up(stage, carrier)
    fire(stage, carrier)
    if stage.task.get("state", State.SUCCESS) not in FINAL:
        assert [] == [
            key
            for key in redis.scan_iter()
            if ID in key and redis.pttl(key) > 0 and not key.startswith(expiring(stage.keys))
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
    ended = sum(1 for number in range(len(ids)) if number % 6)
    assert [BATCH, ended - BATCH, 0] == moved
    assert {"submitted": str(len(ids)), "purged": str(ended)} == redis.hgetall(stage.keys.ledger)
    assert [] == audit(redis, stage.keys, ids)


def add_entries(stage: Scene, number: int) -> None:
    """Let the task have many more entries, in between those of another task, faster than by moves."""
    redis, keys, name = stage.redis, stage.keys, stage.keys.task(ID)
    (last,) = redis.xrevrange(keys.history, count=1)
    first = int(stage.task["entries"]) + 1
    with redis.pipeline(transaction=False) as pipeline:
        for _ in range(number):
            pipeline.xadd(keys.history, last[1])
        ids = pipeline.execute()
    redis.hset(name, mapping={f"h{first + index}": entry_id for index, entry_id in enumerate(ids)})
    redis.hset(name, "entries", first + number - 1)


def test_a_long_history_goes_in_steps(backend: Redis) -> None:
    """The task is purged at once, its entries by bounded calls; the watchdog hears that there is more to do.

    The oldest go first, so that a reader never finds a step without those that followed it.
    """
    stage = scene(backend)
    put(stage, State.CANCELLED)
    number = 5 * ENTRIES_DELETED // 2
    add_entries(stage, number)
    make_outdated(stage)
    ids = [entry_id for entry_id, _ in backend.xrange(stage.keys.history)]
    left, swept = [], []
    for _ in range(4):
        swept.append(stage.store.purge())
        left.append(backend.xlen(stage.keys.history))
        assert ids[len(ids) - left[-1] :] == [entry_id for entry_id, _ in backend.xrange(stage.keys.history)]
        assert [] == audit(backend, stage.keys, [ID])
    assert [1, 0, 0, 0] == [step.moved for step in swept]
    assert [number + 2, number + 2 - ENTRIES_DELETED, number + 2 - 2 * ENTRIES_DELETED, 0] == left
    assert [True, True, True, False] == [step.looked_at >= BATCH for step in swept]
    assert [stage.keys.tombstone(ID)] == [key for key in backend.scan_iter() if ID in key]


def test_what_is_left_over_makes_way_for_others(redis: Redis) -> None:
    """While a long history goes in steps others are purged; one whose ids are damaged is set aside, and told."""
    stage = scene(redis)
    put(stage, State.CANCELLED)
    add_entries(stage, 3 * ENTRIES_DELETED // 2)
    redis.hset(stage.keys.task(ID), f"h{ENTRIES_DELETED + 200}", "no id")
    make_outdated(stage)
    stage.store.purge()
    stage.store.submit(submission("t2"))
    stage.store.cancel("t2", "tester")
    redis.zadd(stage.keys.retention, {"t2": 0})
    assert 1 == stage.store.purge().moved
    swept = stage.store.purge()
    assert "ids of entries" in swept.problems[0]
    assert not redis.exists(stage.keys.leftovers)
    assert 1 == redis.hlen(stage.keys.quarantine)


@pytest.mark.parametrize("tasks", [1, 100])
def test_long_histories_never_block_redis_for_long(redis: Redis, tasks: int) -> None:
    """A task with 10,000 entries, or a hundred with 30 each: no call takes Redis longer than 20 ms."""
    stage = scene(redis)
    ids = [ID, *(f"u{number}" for number in range(tasks - 1))]
    put(stage, State.CANCELLED)
    add_entries(stage, 10_000 if tasks == 1 else 30)
    record = stage.task
    for task_id in ids[1:]:  # copies, whose entries are the same
        redis.hset(stage.keys.task(task_id), mapping=record)
        redis.zadd(stage.keys.state(State.CANCELLED), {task_id: float(record["entered_at"])})
    redis.zadd(stage.keys.retention, dict.fromkeys(ids, 0))
    redis.config_resetstat()
    purged, calls = 0, 0
    while redis.exists(stage.keys.leftovers, stage.keys.retention):
        purged, calls = purged + stage.store.purge().moved, calls + 1
    assert tasks == purged
    average = redis.info("commandstats")["cmdstat_evalsha"]["usec_per_call"]
    assert average < 20_000, f"{average / 1000} ms in each of {calls} calls"


def test_nothing_is_purged_unarchived_once_an_archive_is_demanded(backend: Redis) -> None:
    """Whoever purges: it holds for every process, until it is taken back."""
    stage = scene(backend)
    put(stage, State.SUCCESS)
    make_outdated(stage)
    stage.store.demand_archive()
    before = snapshot(backend)
    swept = stage.store.purge()
    assert (0, 0) == (swept.looked_at, swept.moved)
    assert "tasks wait to be archived" in swept.problems[0]
    assert {} == difference(before, snapshot(backend))
    stage.store.demand_archive(False)
    assert 1 == stage.store.purge().moved


def test_more_tasks_that_wait_to_be_archived_are_told_in_the_same_words(redis: Redis) -> None:
    """The watchdog logs the same words once a minute, and others each second."""
    stage = scene(redis)
    stage.store.demand_archive()
    told = []
    for task_id in ("t1", "t2"):
        stage.store.submit(submission(task_id))
        stage.store.cancel(task_id, "tester")
        redis.zadd(stage.keys.retention, {task_id: 0})
        told.append(stage.store.purge().problems)
    assert told[0] == told[1] != ()


def test_an_archive_that_has_just_begun_to_wait_is_no_problem(redis: Redis) -> None:
    """The archivist needs a moment; only after ten minutes something is wrong."""
    stage = scene(redis)
    put(stage, State.SUCCESS)
    redis.zadd(stage.keys.retention, {ID: stage.now() - 500_000})
    stage.store.demand_archive()
    assert () == stage.store.purge().problems


def test_the_tombstone_of_an_archived_task_names_the_file(backend: Redis) -> None:
    """And the ledger counts it among the purged ones and among the archived."""
    stage = scene(backend)
    put(stage, State.SUCCESS)
    make_outdated(stage)
    stage.store.demand_archive()
    assert 1 == stage.store.purge(archived(stage)).moved
    state, _, file = str(backend.get(stage.keys.tombstone(ID))).split()
    assert (State.SUCCESS, archived(stage).file) == (state, file)
    assert [0, 0] == stage.store.send_again()
    assert {"submitted": "1", "purged": "1", "archived": "1"} == backend.hgetall(stage.keys.ledger)
    assert [] == audit(backend, stage.keys, [ID])


def test_a_task_that_changed_since_it_was_archived_stays(backend: Redis) -> None:
    """Retried and ended again, it has another last entry; one that could not be archived is looked at later."""
    stage = scene(backend)
    put(stage, State.FAILED)
    before = archived(stage)
    stage.store.retry(ID, "tester")
    make_due(stage)
    make_outdated(stage)  # an entry that is wrong, as a hint may be
    assert 0 == stage.store.purge(before).moved
    stage.store.release("watchdog")
    stage.held = claimed(stage.store, wish("w1", "ee")).held
    finish(stage, Event.COMPLETE)
    make_outdated(stage)
    assert 0 == stage.store.purge(before).moved
    assert backend.zscore(stage.keys.retention, ID) > stage.now()
    assert State.SUCCESS == stage.task["state"]
    make_outdated(stage)
    assert 0 == stage.store.purge(replace(before, tasks={ID: ""})).moved
    make_outdated(stage)
    assert 1 == stage.store.purge(archived(stage)).moved


def test_an_archived_task_whose_retention_is_not_over_stays(backend: Redis) -> None:
    """As one that somebody else purged, and whose id begins anew."""
    stage = scene(backend)
    put(stage, State.SUCCESS)
    before = snapshot(backend)
    swept = stage.store.purge(archived(stage))
    assert (0, 0, ()) == (swept.looked_at, swept.moved, swept.problems)
    assert {} == difference(before, snapshot(backend))


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

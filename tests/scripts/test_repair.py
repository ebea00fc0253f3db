"""REPAIR: whatever stands around a task is put right from its record, once, and nothing is touched that is sound."""

from collections.abc import Callable

import pytest
from audit import audit
from ghostless.jobs.errors import CorruptRecord
from ghostless.jobs.keys import LISTED_SINCE
from ghostless.jobs.upkeep import Upkeep
from ghostless.lua import LISTED_FROM
from ghostless.statemachine import FINAL, RUNNING, STORED, WAITING_FOR_TIME, State
from redis import Redis
from scripts.seeding import (
    BY_PERSON,
    BY_WATCHDOG,
    DEPENDENCY,
    ID,
    OWNER,
    PLACE,
    QUEUE,
    Scene,
    end_forgotten,
    park,
    put,
    scene,
    step,
    submission,
)
from scripts.snapshot import difference, snapshot
from scripts.test_full_redis import full

Damage = Callable[[Scene], object]


def know_all_listed(stage: Scene) -> None:
    """Let the watchdogs' audit have found each task in its listing, so that whoever lacks its entry has lost it."""
    while not stage.redis.hexists(stage.keys.limits, LISTED_SINCE):
        Upkeep(stage.store).patrol(BY_WATCHDOG)
        stage.redis.hdel(stage.keys.patrol, "at")


def demanded(stage: Scene, state: State) -> dict[str, Damage]:
    """Return how to lose each single entry that a state demands, by a name."""
    redis, keys = stage.redis, stage.keys
    losses: dict[str, Damage] = {
        "state": lambda s: redis.zrem(keys.state(state), ID),
        "owned": lambda s: redis.zrem(keys.owned(OWNER), ID),
        "score of owned": lambda s: redis.zadd(keys.owned(OWNER), {ID: 5}),
        "listed": lambda s: (know_all_listed(s), redis.zrem(keys.listed(PLACE), ID)),
        "score of listed": lambda s: (know_all_listed(s), redis.zadd(keys.listed(PLACE), {ID: 5})),
        "listed_places": lambda s: (know_all_listed(s), redis.srem(keys.listed_places, PLACE)),
    }
    if state is State.PENDING:
        losses["pending"] = lambda s: redis.zrem(keys.pending(QUEUE), ID)
        losses["queues"] = lambda s: redis.hdel(keys.queues, QUEUE)
        losses["job"] = lambda s: redis.delete(keys.rq_job(ID))
        losses["parked"] = lambda s: (park(s), redis.zrem(keys.parked(PLACE), ID))
        losses["parked_types"] = lambda s: (park(s), redis.delete(keys.parked_types(QUEUE)))
    elif state in RUNNING:
        losses["deadlines"] = lambda s: redis.zrem(keys.deadlines, ID)
        losses["far deadline"] = lambda s: redis.zadd(keys.deadlines, {ID: 9e12})
        losses["timeout_at"] = lambda s: redis.hdel(keys.task(ID), "timeout_at")
        losses["lease of another"] = lambda s: redis.set(keys.heartbeat(ID), "w9 1", px=9_000)
        losses["lease without end"] = lambda s: redis.persist(keys.heartbeat(ID))
    elif state in WAITING_FOR_TIME:
        losses["due"] = lambda s: redis.zrem(keys.due, ID)
        losses["due_at"] = lambda s: redis.hdel(keys.task(ID), "due_at")
        losses["due and due_at"] = lambda s: (redis.hdel(keys.task(ID), "due_at"), redis.zrem(keys.due, ID))
    elif state is State.BLOCKED:
        losses["dependents"] = lambda s: redis.zrem(keys.dependents(DEPENDENCY), ID)
        losses["dependents of no task"] = lambda s: redis.hdel(keys.task(DEPENDENCY), "dependents")
        losses["score"] = lambda s: redis.zadd(keys.dependents(DEPENDENCY), {ID: 5})
        losses["unmet"] = lambda s: redis.delete(keys.unmet(ID))
    elif state in FINAL:
        losses["retention"] = lambda s: redis.zrem(keys.retention, ID)
    return losses


def surplus(stage: Scene, state: State) -> dict[str, Damage]:
    """Return how to add each single entry that a state forbids, by a name."""
    redis, keys = stage.redis, stage.keys
    extras: dict[str, Damage] = {
        other: lambda s, other=other: redis.zadd(keys.state(other), {ID: 5}) for other in STORED if other is not state
    }
    extras["tombstone"] = lambda s: redis.set(keys.tombstone(ID), "x", ex=60)
    extras["a life with an end"] = lambda s: redis.expire(keys.task(ID), 60)
    extras["params with an end"] = lambda s: redis.expire(keys.params(ID), 60)
    extras["second ticket"] = lambda s: redis.rpush(keys.rq_queue(QUEUE), ID)
    extras["settling"] = lambda s: redis.zadd(keys.settling, {ID: 5})
    if state is not State.BLOCKED:
        extras["unmet"] = lambda s: redis.sadd(keys.unmet(ID), DEPENDENCY)
    if state is not State.PENDING:
        extras["pending"] = lambda s: redis.zadd(keys.pending(QUEUE), {ID: 5})
        extras["parked_at"] = lambda s: redis.hset(keys.task(ID), "parked_at", 5)
        extras["job"] = lambda s: redis.hset(
            keys.rq_job(ID), mapping={"origin": QUEUE, "status": "queued", "data": "x"}
        )
    if state not in RUNNING:
        extras["deadlines"] = lambda s: redis.zadd(keys.deadlines, {ID: 5})
        extras["lease"] = lambda s: redis.set(keys.heartbeat(ID), "w1 1", px=9_000)
        extras["worker_id"] = lambda s: redis.hset(keys.task(ID), "worker_id", "w1")
    if state not in WAITING_FOR_TIME:
        extras["due"] = lambda s: redis.zadd(keys.due, {ID: 5})
        extras["due_at"] = lambda s: redis.hset(keys.task(ID), "due_at", 5)
    if state not in FINAL:
        extras["retention"] = lambda s: redis.zadd(keys.retention, {ID: 9e12})
    return extras


@pytest.mark.parametrize("state", STORED)
def test_nothing_is_found_about_a_sound_task(backend: Redis, state: State) -> None:
    """In no state, also when it is repaired: not a byte changes."""
    stage = scene(backend)
    put(stage, state)
    before = snapshot(backend)
    assert () == Upkeep(stage.store).compare([ID]).findings
    assert () == Upkeep(stage.store).compare([ID], actor=BY_PERSON).findings
    assert {} == difference(before, snapshot(backend))


@pytest.mark.parametrize("kind", [demanded, surplus])
@pytest.mark.parametrize("state", STORED)
def test_each_single_entry_is_put_right(redis: Redis, state: State, kind: Callable) -> None:
    """One that is missing, or one too many: found, told, repaired, recorded once; the second time nothing happens."""
    stage = scene(redis)
    for name in kind(stage, state):
        stage.start_over()
        put(stage, state)
        kind(stage, state)[name](stage)
        assert_repaired(stage, name)


def test_an_end_that_nobody_told_is_followed(redis: Redis) -> None:
    """A BLOCKED task that its dependency's end did not find is cancelled as it demands; that is recorded."""
    stage = scene(redis)
    put(stage, State.BLOCKED)
    end_forgotten(stage)
    assert ["d"] == [finding.rule for finding in Upkeep(stage.store).compare([ID]).findings]
    assert 1 == Upkeep(stage.store).compare([ID], actor=BY_PERSON).moved
    assert ["REPAIR", "CANCEL"] == [event for event, _, _ in stage.history[-2:]]
    assert [] == audit(redis, stage.keys, [ID])


def test_each_single_entry_is_put_right_in_this_process_too(fake_redis: Redis) -> None:
    """The stand-in for trying things out runs the script as well."""
    stage = scene(fake_redis)
    put(stage, State.PENDING)
    fake_redis.zrem(stage.keys.pending(QUEUE), ID)
    assert_repaired(stage, "pending")


def assert_repaired(stage: Scene, name: str) -> None:
    """Look, repair, and repair again."""
    upkeep, before = Upkeep(stage.store), snapshot(stage.redis)
    assert audit(stage.redis, stage.keys, [ID]) or name == "far deadline" or name == "queues", name
    told = upkeep.compare([ID], actor="").findings
    assert {"repairable"} == {finding.outcome for finding in told}, (name, told)
    assert {} == difference(before, snapshot(stage.redis))
    history = stage.history
    done = upkeep.compare([ID], actor=BY_PERSON)
    assert (1, {"repaired"}) == (done.moved, {finding.outcome for finding in done.findings})
    state = stage.task["state"]
    assert [*history, ("REPAIR", state, state)] == stage.history, name
    assert [] == audit(stage.redis, stage.keys, [ID]), name
    whole = snapshot(stage.redis)
    assert 0 == upkeep.compare([ID], actor=BY_PERSON).moved
    assert {} == difference(whole, snapshot(stage.redis))


def test_the_history_says_what_was_repaired(redis: Redis) -> None:
    """The entry bears the reason, who did it, and what was wrong."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    redis.zrem(stage.keys.deadlines, ID)
    Upkeep(stage.store).compare([ID], actor=BY_PERSON)
    entry = redis.xrevrange(stage.keys.history, count=1)[0][1]
    assert ("repair", BY_PERSON) == (entry["reason"], entry["actor"])
    assert "it is PROCESSING and not in ghostless:deadlines" == entry["message"]


def test_a_running_task_without_lease_and_deadline_is_judged_by_the_sweep(redis: Redis) -> None:
    """B06: the index entry is made anew from the record, and the sweep then takes the task from its dead worker."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    redis.delete(stage.keys.heartbeat(ID))
    redis.zrem(stage.keys.deadlines, ID)
    assert 1 == Upkeep(stage.store).patrol(BY_WATCHDOG).moved
    now = stage.now()
    redis.hset(stage.keys.watchdog, mapping={"swept_at": now, "judge_from": now - 1})
    assert 1 == stage.store.sweep(BY_WATCHDOG).moved
    assert State.RETRY_WAITING == stage.task["state"]
    assert [] == audit(redis, stage.keys, [ID])


@pytest.mark.parametrize("index", ["due", "retention"])
def test_what_a_sweep_put_off_is_no_damage(redis: Redis, index: str) -> None:
    """A task that could not be moved is tried again in a while: its later score is left alone, and nothing recorded."""
    stage = scene(redis)
    put(stage, State.RETRY_WAITING if index == "due" else State.SUCCESS)
    if index == "due":
        redis.hset(stage.keys.task(ID), "due_at", 5)
    else:
        redis.hset(stage.keys.task(ID), "entered_at", 5)
        redis.zadd(stage.keys.state(State.SUCCESS), {ID: 5})
        redis.zadd(stage.keys.owned(OWNER), {ID: 5})
        redis.zadd(stage.keys.listed(PLACE), {ID: LISTED_FROM[State.SUCCESS] + 5})
        redis.hset(stage.keys.task(ID), "policy", "1,1,1,1,1,1,1000")
    redis.zadd(getattr(stage.keys, index), {ID: stage.now() + 9_000})
    assert () == Upkeep(stage.store).compare([ID], actor=BY_PERSON).findings


# Tickets


def lose_ticket(stage: Scene) -> None:
    """Take the ticket out of the queue's list, as a stock rq worker or an accident does."""
    stage.redis.lrem(stage.keys.rq_queue(QUEUE), 0, ID)


def unticketed(stage: Scene, since: int) -> Scene:
    """Let the task be without a ticket for so many ms."""
    lose_ticket(stage)
    stage.redis.hset(stage.keys.task(ID), "unticketed_at", stage.now() - since)
    return stage


def test_a_ticket_may_be_on_its_way(redis: Redis) -> None:
    """A missing ticket is made anew only when it was missing for a while: a stock worker may have popped it."""
    stage = scene(redis)
    put(stage, State.PENDING)
    lose_ticket(stage)
    (first,) = Upkeep(stage.store).compare([ID], actor=BY_PERSON).findings
    assert "later" == first.outcome
    assert [] == stage.queue
    unticketed(stage, 60_000)
    assert 1 == Upkeep(stage.store).compare([ID], actor=BY_PERSON).moved
    assert [ID] == stage.queue
    assert "unticketed_at" not in stage.task
    assert [] == audit(redis, stage.keys, [ID])


@pytest.mark.parametrize("sign", ["", "started"])
def test_a_full_redis_keeps_no_ticket_from_coming_back(redis: Redis, sign: str) -> None:
    """The first look notes the time, a later one makes the ticket, all at the memory limit."""
    stage = scene(redis)
    put(stage, State.PENDING)
    lose_ticket(stage)
    if sign:
        redis.hset(stage.keys.rq_job(ID), "status", sign)
    with full(redis):
        assert 0 == Upkeep(stage.store).compare([ID], actor=BY_PERSON).moved
    assert "unticketed_at" in stage.task
    unticketed(stage, 100_000)
    with full(redis):
        assert 1 == Upkeep(stage.store).compare([ID], actor=BY_PERSON).moved
    assert [] == audit(redis, stage.keys, [ID])


@pytest.mark.parametrize("sign", ["started", "intermediate"])
def test_a_stock_worker_that_holds_the_ticket_is_waited_for(redis: Redis, sign: str) -> None:
    """Nothing is wrong while it has begun the job or it is in rq's list of those; after long enough it is dead."""
    stage = scene(redis)
    put(stage, State.PENDING)
    if sign == "started":
        redis.hset(stage.keys.rq_job(ID), "status", "started")
    else:
        redis.rpush(stage.keys.rq_intermediate(QUEUE), ID)
    unticketed(stage, 20_000)
    assert () == Upkeep(stage.store).compare([ID], actor=BY_PERSON).findings
    unticketed(stage, 70_000)
    assert 1 == Upkeep(stage.store).compare([ID], actor=BY_PERSON).moved
    assert [] == audit(redis, stage.keys, [ID])


def test_a_long_list_is_searched_only_when_asked_for(redis: Redis) -> None:
    """The audit of all tasks costs no walk over a long queue for each of them."""
    stage = scene(redis)
    put(stage, State.PENDING)
    unticketed(stage, 60_000)
    redis.rpush(stage.keys.rq_queue(QUEUE), *(f"plain{number}" for number in range(1_001)))
    assert () == Upkeep(stage.store).compare([ID], actor=BY_PERSON).findings
    assert 1 == Upkeep(stage.store).search([ID], QUEUE, 1_001, BY_PERSON).moved
    assert ID == stage.queue[0]


def test_a_ticket_in_another_queue_is_removed(redis: Redis) -> None:
    """When that queue is searched; the task's own ticket stays."""
    stage = scene(redis)
    put(stage, State.PENDING)
    redis.rpush(stage.keys.rq_queue("elsewhere"), ID)
    assert 1 == Upkeep(stage.store).search([ID], "elsewhere", 1, BY_PERSON).moved
    assert [ID] == stage.queue
    assert [] == audit(redis, stage.keys, [ID])


# Records that are gone or cannot be read


def test_what_is_left_of_a_lost_record_is_removed(redis: Redis) -> None:
    """Its values and index entries go, with a note in quarantine for each index; its history is for others to read."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    redis.delete(stage.keys.task(ID))
    told = Upkeep(stage.store).compare([ID])
    keys = stage.keys
    left = {keys.state(State.PROCESSING), keys.deadlines, keys.params(ID), keys.heartbeat(ID)}
    assert (left, {"remains"}) == ({one.what for one in told.findings}, {one.outcome for one in told.findings})
    assert 1 == Upkeep(stage.store).compare([ID], actor=BY_PERSON).moved
    assert () == Upkeep(stage.store).compare([ID], actor=BY_PERSON).findings
    assert {f"{index} {ID}" for index in (keys.state(State.PROCESSING), keys.deadlines)} == {
        *redis.hkeys(keys.quarantine)
    }
    assert not redis.exists(*left)


def test_a_plain_job_of_rq_is_no_remains(redis: Redis) -> None:
    """A ticket without a task is a plain job's, which is rq's own; only ours, or one of nothing, is removed."""
    stage = scene(redis)
    stage.store.submit(submission("t2"))
    redis.rpush(stage.keys.rq_queue(QUEUE), "plain", "nothing", "damaged")
    redis.hset(stage.keys.rq_job("plain"), mapping={"origin": QUEUE, "data": "call"})
    redis.set(stage.keys.rq_job("damaged"), "no job")
    redis.delete(stage.keys.task("t2"))
    Upkeep(stage.store).search(["damaged", "plain", "nothing", "t2"], QUEUE, 4, BY_PERSON)
    assert ["plain", "damaged"] == stage.queue
    assert redis.exists(stage.keys.rq_job("plain"))
    assert not redis.exists(stage.keys.rq_job("t2"))


def test_one_damaged_record_keeps_no_other_from_its_repair(redis: Redis) -> None:
    """It is told, and stays as it is."""
    stage = scene(redis)
    for task_id in ("bad", "worse", ID):
        stage.store.submit(submission(task_id))
        redis.zrem(stage.keys.state(State.PENDING), task_id)
    redis.hset(stage.keys.task("bad"), "entered_at", "soon")
    redis.set(stage.keys.task("worse"), "text")
    done = Upkeep(stage.store).compare(["bad", "worse", ID], actor=BY_PERSON)
    assert 1 == done.moved
    assert {("bad", "kept"), ("worse", "kept"), (ID, "repaired")} == {
        (one.task_id, one.outcome) for one in done.findings
    }


def test_a_damaged_index_stops_nothing_else(redis: Redis) -> None:
    """The wrong type is told and set aside, and everything of the task is repaired."""
    stage = scene(redis)
    put(stage, State.PENDING)
    redis.delete(stage.keys.state(State.PENDING))
    redis.set(stage.keys.state(State.PENDING), "text")
    redis.zrem(stage.keys.pending(QUEUE), ID)
    done = Upkeep(stage.store).compare([ID], actor=BY_PERSON)
    assert ["repaired", "repaired"] == sorted(finding.outcome for finding in done.findings)
    assert redis.zscore(stage.keys.pending(QUEUE), ID)
    assert redis.zscore(stage.keys.state(State.PENDING), ID)


def test_a_history_that_is_none_stops_every_repair(redis: Redis) -> None:
    """What could not be recorded is not done."""
    stage = scene(redis)
    put(stage, State.PENDING)
    redis.delete(stage.keys.history, stage.keys.state(State.PENDING))
    redis.set(stage.keys.history, "text")
    before = snapshot(redis)
    with pytest.raises(CorruptRecord, match=stage.keys.history):
        Upkeep(stage.store).compare([ID], actor=BY_PERSON)
    assert {} == difference(before, snapshot(redis))


# The bounds, the patrol and the ledger


def test_long_histories_are_replayed_over_several_calls(redis: Redis) -> None:
    """Every task is looked at, however long the histories before it are."""
    stage = scene(redis)
    ids = [f"t{number}" for number in range(5)]
    for task_id in ids:
        stage.store.submit(submission(task_id))
        for _ in range(600):
            stage.store.pause(task_id, BY_PERSON)
            stage.store.resume(task_id, BY_PERSON)
        redis.zrem(stage.keys.state(State.PENDING), task_id)
    found = Upkeep(stage.store).compare(ids).findings
    assert ids == [finding.task_id for finding in found]


def test_one_patrol_goes_over_all_tasks(redis: Redis) -> None:
    """Step by step, whoever makes the next one; steps that follow too soon do nothing."""
    stage = scene(redis)
    ids = [f"t{number}" for number in range(400)]
    stage.store.submit_many([submission(task_id) for task_id in ids])
    redis.delete(stage.keys.state(State.PENDING))
    moved, steps = Upkeep(stage.store).patrol("watchdog:1").moved, 1
    assert 0 < moved < 400
    assert 0 == Upkeep(stage.store).patrol("watchdog:2").moved
    while moved < 400 and steps < 50:
        moved, steps = moved + step(stage, "patrol", f"watchdog:{steps}").moved, steps + 1
    assert 400 == moved
    assert [] == audit(redis, stage.keys, ids)


def test_tasks_from_before_there_was_an_index_of_owners_come_into_it(redis: Redis) -> None:
    """The watchdogs add them from the records, in their order."""
    stage = scene(redis)
    stage.store.submit_many([submission(f"t{number}") for number in range(30)])
    index = stage.keys.owned(OWNER)
    whole = redis.zrange(index, 0, -1, withscores=True)
    redis.delete(index)
    while not redis.exists(index) or redis.zcard(index) < 30:
        step(stage, "patrol")
    assert whole == redis.zrange(index, 0, -1, withscores=True)
    assert [] == audit(redis, stage.keys)


def test_a_patrol_is_not_led_astray_by_its_own_trace(redis: Redis) -> None:
    """A cursor that is none, and a time that is none or to come, only begin the round anew."""
    stage = scene(redis)
    for trace in ({"cursor": "x", "at": "y"}, {"cursor": "-1", "at": stage.now() + 10**9}):
        stage.start_over()
        put(stage, State.PENDING)
        redis.zrem(stage.keys.state(State.PENDING), ID)
        redis.hset(stage.keys.patrol, mapping=trace)
        assert 1 == Upkeep(stage.store).patrol(BY_WATCHDOG).moved


def test_the_ledger_is_put_right(redis: Redis) -> None:
    """Tasks that are missing are booked as lost; a ledger that knows of too few learns of them; then it adds up."""
    stage = scene(redis)
    put(stage, State.PENDING)
    upkeep = Upkeep(stage.store)
    assert 0 == upkeep.account().missing
    redis.hincrby(stage.keys.ledger, "submitted", 2)
    assert 2 == upkeep.account().missing
    assert (True, 2, 0) == ((booked := upkeep.account(corrects=True)).corrected, booked.lost, booked.missing)
    redis.delete(stage.keys.ledger)
    assert (True, 1, 0) == ((booked := upkeep.account(corrects=True)).corrected, booked.submitted, booked.missing)
    assert not upkeep.account(corrects=True).corrected
    assert [] == audit(redis, stage.keys, [ID])

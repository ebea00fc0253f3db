"""The watchdog's scripts: who is taken away and who is not, who gets a new ticket, and when."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from audit import audit
from ghostless.jobs.messages import Claim, Held
from ghostless.jobs.settings import Settings
from ghostless.jobs.watchdog_steps import TICKET_WINDOW
from ghostless.lua import BATCH, LISTED_FROM
from ghostless.statemachine import FINAL, RUNNING, Event, Policy, State
from redis import Redis
from scripts.seeding import (
    ID,
    OWNER,
    PLACE,
    QUEUE,
    TYPE,
    Scene,
    SpiedStore,
    claimed,
    finish,
    make_due,
    make_lost,
    make_ticketless,
    put,
    scene,
    submission,
    wish,
)
from scripts.snapshot import difference, snapshot

LIVELY = Settings(lease=15, beat=5, grace=0.5)
PATIENCE = 1000 * (3 * 0.5 + 15)


def sweep(stage: Scene) -> int:
    """Sweep once; return how many tasks were taken away."""
    return stage.store.sweep("watchdog").moved


def swept_before(stage: Scene, ago: int, judge_in: int = -1) -> None:
    """Note that a watchdog swept `ago` ms before now, and judges leases `judge_in` ms from now."""
    now = stage.now()
    stage.redis.hset(stage.keys.watchdog, mapping={"swept_at": now - ago, "judge_from": now + judge_in})
    stage.redis.pexpire(stage.keys.watchdog, 60_000)


@pytest.mark.parametrize("state", sorted(RUNNING))
def test_a_lease_that_is_alive_is_never_judged(redis: Redis, state: State) -> None:
    """However long a task stood in `deadlines`: with a lease it is only looked at again when that may be over."""
    stage = scene(redis, LIVELY)
    put(stage, state)
    swept_before(stage, 0)
    redis.zadd(stage.keys.deadlines, {ID: 0})
    left = redis.pttl(stage.keys.heartbeat(ID))
    before = stage.now()
    assert 0 == sweep(stage)
    assert before < redis.zscore(stage.keys.deadlines, ID) <= stage.now() + left
    assert state == stage.task["state"]
    assert [] == audit(redis, stage.keys, [ID])


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        (State.PROCESSING, [("TIMEOUT", "PROCESSING", "TIMEOUT"), ("RETRY", "TIMEOUT", "RETRY_WAITING")]),
        (State.PAUSING, [("TIMEOUT", "PAUSING", "PAUSED")]),
        (State.CANCELLING, [("TIMEOUT", "CANCELLING", "CANCELLED")]),
    ],
)
def test_a_lost_worker_costs_one_loss(backend: Redis, state: State, steps: list) -> None:
    """Without a lease the task is taken away, with the reason, and the attempt's token dies with it."""
    stage = scene(backend, LIVELY)
    put(stage, state)
    make_lost(stage)
    assert 1 == sweep(stage)
    assert steps == stage.history[-len(steps) :]
    assert "token" not in stage.task
    assert ("1" if state is not State.CANCELLING else None) == stage.task.get("losses")
    assert [] == audit(backend, stage.keys, [ID])
    assert 0 == stage.store.sweep("watchdog").looked_at


@pytest.mark.parametrize("trace", ["none", "old", "damaged"])
def test_after_a_gap_nothing_is_judged_for_one_lease(redis: Redis, trace: str) -> None:
    """The first sweep ever, or the first for a long while, may be Redis that was away, not the workers."""
    stage = scene(redis, Settings(lease=0.4, beat=0.1, grace=0.5))
    put(stage, State.PROCESSING)
    make_lost(stage)
    if trace == "none":
        redis.delete(stage.keys.watchdog)
    elif trace == "old":
        swept_before(stage, ago=151)
    else:
        redis.hset(stage.keys.watchdog, mapping={"swept_at": "yesterday", "judge_from": "soon"})
    begun = stage.now()
    while sweep(stage) == 0:
        assert State.PROCESSING == stage.task["state"]
        assert stage.now() < begun + 10_000, "the lost task was never taken away"
        time.sleep(0.005)
    assert begun + 400 <= int(stage.task["entered_at"])
    assert [] == audit(redis, stage.keys, [ID])


def test_a_gap_within_a_beat_is_none(redis: Redis) -> None:
    """Sweeps that come a little late do not put off the judgement."""
    stage = scene(redis, LIVELY)
    put(stage, State.PROCESSING)
    make_lost(stage)
    swept_before(stage, ago=2_000)
    assert 1 == sweep(stage)


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_final_task_in_deadlines_is_removed_and_not_resurrected(redis: Redis, state: State) -> None:
    """The index is a hint, the hash is the truth."""
    stage = scene(redis, LIVELY)
    put(stage, state)
    before = snapshot(redis)
    make_lost(stage)
    assert 0 == sweep(stage)
    redis.delete(stage.keys.watchdog)
    assert {} == difference(before, snapshot(redis))


@pytest.mark.parametrize(("state", "since"), [(State.PROCESSING, "timeout_at"), (State.PAUSING, "entered_at")])
def test_a_live_worker_gets_its_patience_before_a_task_is_taken_away(redis: Redis, state: State, since: str) -> None:
    """Beyond the deadline a live worker has three graces and a lease to end the attempt itself, and no more."""
    stage = scene(redis, LIVELY)
    put(stage, state, Policy(backoff_base=1, backoff_cap=1))
    swept_before(stage, 0)
    redis.pexpire(stage.keys.heartbeat(ID), 40_000)  # of a worker whose lease is longer than the watchdog's
    for overdue, taken in ((PATIENCE - 5_000, 0), (PATIENCE + 1, 1)):
        redis.hset(stage.keys.task(ID), since, stage.now() - int(overdue))
        redis.zadd(stage.keys.deadlines, {ID: 0})
        assert taken == sweep(stage)
    assert ("1", "deadline") == (
        stage.task["timeouts"],
        redis.xrange(stage.keys.history)[2 + (state == "PAUSING")][1]["reason"],
    )
    if state is State.PROCESSING:
        # The live worker learns within its lease that it lost the task; no other attempt begins before.
        assert 39_000 <= int(stage.task["due_at"]) - int(stage.task["entered_at"])
    assert [] == audit(redis, stage.keys, [ID])


PATIENT_WORKER = Settings(lease=60, beat=20, grace=100)


@pytest.mark.parametrize("verb", ["claim", "start", "finish"])
def test_each_start_notes_the_terms_of_its_worker(backend: Redis, verb: str) -> None:
    """Whichever script starts the attempt: the lease, and three graces and a lease beyond a deadline."""
    stage = scene(backend, PATIENT_WORKER)
    stage.store.submit(submission())
    if verb == "start":
        stage.store.start(ID, "w1", "aa11")
    elif verb == "claim":
        claimed(stage.store)
    else:
        stage.held = claimed(stage.store).held
        stage.store.submit(submission("t2"))
        finish(stage, Event.COMPLETE, claim=Claim("w1", (QUEUE,), "bb22", (TYPE,)))
        stage.held = Held("t2", 1, "bb22")
    assert ("60000", "360000") == (stage.task["lease"], stage.task["patience"])


@pytest.mark.parametrize(("state", "since"), [(State.PROCESSING, "timeout_at"), (State.CANCELLING, "entered_at")])
def test_a_live_worker_is_judged_by_its_own_patience(backend: Redis, state: State, since: str) -> None:
    """A watchdog with shorter settings waits as long as the worker may take, which START wrote into the task."""
    stage = scene(backend, PATIENT_WORKER)
    put(stage, state)
    watching = Scene(backend, SpiedStore(backend, LIVELY))
    swept_before(stage, 0)
    for overdue, taken in ((355_000, 0), (360_001, 1)):
        backend.hset(stage.keys.task(ID), since, stage.now() - overdue)
        backend.zadd(stage.keys.deadlines, {ID: 0})
        assert taken == sweep(watching)
    assert not {"lease", "patience"} & set(stage.task)
    assert [] == audit(backend, stage.keys, [ID])


def test_after_a_gap_a_worker_has_a_lease_of_its_own(backend: Redis) -> None:
    """A watchdog with a shorter lease gives a worker that beats seldom the time to come back."""
    stage = scene(backend, PATIENT_WORKER)
    put(stage, State.PROCESSING)
    watching = Scene(backend, SpiedStore(backend, LIVELY))
    make_lost(stage)
    swept_before(stage, ago=9_000)
    begun = stage.now()
    assert 0 == sweep(watching)
    assert begun + 60_000 <= backend.zscore(stage.keys.deadlines, ID) <= stage.now() + 60_000
    for judged_ago, taken in ((44_000, 0), (46_000, 1)):  # the watchdog's own lease of 15 s was over then
        backend.zadd(stage.keys.deadlines, {ID: 0})
        swept_before(stage, ago=0, judge_in=-judged_ago)
        assert taken == sweep(watching)


def test_a_task_without_its_workers_terms_is_judged_by_the_watchdogs(redis: Redis) -> None:
    """As one that a worker of an earlier version started."""
    stage = scene(redis, PATIENT_WORKER)
    put(stage, State.PROCESSING)
    redis.hdel(stage.keys.task(ID), "lease", "patience")
    watching = Scene(redis, SpiedStore(redis, LIVELY))
    swept_before(stage, 0)
    redis.hset(stage.keys.task(ID), "timeout_at", stage.now() - int(PATIENCE) - 1)
    redis.zadd(stage.keys.deadlines, {ID: 0})
    assert 1 == sweep(watching)


def test_an_extended_attempt_is_not_taken_from_a_live_worker(redis: Redis) -> None:
    """Nor is one left alone whose worker does not end it when the extension is over."""
    stage = scene(redis, LIVELY)
    put(stage, State.PROCESSING, Policy(timeout=1_000, extend_by=1_000, max_runtime=100_000))
    redis.hset(stage.keys.task(ID), "started_at", stage.now() - 90_000)
    for longest_run, taken in ((90_000, 0), (73_000, 1)):
        swept_before(stage, 0)
        stage.store.heartbeat(stage.held, longest_run)
        redis.zadd(stage.keys.deadlines, {ID: 0})
        assert taken == sweep(stage)


def test_the_deadline_of_a_task_without_one_is_its_policys(redis: Redis) -> None:
    """A damaged task that lost its `timeout_at` still ends."""
    stage = scene(redis, LIVELY)
    put(stage, State.PROCESSING, Policy(timeout=60_000))
    swept_before(stage, 0)
    redis.hdel(stage.keys.task(ID), "timeout_at")
    redis.hset(stage.keys.task(ID), "entered_at", stage.now() - 61_000 - int(PATIENCE))
    redis.zadd(stage.keys.deadlines, {ID: 0})
    assert 1 == sweep(stage)


def test_many_watchdogs_take_each_task_away_once(redis: Redis) -> None:
    """Eight sweeps at once over lost tasks: every task moves once, whoever does it."""
    stage = scene(redis, LIVELY)
    ids = [f"t{number}" for number in range(100)]
    for task_id in ids:
        stage.store.submit(submission(task_id))
        held = claimed(stage.store, wish(task_id, "aa")).held
        redis.delete(stage.keys.heartbeat(held.task_id))
        redis.zadd(stage.keys.deadlines, {task_id: 0})
        redis.hset(stage.keys.task(task_id), "second_look_at", stage.now())
    swept_before(stage, 0)
    with ThreadPoolExecutor(8) as pool:
        moved = list(pool.map(lambda _: sweep(stage), range(8)))
    assert 100 == sum(moved)
    assert 100 == redis.zcard(stage.keys.due)
    assert [] == audit(redis, stage.keys, ids)


def test_one_step_looks_at_a_bounded_number(redis: Redis) -> None:
    """A step handles at most a batch of tasks, the oldest first, and the next step the rest."""
    stage = scene(redis, LIVELY)
    ids = [f"t{number:03}" for number in range(BATCH + 7)]
    for task_id in ids:
        stage.store.submit(submission(task_id, delay=60_000))
    redis.zadd(stage.keys.due, {task_id: number for number, task_id in enumerate(ids)})
    assert [(BATCH, BATCH), (7, 7), (0, 0)] == [
        (swept.looked_at, swept.moved) for swept in (stage.store.release("watchdog") for _ in range(3))
    ]
    assert ids == stage.queue
    assert [] == audit(redis, stage.keys, ids)


def test_nothing_is_released_before_its_time(redis: Redis) -> None:
    """A task that is due in a minute stays where it is, whoever asks."""
    stage = scene(redis, LIVELY)
    put(stage, State.SCHEDULED)
    before = snapshot(redis)
    assert 0 == stage.store.release("watchdog").looked_at
    assert {} == difference(before, snapshot(redis))


def test_a_lost_ticket_is_made_anew_at_the_second_look(redis: Redis) -> None:
    """A stock worker may hold the ticket for a moment; only a ticket that stays away is replaced, at the front."""
    stage = scene(redis, LIVELY)
    put(stage, State.PENDING)
    stage.store.submit(submission("t2"))
    make_ticketless(stage)
    redis.hdel(stage.keys.task(ID), "unticketed_at")
    assert (0, ["t2"]) == (stage.store.requeue("watchdog", QUEUE).moved, stage.queue)
    assert (0, ["t2"]) == (stage.store.requeue("watchdog", QUEUE).moved, stage.queue)
    redis.hincrby(stage.keys.task(ID), "unticketed_at", -round(2_000 * LIVELY.beat))
    assert (1, [ID, "t2"]) == (stage.store.requeue("watchdog", QUEUE).moved, stage.queue)
    assert ("REQUEUE", "PENDING", "PENDING") == stage.history[-1]
    assert "unticketed_at" not in stage.task
    assert [] == audit(redis, stage.keys, [ID, "t2"])
    assert (0, [ID, "t2"]) == (stage.store.requeue("watchdog", QUEUE).moved, stage.queue)


def test_lost_tickets_come_back_in_their_order(redis: Redis) -> None:
    """The whole list of a queue was deleted: all tasks are there again, the oldest first."""
    stage = scene(redis, LIVELY)
    ids = [f"t{number}" for number in range(10)]
    for number, task_id in enumerate(ids):
        stage.store.submit(submission(task_id))
        redis.hset(stage.keys.task(task_id), mapping={"unticketed_at": 1, "entered_at": 1_000 + number})
        redis.zadd(stage.keys.pending(QUEUE), {task_id: 1_000 + number})
        redis.zadd(stage.keys.state(State.PENDING), {task_id: 1_000 + number})
        redis.zadd(stage.keys.owned(OWNER), {task_id: 1_000 + number})
        redis.zadd(stage.keys.listed(PLACE), {task_id: LISTED_FROM[State.PENDING] + 1_000 + number})
    redis.delete(stage.keys.rq_queue(QUEUE))
    assert 10 == stage.store.requeue("watchdog", QUEUE).moved
    assert ids == stage.queue
    assert [] == audit(redis, stage.keys, ids)


def test_behind_a_long_head_of_plain_jobs_the_whole_list_is_searched(redis: Redis) -> None:
    """A ticket behind more tickets than one look takes in is found, and no second one made; a lost one is re-made."""
    stage = scene(redis, LIVELY)
    redis.rpush(stage.keys.rq_queue(QUEUE), *(f"plain{number}" for number in range(TICKET_WINDOW + 1)))
    put(stage, State.PENDING)
    for present in (True, False):
        redis.hset(stage.keys.task(ID), "unticketed_at", 1)
        if not present:
            redis.lrem(stage.keys.rq_queue(QUEUE), 1, ID)
        assert (0 if present else 1) == stage.store.requeue("watchdog", QUEUE).moved
    assert 1 == redis.lrange(stage.keys.rq_queue(QUEUE), 0, -1).count(ID)


def test_a_ticket_on_its_way_to_a_stock_worker_is_not_lost(redis: Redis) -> None:
    """While the ticket stands in rq's intermediate list no second one is made; after a minute the worker is dead."""
    stage = scene(redis)
    put(stage, State.PENDING)
    redis.lmove(stage.keys.rq_queue(QUEUE), stage.keys.rq_intermediate(QUEUE), "LEFT", "RIGHT")
    for waited, moved in ((59_000, 0), (61_000, 1)):
        redis.hset(stage.keys.task(ID), "unticketed_at", stage.now() - waited)
        assert moved == stage.store.requeue("watchdog", QUEUE).moved
    assert 0 == redis.llen(stage.keys.rq_intermediate(QUEUE))
    assert [] == audit(redis, stage.keys, [ID])


def test_an_empty_queue_is_forgotten_unless_it_is_paused(redis: Redis) -> None:
    """Queue names that were used once cost nothing for ever; a person's pause stays."""
    stage = scene(redis, LIVELY)
    redis.hset(stage.keys.queues, mapping={"used-once": "running", "held": "paused"})
    for queue in ("used-once", "held"):
        stage.store.requeue("watchdog", queue)
    assert {"held": "paused"} == redis.hgetall(stage.keys.queues)


def test_a_retry_that_became_due_starts_with_what_the_last_attempt_saved(redis: Redis) -> None:
    """FAIL, RETRY, RELEASE, START: the second attempt gets the checkpoint of the first."""
    stage = scene(redis, LIVELY)
    put(stage, State.PROCESSING)
    stage.store.checkpoint(stage.held, '{"step":3}')
    finish(stage, Event.FAIL)
    make_due(stage)
    assert 1 == stage.store.release("watchdog").moved
    again = claimed(stage.store, wish("w2", "cc"))
    assert (2, {"a": 1}, {"step": 3}) == (again.held.attempt, again.params, again.checkpoint)
    assert [] == audit(redis, stage.keys, [ID])

"""Damaged members at the very front of an index: they are set aside and reported, and the good ones have their turn."""

from collections.abc import Callable

import pytest
from audit import audit
from ghostless.jobs.errors import CorruptRecord
from ghostless.jobs.messages import Claimed, NothingToClaim, Swept
from ghostless.statemachine import State
from redis import Redis
from scripts.seeding import BY_WATCHDOG, OTHER_TYPE, QUEUE, TYPE, Scene, claimed, ending, scene, submission, wish
from scripts.snapshot import difference, snapshot

GOOD = 20
MEMBERS = [b"gone", b"wrong-type", b"no-number", b"no-state", b"\xff\xfe", b"no-policy"]
TASK = {
    "type": "demo.add",
    "queue": QUEUE,
    "entered_at": "1",
    "policy": "1,1,1,1,1,1,1",
    "attempt": "0",
    "entries": "0",
}
BROKEN: dict[bytes, dict[str, str]] = {
    b"no-number": {"attempt": "one"},
    b"no-state": {"state": "NOWHERE"},
    b"\xff\xfe": {"entries": "many"},
    b"no-policy": {"policy": "forever"},
}


def poison(stage: Scene, state: State) -> None:
    """Write the damaged records: one is missing, one is no hash, the others have a field that cannot be read."""
    stage.redis.set(stage.keys.task("wrong-type"), "text")
    for member, fields in BROKEN.items():
        name = stage.keys.task("").encode() + member
        stage.redis.hset(name, mapping={**TASK, "state": state, **fields})


def clear_poison(stage: Scene) -> None:
    """Remove the damaged records, so that the audit can look at the good ones."""
    for member in MEMBERS:
        stage.redis.delete(stage.keys.task("").encode() + member)


def submit_good(stage: Scene, delay: int = 0, retention: int = 60_000) -> list[str]:
    """Submit the good tasks, each in its own way of being PENDING or SCHEDULED."""
    ids = [f"good{number:02}" for number in range(GOOD)]
    for task_id in ids:
        stage.store.submit(submission(task_id, delay=delay))
    return ids


def make_all_lost(stage: Scene) -> None:
    """Start every task and let every lease be over; the watchdog has looked once."""
    for number in range(GOOD):
        held = claimed(stage.store, wish(f"w{number}", f"{number:02x}")).held
        stage.redis.delete(stage.keys.heartbeat(held.task_id))
        stage.redis.hset(stage.keys.task(held.task_id), "second_look_at", stage.now())
    now = stage.now()
    stage.redis.hset(stage.keys.watchdog, mapping={"swept_at": now, "judge_from": now - 1})
    stage.redis.pexpire(stage.keys.watchdog, 60_000)


def make_all_ticketless(stage: Scene) -> None:
    """Lose every ticket so long ago that the watchdog has seen it before."""
    for number in range(GOOD):
        stage.redis.hset(stage.keys.task(f"good{number:02}"), "unticketed_at", 1)
    stage.redis.delete(stage.keys.rq_queue(QUEUE), *(stage.keys.rq_job(f"good{number:02}") for number in range(GOOD)))


def cancel_all(stage: Scene) -> None:
    """End every task."""
    for number in range(GOOD):
        stage.store.cancel(f"good{number:02}", "tester")


CASES: list[tuple[str, Callable[[Scene], None], Callable[[Scene], Swept], State, int]] = [
    ("due", lambda stage: None, lambda stage: stage.store.release(BY_WATCHDOG), State.PENDING, 60_000),
    ("deadlines", make_all_lost, lambda stage: stage.store.sweep(BY_WATCHDOG), State.RETRY_WAITING, 0),
    (f"pending:{QUEUE}", make_all_ticketless, lambda s: s.store.requeue(BY_WATCHDOG, QUEUE), State.PENDING, 0),
    ("retention", cancel_all, lambda stage: stage.store.purge(), State.CANCELLED, 0),
]


@pytest.mark.parametrize(("index", "prepare", "step", "after", "delay"), CASES, ids=[case[0] for case in CASES])
def test_poison_at_the_lowest_scores_keeps_nobody_from_their_turn(
    redis: Redis, index: str, prepare: Callable, step: Callable, after: State, delay: int
) -> None:
    """One step moves every good task, takes every damaged member out of the index, and reports each (B07)."""
    stage = scene(redis)
    ids = submit_good(stage, delay)
    prepare(stage)
    name = f"{stage.keys.prefix}{index}"
    for number, task_id in enumerate(ids):
        if not index.startswith("pending"):
            redis.zadd(name, {task_id: 1000 + number}, xx=True)
    poison(stage, State.PENDING)
    redis.zadd(name, {member: number for number, member in enumerate(MEMBERS)})

    swept = step(stage)

    assert (GOOD, len(MEMBERS)) == (swept.moved, len(swept.problems))
    assert len(MEMBERS) == redis.hlen(stage.keys.quarantine)
    assert [] == [member for member in MEMBERS if redis.zscore(name, member) is not None]
    clear_poison(stage)
    purged = index == "retention"
    assert (0 if purged else GOOD) == redis.zcard(stage.keys.state(after))
    assert [] == audit(redis, stage.keys, ids, quarantined=len(MEMBERS))
    assert 0 == step(stage).looked_at or not purged


def test_poison_at_the_head_of_a_queue_does_not_hold_the_queue(redis: Redis) -> None:
    """Each claim gets a good task, in order; damaged tickets are taken out of the list (B07)."""
    stage = scene(redis)
    ids = submit_good(stage)
    poison(stage, State.PENDING)
    redis.lpush(stage.keys.rq_queue(QUEUE), *reversed(MEMBERS))
    got = [claimed(stage.store, wish(f"w{number}", f"{number:02x}")).held.task_id for number in range(GOOD)]
    assert ids == got
    assert NothingToClaim("empty") == stage.store.claim(wish("late", "ff"))
    assert len(MEMBERS) - 1 == redis.hlen(stage.keys.quarantine)  # a ticket of nothing at all is no damage
    clear_poison(stage)
    assert [] == audit(redis, stage.keys, ids, quarantined=len(MEMBERS) - 1)


@pytest.mark.parametrize("way", ["claim", "unpark"])
def test_poison_among_the_parked_keeps_nobody_from_their_turn(redis: Redis, way: str) -> None:
    """Each claim gets a parked good task, in order, or all are given back; damaged members are set aside."""
    stage = scene(redis)
    ids = submit_good(stage)
    stage.store.claim(wish("w", "ee", OTHER_TYPE))
    poison(stage, State.PENDING)
    redis.zadd(stage.keys.parked(f"{QUEUE}:{TYPE}"), {member: number for number, member in enumerate(MEMBERS)})
    if way == "unpark":
        assert GOOD == stage.store.unpark([TYPE])
        assert ids == stage.queue
    got = [claimed(stage.store, wish(f"w{number}", f"{number:02x}")).held.task_id for number in range(GOOD)]
    assert ids == got
    assert NothingToClaim("empty") == stage.store.claim(wish("late", "ff"))
    assert len(MEMBERS) == redis.hlen(stage.keys.quarantine)
    clear_poison(stage)
    assert [] == audit(redis, stage.keys, ids, quarantined=len(MEMBERS))


def test_a_task_that_cannot_be_moved_is_put_further_back(redis: Redis) -> None:
    """A task whose queue is damaged is reported, and tried again later; the tasks of other queues move."""
    stage = scene(redis)
    for number in range(3):
        stage.store.submit(submission(f"bad{number}", delay=60_000, actor="tester"))
        redis.hset(stage.keys.task(f"bad{number}"), "queue", "broken")
    ids = submit_good(stage, 60_000)
    redis.set(stage.keys.rq_queue("broken"), "text")
    redis.zadd(stage.keys.due, {task_id: 5 for task_id in ids} | {f"bad{number}": number for number in range(3)})
    swept = stage.store.release(BY_WATCHDOG)
    assert (GOOD, 3) == (swept.moved, len(swept.problems))
    assert all(stage.keys.rq_queue("broken") in problem for problem in swept.problems)
    assert 0 == stage.store.release(BY_WATCHDOG).looked_at
    redis.delete(stage.keys.rq_queue("broken"))
    redis.zadd(stage.keys.due, {f"bad{number}": number for number in range(3)})
    assert 3 == stage.store.release(BY_WATCHDOG).moved


@pytest.mark.parametrize("entry", ["", "garbage", "1-", "1-2-3", "99999999999999999999999-0"])
def test_a_damaged_entry_id_does_not_stop_the_purge(redis: Redis, entry: str) -> None:
    """A final task whose history ids cannot be read stays and is reported; the others are purged."""
    stage = scene(redis)
    ids = submit_good(stage)
    cancel_all(stage)
    redis.hset(stage.keys.task(ids[0]), "h1", entry)
    redis.zadd(stage.keys.retention, {task_id: number for number, task_id in enumerate(ids)})
    swept = stage.store.purge()
    assert (GOOD - 1, 1) == (swept.moved, len(swept.problems))
    assert stage.keys.task(ids[0]) in swept.problems[0]
    assert redis.exists(stage.keys.task(ids[0]))


def test_an_absurd_number_of_entries_does_not_block_redis(redis: Redis) -> None:
    """The purge counts no further than the task has fields."""
    stage = scene(redis)
    stage.store.submit(submission())
    stage.store.cancel("t1", "tester")
    redis.hset(stage.keys.task("t1"), "entries", 10**12)
    redis.zadd(stage.keys.retention, {"t1": 0})
    assert 1 == stage.store.purge().moved
    assert 0 == redis.xlen(stage.keys.history)


@pytest.mark.parametrize("field", ["submitted", "purged"])
def test_a_damaged_ledger_is_found_before_the_first_write(redis: Redis, field: str) -> None:
    """A counter that is no number stops submit or purge whole, and the error names it."""
    stage = scene(redis)
    stage.store.submit(submission())
    stage.store.cancel("t1", "tester")
    redis.zadd(stage.keys.retention, {"t1": 0})
    redis.hset(stage.keys.ledger, field, "many")
    before = snapshot(redis)
    call = {"submitted": lambda: stage.store.submit(submission("t2")), "purged": stage.store.purge}[field]
    with pytest.raises(CorruptRecord, match=f"{stage.keys.ledger} field {field}"):
        call()
    assert {} == difference(before, snapshot(redis))


@pytest.mark.parametrize("params", ["{", b"\xff"])
def test_a_task_whose_values_cannot_be_read_fails_instead_of_going_round(redis: Redis, params: str | bytes) -> None:
    """A claim that meets damaged params ends the attempt for good and says why."""
    stage = scene(redis)
    stage.store.submit(submission())
    stage.store.submit(submission("t2"))
    redis.set(stage.keys.params("t1"), params)
    assert NothingToClaim("damaged") == stage.store.claim(wish("w1", "aa"))
    assert (State.FAILED, "invalid_params") == (stage.task["state"], stage.task["reason"])
    assert "t2" == claimed(stage.store, wish("w1", "bb")).held.task_id
    assert [] == audit(redis, stage.keys, ["t1", "t2"])


def test_a_damaged_checkpoint_costs_only_what_it_held(redis: Redis) -> None:
    """A claim that meets a checkpoint that is no JSON starts the task anew."""
    stage = scene(redis)
    stage.store.submit(submission())
    redis.set(stage.keys.checkpoint("t1"), "[")
    assert claimed(stage.store, wish("w1", "aa")).checkpoint is None
    assert State.PROCESSING == stage.task["state"]


def test_a_damaged_queue_keeps_nobody_from_the_others(redis: Redis) -> None:
    """A claim over several queues passes over one that is of a wrong type, and names it only when there is nothing."""
    stage = scene(redis)
    stage.store.submit(submission())
    redis.set(stage.keys.rq_queue("bad"), "oops")
    assert "t1" == claimed(stage.store, wish("w1", "aa", queues=("bad", QUEUE))).held.task_id
    with pytest.raises(CorruptRecord, match=stage.keys.rq_queue("bad")):
        stage.store.claim(wish("w1", "bb", queues=("bad", QUEUE)))


def test_damage_met_by_the_claim_after_a_finish_does_not_hide_that_the_attempt_ended(redis: Redis) -> None:
    """The fused call answers what became of the finished task also when the claim cannot be made."""
    stage = scene(redis)
    stage.store.submit(submission())
    held = claimed(stage.store).held
    redis.hset(stage.keys.claim("w9"), "not", "a string")
    done = ending("COMPLETE")  # type: ignore[arg-type]
    answer, following = stage.store.finish(held, done, "worker:w9", wish("w9", "cc"))
    assert ("moved", State.SUCCESS, NothingToClaim("damaged")) == (answer.word, answer.state, following)
    assert not isinstance(following, Claimed)

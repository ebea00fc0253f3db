"""Damaged members at the very front of an index: they are set aside and reported, and the good ones have their turn."""

from collections.abc import Callable
from math import ceil

import pytest
from audit import audit
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.errors import CorruptRecord
from ghostless.jobs.messages import Claimed, NothingToClaim, Swept
from ghostless.jobs.model import Task
from ghostless.jobs.reads import Damaged
from ghostless.jobs.settings import Settings
from ghostless.jobs.watchdog import Watchdog
from ghostless.lua import BATCH
from ghostless.statemachine import STORED, Event, State
from redis import Redis
from scripts.seeding import (
    BY_WATCHDOG,
    BY_WORKER,
    OTHER_TYPE,
    OWNER,
    PLACE,
    QUEUE,
    TYPE,
    Scene,
    claimed,
    ending,
    scene,
    submission,
    wish,
)
from scripts.snapshot import difference, snapshot

GOOD, FEW = 20, 8
"""Good tasks behind the damaged ones, and so few that the end of one task releases them at once."""

WRONG_TYPES: dict[bytes, Callable[[Redis, bytes], object]] = {
    b"a-string": lambda redis, key: redis.set(key, "text"),
    b"a-list": lambda redis, key: redis.rpush(key, "text"),
    b"a-set": lambda redis, key: redis.sadd(key, "text"),
    b"a-zset": lambda redis, key: redis.zadd(key, {"text": 1}),
    b"a-stream": lambda redis, key: redis.xadd(key, {"text": 1}),
}
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
    b"not-a-number": {"attempt": "nan"},
    b"no-state": {"state": "NOWHERE"},
    b"\xff\xfe": {"entries": "many"},
    b"no-policy": {"policy": "forever"},
    b"no-time": {"entered_at": "inf"},
    b"with a space and\na line": {"losses": "-1"},
}
MISSING = [b"gone", b"", b"gone \xc3\x28", b"g" * 5_000]
MEMBERS = [*MISSING, *WRONG_TYPES, *BROKEN]
SCORES = {
    "the lowest": list(range(len(MEMBERS))),
    "no times": [float("-inf"), -1e300, -1, 0, 5e-324] * len(MEMBERS),
    "among the good ones": [1_000 + number for number in range(len(MEMBERS))],
}


def poison(stage: Scene, state: State) -> None:
    """Write the damaged records: some are missing, some are no hash, the others have a field that cannot be read."""
    prefix = stage.keys.task("").encode()
    for member, write in WRONG_TYPES.items():
        write(stage.redis, prefix + member)
    for member, fields in BROKEN.items():
        stage.redis.hset(prefix + member, mapping={**TASK, "state": state, **fields})


def clear_poison(stage: Scene) -> None:
    """Remove the damaged records, so that the audit can look at the good ones."""
    for member in MEMBERS:
        stage.redis.delete(stage.keys.task("").encode() + member)


def submit_good(stage: Scene, delay: int = 0) -> list[str]:
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


def in_steps(stage: Scene, step: Callable[[Scene], Swept]) -> tuple[int, list[str]]:
    """Make as many steps as damaged and good ones need; return how many moved, and each problem that was told."""
    all_swept = [step(stage) for _ in range(ceil((len(MEMBERS) + GOOD) / BATCH))]
    problems = [problem for swept in all_swept for problem in swept.problems]
    return sum(swept.moved for swept in all_swept), problems


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


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize(("index", "prepare", "step", "after", "delay"), CASES, ids=[case[0] for case in CASES])
def test_poison_at_the_lowest_scores_keeps_nobody_from_their_turn(
    redis: Redis, index: str, prepare: Callable, step: Callable, after: State, delay: int, scores: str
) -> None:
    """Two steps move every good task, take every damaged member out of the index, and report each (B07)."""
    stage = scene(redis)
    ids = submit_good(stage, delay)
    prepare(stage)
    name = f"{stage.keys.prefix}{index}"
    for number, task_id in enumerate(ids):
        if not index.startswith("pending"):
            redis.zadd(name, {task_id: 1000 + number}, xx=True)
    poison(stage, State.PENDING)
    redis.zadd(name, dict(zip(MEMBERS, SCORES[scores], strict=False)))

    moved, problems = in_steps(stage, step)

    assert (GOOD, len(MEMBERS)) == (moved, len(problems))
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
    damaged = len(MEMBERS) - len(MISSING)  # a ticket of nothing at all is no damage
    assert damaged == redis.hlen(stage.keys.quarantine)
    clear_poison(stage)
    assert [] == audit(redis, stage.keys, ids, quarantined=damaged)


@pytest.mark.parametrize("way", ["claim", "unpark"])
def test_poison_among_the_parked_keeps_nobody_from_their_turn(redis: Redis, way: str) -> None:
    """Each claim gets a parked good task, in order, or all are given back; damaged members are set aside."""
    stage = scene(redis)
    ids = submit_good(stage)
    stage.store.claim(wish("w", "ee", OTHER_TYPE))
    poison(stage, State.PENDING)
    redis.zadd(stage.keys.parked(PLACE), {member: number for number, member in enumerate(MEMBERS)})
    if way == "unpark":
        assert GOOD == stage.store.unpark([TYPE])
        assert ids == stage.queue
    got = [claimed(stage.store, wish(f"w{number}", f"{number:02x}")).held.task_id for number in range(GOOD)]
    assert ids == got
    assert NothingToClaim("empty") == stage.store.claim(wish("late", "ff"))
    assert len(MEMBERS) == redis.hlen(stage.keys.quarantine)
    clear_poison(stage)
    assert [] == audit(redis, stage.keys, ids, quarantined=len(MEMBERS))


@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "no quarantine"])
@pytest.mark.parametrize("state", [State.BLOCKED, State.PENDING])
@pytest.mark.parametrize("scores", SCORES)
def test_poison_among_dependents_keeps_nobody_from_their_turn(
    redis: Redis, scores: str, state: State, is_noted: bool
) -> None:
    """The end of a task releases every good one at once; a watchdog sets the damaged ones aside, and tells each."""
    stage = scene(redis)
    stage.store.submit(submission("first"))
    ids = [f"good{number:02}" for number in range(FEW)]
    for task_id in ids:
        stage.store.submit(submission(task_id, depends_on=("first",)))
    name = stage.keys.dependents("first")
    redis.zadd(name, {task_id: 1000 + number for number, task_id in enumerate(ids)}, xx=True)
    poison(stage, state)
    redis.zadd(name, dict(zip(MEMBERS, SCORES[scores], strict=False)))
    if not is_noted:
        redis.set(stage.keys.quarantine, "no hash")

    stage.store.finish(claimed(stage.store).held, ending(Event.COMPLETE), BY_WORKER)
    assert set(ids) == set(redis.zrange(stage.keys.state(State.PENDING), 0, -1))
    swept = stage.store.settle()

    assert len(MEMBERS) + (not is_noted) == len(swept.problems)
    assert 0 == redis.exists(name, stage.keys.settling)
    clear_poison(stage)
    if not is_noted:
        redis.delete(stage.keys.quarantine)
    assert [] == audit(redis, stage.keys, ["first", *ids], quarantined=len(MEMBERS) if is_noted else 0)


@pytest.mark.parametrize(("index", "prepare", "step", "after", "delay"), CASES, ids=[case[0] for case in CASES])
def test_a_quarantine_that_is_none_keeps_nobody_from_their_turn(
    redis: Redis, index: str, prepare: Callable, step: Callable, after: State, delay: int
) -> None:
    """The good ones move and the damaged leave the index; each is told, and that they could not be noted."""
    stage = scene(redis)
    ids = submit_good(stage, delay)
    prepare(stage)
    name = f"{stage.keys.prefix}{index}"
    if not index.startswith("pending"):
        redis.zadd(name, {task_id: 1000 for task_id in ids}, xx=True)
    poison(stage, State.PENDING)
    redis.zadd(name, dict.fromkeys(MEMBERS, 1))
    redis.set(stage.keys.quarantine, "no hash")
    moved, problems = in_steps(stage, step)
    assert GOOD == moved
    problems = list(dict.fromkeys(problems))  # of the quarantine itself it is told with each step
    assert len(MEMBERS) + 1 == len(problems)
    assert f"CORRUPT {stage.keys.quarantine}: expected hash, got string" == problems[0]
    assert [] == [member for member in MEMBERS if redis.zscore(name, member) is not None]
    assert "no hash" == redis.get(stage.keys.quarantine)


@pytest.mark.parametrize("parked", [False, True], ids=["in the list", "parked"])
def test_a_quarantine_that_is_none_keeps_no_worker_from_its_tasks(redis: Redis, parked: bool) -> None:
    """Each claim gets a good task, and the damaged ones leave the queue."""
    stage = scene(redis)
    ids = submit_good(stage)
    poison(stage, State.PENDING)
    if parked:
        stage.store.claim(wish("w", "ee", OTHER_TYPE))
        redis.zadd(stage.keys.parked(PLACE), dict.fromkeys(MEMBERS, 1))
    else:
        redis.lpush(stage.keys.rq_queue(QUEUE), *MEMBERS)
    redis.set(stage.keys.quarantine, "no hash")
    got = [claimed(stage.store, wish(f"w{number}", f"{number:02x}")).held.task_id for number in range(GOOD)]
    assert ids == got
    assert NothingToClaim("empty") == stage.store.claim(wish("late", "ff"))


def test_the_watchdog_tells_of_each_damaged_member_once(redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    """Its log names the index and what is wrong, whatever bytes the id has, and does not repeat it each second."""
    stage = scene(redis)
    submit_good(stage, 60_000)
    poison(stage, State.SCHEDULED)
    redis.zadd(stage.keys.due, dict.fromkeys(MEMBERS, 1))
    redis.set(stage.keys.quarantine, "no hash")
    watchdog = Watchdog(stage.store)
    for _ in range(3):
        watchdog.sweep_all()
    told = [record.getMessage() for record in caplog.records]
    assert [] == [line for line in told if told.count(line) > 1]
    assert len(MEMBERS) == sum(line.startswith("release_due: ") for line in told) - 1
    assert any("task:\ufffd\ufffd field entries: expected a whole number, got many" in line for line in told)
    assert all(line.isprintable() and len(line) < 2_000 for line in told), "no id writes lines of its own into the log"


def test_poison_in_the_indices_of_states_hides_no_good_task(redis: Redis) -> None:
    """Listings show what is damaged as damaged, at whatever score; who holds what, and explain, pass over it."""
    stage = scene(redis)
    ids = submit_good(stage)
    held = claimed(stage.store, wish("w1", "01")).held
    poison(stage, State.PROCESSING)
    scores = [float("inf"), float("-inf"), -1, 1e300] * len(MEMBERS)
    for index in (*map(stage.keys.state, STORED), stage.keys.owned(OWNER)):
        redis.zadd(index, dict(zip(MEMBERS, scores, strict=False)))
    redis.zadd(stage.keys.deadlines, {held.task_id: float("inf")})
    client = Client(Settings(), redis)
    for state in (State.PENDING, State.PROCESSING):
        shown = client.list(Filter(state=state), limit=100).tasks
        good = [task.id for task in shown if isinstance(task, Task)]
        assert sorted(good) == sorted(ids[1:] if state is State.PENDING else ids[:1])
        assert len(MEMBERS) == sum(isinstance(task, Damaged) for task in shown)
    page, seen = client.list(Filter(state=State.PENDING), limit=7), 0
    while page.cursor:
        seen += len(page.tasks)
        page = client.list(Filter(state=State.PENDING), limit=7, cursor=page.cursor)
    assert seen + len(page.tasks) >= GOOD - 1
    assert sorted(ids) == sorted(task.id for task in client.list(Filter(owner=OWNER), limit=100).tasks)
    assert {held.task_id: 1} == client.reads.held_by("w1")
    assert "runs attempt 1" in client.explain(held.task_id).why
    redis.delete(stage.keys.heartbeat(held.task_id))
    assert "gone silent" in client.explain(held.task_id).why


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


@pytest.mark.parametrize("params", ["{", b"\xff", "", '{"x": NaN}', None])
def test_a_task_whose_values_cannot_be_read_fails_instead_of_going_round(
    redis: Redis, params: str | bytes | None
) -> None:
    """A claim that meets damaged params, or none at all, ends the attempt for good and says why."""
    stage = scene(redis)
    stage.store.submit(submission())
    stage.store.submit(submission("t2"))
    redis.delete(stage.keys.params("t1"))
    if params is not None:
        redis.set(stage.keys.params("t1"), params)
    assert NothingToClaim("damaged") == stage.store.claim(wish("w1", "aa"))
    assert (State.FAILED, "invalid_params") == (stage.task["state"], stage.task["reason"])
    assert "params" in [entry["message"] for _, entry in redis.xrange(stage.keys.history)][-1]
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
    redis.rename(stage.keys.queues, "away")
    redis.set(stage.keys.queues, "no hash")
    done = ending("COMPLETE")  # type: ignore[arg-type]
    answer, following = stage.store.finish(held, done, "worker:w9", wish("w9", "cc"))
    assert ("moved", State.SUCCESS, NothingToClaim("damaged")) == (answer.word, answer.state, following)
    assert not isinstance(following, Claimed)

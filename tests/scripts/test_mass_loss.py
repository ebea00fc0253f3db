"""Many tasks that fall silent together are looked at twice, a beat apart; few, or a second time, are judged at once."""

import time

import pytest
from audit import audit
from ghostless.jobs.circumstances import circumstances
from ghostless.jobs.explanation import explain
from ghostless.jobs.messages import Held
from ghostless.jobs.reads import Reads
from ghostless.jobs.settings import Settings
from ghostless.lua import BATCH
from ghostless.statemachine import RUNNING, Event, State
from redis import Redis
from scripts.seeding import Scene, SpiedStore, claimed, ending, scene, submission, wish
from scripts.snapshot import difference, snapshot

SETTINGS = Settings(lease=15, beat=5)
HALF, BEAT = 7_500, 5_000


def running(redis: Redis, number: int, settings: Settings = SETTINGS) -> tuple[Scene, list[Held]]:
    """Return a scene in which so many tasks run, each on a worker of its own."""
    stage = scene(redis, settings)
    held: list[Held] = []
    for index in range(number):
        stage.store.submit(submission(f"t{index:03}"))
        held.append(claimed(stage.store, wish(f"w{index:03}", f"{index:04x}")).held)
    swept_just_now(stage)
    return stage, held


def swept_just_now(stage: Scene) -> None:
    """Note that a watchdog swept all the time."""
    now = stage.now()
    stage.redis.hset(stage.keys.watchdog, mapping={"actor": "watchdog", "swept_at": now, "judge_from": now - 1})


def silence(stage: Scene, held: list[Held], left: int = 0) -> None:
    """Let the leases of these tasks be over, or last for only so many ms more; their turn in `deadlines` has come."""
    for attempt in held:
        name = stage.keys.heartbeat(attempt.task_id)
        stage.redis.pexpire(name, left)
        stage.redis.zadd(stage.keys.deadlines, {attempt.task_id: 0 if left <= 0 else stage.now() + left})


def second_look_is_due(stage: Scene, held: list[Held]) -> None:
    """Let a beat go by, for these tasks and for the watchdog."""
    swept_just_now(stage)
    for attempt in held:
        stage.redis.hincrby(stage.keys.task(attempt.task_id), "second_look_at", -BEAT)
        stage.redis.zincrby(stage.keys.deadlines, -BEAT, attempt.task_id)


def sweep(stage: Scene) -> int:
    """Sweep until nothing is due; return how many tasks were taken away."""
    moved = 0
    while True:
        swept = stage.store.sweep("watchdog")
        moved += swept.moved
        if swept.looked_at < BATCH:
            return moved


@pytest.mark.parametrize(
    ("silent", "number", "judged"),
    [(3, 3, 3), (4, 4, 0), (4, 8, 4), (5, 8, 0), (1, 50, 1), (50, 100, 50), (51, 100, 0), (150, 200, 0), (30, 200, 30)],
)
def test_more_than_half_and_more_than_three_are_not_judged_at_once(
    redis: Redis, silent: int, number: int, judged: int
) -> None:
    """The share decides, and so do whole batches; nothing but the first look is written."""
    stage, held = running(redis, number)
    silence(stage, held[:silent])
    before = snapshot(redis)
    assert judged == sweep(stage)
    if not judged:
        changed = difference(before, snapshot(redis)).keys()
        doubted = {stage.keys.task(attempt.task_id) for attempt in held[:silent]}
        assert doubted | {stage.keys.deadlines, stage.keys.watchdog} == changed
        assert 0 == stage.store.sweep("watchdog").looked_at, "it is looked at again in a beat, not before"
    assert [] == audit(redis, stage.keys)


def test_the_second_look_judges_whatever_the_others_do(backend: Redis) -> None:
    """All are still silent a beat later: each is taken away, once, and the note of the first look goes."""
    stage, held = running(backend, 8)
    silence(stage, held)
    assert 0 == sweep(stage)
    second_look_is_due(stage, held)
    assert 8 == sweep(stage)
    assert all("second_look_at" not in backend.hgetall(stage.keys.task(attempt.task_id)) for attempt in held)
    assert [] == audit(backend, stage.keys, [attempt.task_id for attempt in held])


def test_who_is_heard_of_before_the_second_look_is_not_judged(backend: Redis) -> None:
    """Half come back in time and keep their tasks; the others are taken away."""
    stage, held = running(backend, 8)
    silence(stage, held)
    assert 0 == sweep(stage)
    for attempt in held[::2]:
        stage.store.heartbeat(attempt)
    second_look_is_due(stage, held)
    assert 4 == sweep(stage)
    assert {f"t{index:03}" for index in range(0, 8, 2)} == set(backend.zrange(stage.keys.deadlines, 0, -1))
    for attempt in held[::2]:
        stage.store.heartbeat(attempt)
    assert [] == audit(backend, stage.keys)


def test_workers_that_beat_at_other_moments_fall_silent_together(redis: Redis) -> None:
    """When the first lease of a fault ends, the others last for up to a beat more: they count as silent already."""
    stage, held = running(redis, 20)
    silence(stage, held[:2])
    silence(stage, held[2:12], left=HALF - 500)
    assert 0 == sweep(stage)
    second_look_is_due(stage, held[:2])
    silence(stage, held[2:12])
    assert 2 == sweep(stage), "the first two are judged, and the others have their first look"
    assert 12 == sum(1 for attempt in held[:12] if is_noted_or_judged(stage, attempt))


def is_noted_or_judged(stage: Scene, held: Held) -> bool:
    """Tell whether the watchdog has looked at a task."""
    task = stage.redis.hgetall(stage.keys.task(held.task_id))
    return "second_look_at" in task or task["state"] == State.RETRY_WAITING


def test_leases_that_are_fresh_count_as_alive(redis: Redis) -> None:
    """One lost worker among many that beat late, but not half a lease late, is judged at once."""
    stage, held = running(redis, 20)
    silence(stage, held[:1])
    silence(stage, held[1:], left=HALF + 1_000)
    assert 1 == sweep(stage)


def test_a_second_silence_is_a_new_one(redis: Redis) -> None:
    """A note of a silence that ended is not taken for the first look at the next one."""
    stage, held = running(redis, 8)
    silence(stage, held)
    assert 0 == sweep(stage)
    for attempt in held:
        redis.hincrby(stage.keys.task(attempt.task_id), "second_look_at", -60_000)  # and it was heard of since
    silence(stage, held)
    swept_just_now(stage)
    assert 0 == sweep(stage)
    second_look_is_due(stage, held)
    assert 8 == sweep(stage)


def test_another_watchdog_makes_the_second_look(redis: Redis) -> None:
    """The first look is in Redis: a watchdog with other clocks, and no memory of it, judges when it is time."""
    stage, held = running(redis, 8)
    silence(stage, held)
    assert 0 == sweep(stage)
    other = Scene(redis, SpiedStore(redis, Settings(lease=60, beat=20)))
    assert 0 == other.store.sweep("other").looked_at
    second_look_is_due(stage, held)
    assert 8 == other.store.sweep("other").moved


def test_a_worker_with_a_longer_lease_has_longer_until_the_second_look(redis: Redis) -> None:
    """The pause between two looks grows with the lease that the worker wrote into its task."""
    stage, held = running(redis, 8, Settings(lease=60, beat=20))
    silence(stage, held)
    watching = Scene(redis, SpiedStore(redis, SETTINGS))
    redis.hset(stage.keys.watchdog, mapping={"swept_at": stage.now(), "judge_from": stage.now() - 50_000})
    begun = stage.now()
    assert 0 == sweep(watching)
    assert begun + 20_000 <= redis.zscore(stage.keys.deadlines, "t000") <= stage.now() + 20_000
    # Not so with a shorter one: sweeps may come later than that.
    redis.hset(stage.keys.task("t001"), mapping={"lease": 1_000})
    redis.hdel(stage.keys.task("t001"), "second_look_at")
    silence(stage, held[1:2])
    assert 0 == sweep(watching)
    assert stage.now() + 4_000 <= redis.zscore(stage.keys.deadlines, "t001")


@pytest.mark.parametrize("state", sorted(RUNNING))
def test_every_running_state_is_looked_at_twice(redis: Redis, state: State) -> None:
    """A task that was asked to stop or to pause has its second look too, and ends as it was asked to."""
    stage, held = running(redis, 6)
    asked = {State.CANCELLING: stage.store.cancel, State.PAUSING: stage.store.pause}.get(state)
    for attempt in held if asked else []:
        asked(attempt.task_id, "tester")
    silence(stage, held)
    assert 0 == sweep(stage)
    assert 6 == redis.zcard(stage.keys.state(state))
    second_look_is_due(stage, held)
    assert 6 == sweep(stage)
    after = {State.CANCELLING: State.CANCELLED, State.PAUSING: State.PAUSED}.get(state, State.RETRY_WAITING)
    assert 6 == redis.zcard(stage.keys.state(after))
    assert [] == audit(redis, stage.keys)


def test_a_cancel_between_the_looks_costs_no_further_look(redis: Redis) -> None:
    """The note stays while the task runs, whatever a person asks for."""
    stage, held = running(redis, 6)
    silence(stage, held)
    assert 0 == sweep(stage)
    stage.store.cancel("t000", "tester")
    second_look_is_due(stage, held)
    assert 6 == sweep(stage)
    assert ["t000"] == redis.zrange(stage.keys.state(State.CANCELLED), 0, -1)


def test_a_result_that_comes_between_the_looks_is_kept(redis: Redis) -> None:
    """Its worker still holds the task; the end of the attempt takes the note with it."""
    stage, held = running(redis, 6)
    silence(stage, held)
    assert 0 == sweep(stage)
    answer, _ = stage.store.finish(held[0], ending(Event.COMPLETE), "worker:w000")
    assert ("moved", State.SUCCESS) == (answer.word, answer.state)
    assert "second_look_at" not in redis.hgetall(stage.keys.task("t000"))
    second_look_is_due(stage, held[1:])
    assert 5 == sweep(stage)
    assert [] == audit(redis, stage.keys)


def test_after_a_gap_the_first_look_is_the_one_that_may_judge(redis: Redis) -> None:
    """While no lease is judged at all, no look counts."""
    stage, held = running(redis, 6)
    silence(stage, held)
    redis.hset(stage.keys.watchdog, "swept_at", stage.now() - 60_000)
    assert 0 == sweep(stage)
    assert all("second_look_at" not in redis.hgetall(stage.keys.task(attempt.task_id)) for attempt in held)


def test_workers_that_overrun_their_deadlines_are_not_lost(redis: Redis) -> None:
    """Their leases live: each task is taken away at once, however many there are."""
    stage, held = running(redis, 6)
    for attempt in held:
        redis.hset(stage.keys.task(attempt.task_id), "timeout_at", 1)
        redis.zadd(stage.keys.deadlines, {attempt.task_id: 0})
    assert 6 == sweep(stage)


def test_the_second_look_asks_before_it_judges(redis: Redis) -> None:
    """The workers are asked when their tasks are about to be judged, not at the first look."""
    stage, held = running(redis, 6)
    for attempt in held:
        worker = redis.hget(stage.keys.task(attempt.task_id), "worker_id")
        redis.hset(stage.keys.rq_worker(str(worker)), "ghostless", '{"health": "127.0.0.1:9"}')
    silence(stage, held)
    assert {} == stage.store.sweep("watchdog").to_ask
    second_look_is_due(stage, held)
    asked = stage.store.sweep("watchdog")
    assert (0, 6) == (asked.moved, len(asked.to_ask))
    assert 6 == stage.store.sweep("watchdog", {"w000": "refused"}).moved


def test_damaged_members_are_neither_running_nor_silent(redis: Redis) -> None:
    """What stands in `deadlines` without a task that runs makes no mass of a few lost ones."""
    stage, held = running(redis, 3)
    redis.set(stage.keys.task("no-hash"), "text")
    redis.zadd(stage.keys.deadlines, {f"gone{number}": 0 for number in range(20)} | {"no-hash": 0})
    silence(stage, held)
    assert 3 == sweep(stage)


def test_a_sweep_that_finds_no_lease_over_does_not_count(redis: Redis) -> None:
    """What is due is looked at, and nothing else is asked for."""
    stage, held = running(redis, 6)
    for attempt in held:
        redis.zadd(stage.keys.deadlines, {attempt.task_id: 0})
    redis.config_resetstat()
    assert 0 == sweep(stage)
    assert "cmdstat_zrandmember" not in redis.info("commandstats")


def test_explain_tells_of_the_second_look_and_its_time(redis: Redis) -> None:
    """Before and after the first look nobody is told that the task is taken away at a time when it is not."""
    stage, held = running(redis, 6)
    silence(stage, held)
    reads = Reads(redis, stage.keys)
    before = explain(circumstances(reads, "t000"))
    assert "a beat later if most of what runs has fallen silent too" in before.next
    sweep(stage)
    told = explain(circumstances(reads, "t000"))
    assert "looks twice" in told.next
    assert redis.zscore(stage.keys.deadlines, "t000") == told.next_at
    assert stage.now() < (told.next_at or 0)


def test_the_looks_are_a_beat_apart_by_redis_own_clock(redis: Redis) -> None:
    """Sweeps as fast as they go take nothing away before a beat has passed, and everything soon after."""
    stage, held = running(redis, 6, Settings(lease=1.5, beat=0.3))
    silence(stage, held)
    begun = stage.now()
    while sweep(stage) == 0:
        assert stage.now() < begun + 10_000, "the lost tasks were never taken away"
        time.sleep(0.005)
    entered = [int(redis.hget(stage.keys.task(attempt.task_id), "entered_at") or 0) for attempt in held]
    assert begun + 300 <= min(entered)

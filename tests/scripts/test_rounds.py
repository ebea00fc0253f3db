"""The rounds of the watchdogs' audit: all tasks in a minute, however many keys there are, and little of Redis."""

import pytest
from audit import audit
from ghostless.jobs import upkeep
from ghostless.jobs.reads import Reads
from ghostless.jobs.upkeep import Upkeep
from ghostless.statemachine import STORED, Event, State
from redis import Redis
from scripts.seeding import BY_WATCHDOG, ID, QUEUE, Scene, claimed, ending, put, scene, step, submission
from scripts.test_repair import demanded

A_MINUTE = 60
"""Sweeps of a minute, at one a second."""

FILL = "for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('SET', 'ghostless:params:x' .. number, '') end"


def fill(redis: Redis, number: int) -> None:
    """Let there be about so many keys."""
    for first in range(0, number, 10_000):
        redis.eval(FILL, 0, str(first + 1), str(first + 10_000))


def sweep(stage: Scene) -> None:
    """Let the watchdogs sweep, and a second pass in no time."""
    Upkeep(stage.store).patrol(BY_WATCHDOG)
    stage.redis.hincrby(stage.keys.patrol, "at", -1000)


def go_round(stage: Scene) -> int:
    """Let the watchdogs go round once; return how many sweeps that took."""
    before, number = stage.redis.hget(stage.keys.patrol, "round"), 0
    while number == 0 or stage.redis.hget(stage.keys.patrol, "round") in (before, "0"):
        sweep(stage)
        number += 1
    return number


@pytest.fixture
def unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the audit take all of Redis' time, so that only the number of keys tells how fast it goes."""
    monkeypatch.setattr(upkeep, "PATROL_SHARE", 0)


@pytest.mark.usefixtures("unshared")
@pytest.mark.parametrize("keys", [20_000, 200_000])
def test_a_round_takes_a_minutes_sweeps(redis: Redis, keys: int) -> None:
    """With ten times the keys a sweep looks at ten times as many: what lost its entries is found in the same minute."""
    stage = scene(redis)
    ids = [f"t{number}" for number in range(50)]
    stage.store.submit_many([submission(task_id) for task_id in ids])
    fill(redis, keys)
    go_round(stage)
    assert A_MINUTE * 2 / 3 < go_round(stage) < A_MINUTE
    redis.delete(stage.keys.state(State.PENDING))
    number = 0
    while redis.zcard(stage.keys.state(State.PENDING)) < len(ids):
        sweep(stage)
        number += 1
    assert number < A_MINUTE


@pytest.mark.usefixtures("unshared")
def test_a_small_database_has_short_rounds(redis: Redis) -> None:
    """A page a sweep is the slowest."""
    stage = scene(redis)
    put(stage, State.SUCCESS)
    go_round(stage)
    assert go_round(stage) <= 2


def test_the_audit_takes_a_share_of_redis_time(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step took tells when the next one is due, whoever makes it; until then nobody looks at anything."""
    stage = scene(redis)
    stage.store.submit_many([submission(f"t{number}") for number in range(400)])
    monkeypatch.setattr(upkeep, "PATROL_SHARE", 10_000)
    Upkeep(stage.store).patrol("watchdog:1")
    assert int(redis.hget(stage.keys.patrol, "at") or 0) - stage.now() > 1_000
    redis.config_resetstat()
    for name in ("watchdog:1", "watchdog:2", "watchdog:3"):
        Upkeep(stage.store).patrol(name)
    assert "cmdstat_scan" not in redis.info("commandstats")


def test_what_was_missed_is_not_made_up_for(redis: Redis) -> None:
    """After a long pause a sweep makes the steps of two sweeps, no more."""
    stage = scene(redis)
    fill(redis, 50_000)
    Upkeep(stage.store).patrol(BY_WATCHDOG)
    redis.hset(stage.keys.patrol, "at", 1)
    redis.config_resetstat()
    Upkeep(stage.store).patrol(BY_WATCHDOG)
    assert 2 <= redis.info("commandstats")["cmdstat_scan"]["calls"] <= 10


@pytest.mark.parametrize(
    ("state", "listed"),
    [*((state, 0) for state in sorted(STORED)), (State.PENDING, 1_001)],
    ids=lambda value: str(value),
)
def test_a_glance_misses_no_entry_that_is_gone(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, state: State, listed: int
) -> None:
    """Each sort that a state demands is put right in one round, also when it is not the task's turn to be looked at.

    So it is beside a long list of tickets, which is not searched.
    """
    monkeypatch.setattr(upkeep, "KEYS_A_TURN", 1e-6)
    stage = scene(redis)
    losses = demanded(stage, state)
    for name, lose in losses.items():
        stage.start_over()
        put(stage, state)
        lose(stage)
        if listed:
            redis.rpush(stage.keys.rq_queue(QUEUE), *range(listed))
        go_round(stage)
        assert Event.REPAIR in [event for event, _, _ in stage.history], name


def test_what_a_glance_cannot_see_has_its_turn(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A final task is looked at closely in one of as many rounds as there are times so many keys, a queued one in each.

    A value that would expire is such a thing.
    """
    stage = scene(redis)
    ids = [f"e{number}" for number in range(30)]
    stage.store.submit_many([submission(task_id) for task_id in ids])
    for _ in ids:
        stage.store.finish(claimed(stage.store).held, ending(Event.COMPLETE), "worker:w1")
    put(stage, State.PENDING)
    waiting, over = stage.keys.params(ID), [stage.keys.params(task_id) for task_id in ids]
    for name in (waiting, *over):
        redis.expire(name, 1_000_000)
    monkeypatch.setattr(upkeep, "KEYS_A_TURN", redis.dbsize() / 3)
    left = []
    for _ in range(5):
        go_round(stage)
        left.append(sum(redis.ttl(name) > 0 for name in over))
        assert -1 == redis.ttl(waiting)
    assert left[0] > 0 == left[-1]
    assert [] == audit(redis, stage.keys, [ID, *ids])


def test_a_glance_costs_a_few_commands(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A final task that stands where it must takes one for its record and one for each index."""
    stage = scene(redis)
    ids = [f"t{number}" for number in range(100)]
    stage.store.submit_many([submission(task_id) for task_id in ids])
    for task_id in ids:
        stage.store.cancel(task_id, "tester")
    monkeypatch.setattr(upkeep, "KEYS_A_TURN", 1e-6)
    redis.config_resetstat()
    steps = go_round(stage)
    calls = {name: row["calls"] for name, row in redis.info("commandstats").items()}
    assert (100, 400) == (calls["cmdstat_hmget"] - calls["cmdstat_evalsha"], calls["cmdstat_zscore"])
    assert sum(calls.values()) < 5 * len(ids) + 30 * steps


def test_a_glance_at_who_waits_costs_little_more(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a BLOCKED task what it waits for is looked at too: one command for each, and one for what many wait for."""
    stage = scene(redis)
    stage.store.submit_many([submission(f"d{number}", delay=1_000_000) for number in range(3)])
    ids = [f"t{number}" for number in range(90)]
    stage.store.submit_many([submission(task_id, depends_on=("d0", "d1", "d2")) for task_id in ids])
    monkeypatch.setattr(upkeep, "KEYS_A_TURN", 1e-6)
    redis.config_resetstat()
    steps = go_round(stage)
    calls = {name: row["calls"] for name, row in redis.info("commandstats").items()}
    assert (3 + 3) * len(ids) <= calls["cmdstat_zscore"] <= (3 + 3) * len(ids) + 12
    assert sum(calls.values()) < 10 * len(ids) + 50 * steps


def test_the_dependencies_of_a_step_are_bounded(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task with a hundred counts as such, also for a glance: the next step goes on with the same page."""
    monkeypatch.setattr(upkeep, "KEYS_A_TURN", 1e-6)
    stage = scene(redis)
    names = [f"d{number}" for number in range(100)]
    stage.store.submit_many([submission(name, delay=1_000_000) for name in names])
    stage.store.submit_many([submission(f"t{number}", depends_on=tuple(names)) for number in range(20)])
    done = stage.redis.hget(stage.keys.patrol, "round")
    while stage.redis.hget(stage.keys.patrol, "round") in (done, "0"):
        redis.hdel(stage.keys.patrol, "at")
        redis.config_resetstat()
        Upkeep(stage.store).patrol(BY_WATCHDOG)
        stats = redis.info("commandstats")
        assert stats["cmdstat_zscore"]["calls"] <= 900 * stats["cmdstat_evalsha"]["calls"]


@pytest.mark.parametrize("state", [State.PENDING, State.SUCCESS])
def test_a_step_is_bounded(redis: Redis, state: State) -> None:
    """It looks closely at some tens of tasks, and the next step goes on with the same page."""
    stage = scene(redis)
    ids = [f"t{number}" for number in range(200)]
    stage.store.submit_many([submission(task_id) for task_id in ids])
    for _ in ids if state is State.SUCCESS else ():
        stage.store.finish(claimed(stage.store).held, ending(Event.COMPLETE), "worker:w1")
    redis.delete(stage.keys.state(state))
    while redis.zcard(stage.keys.state(state)) < len(ids):
        redis.config_resetstat()
        step(stage, "patrol")
        stats = redis.info("commandstats")
        assert stats["cmdstat_xadd"]["calls"] <= 25 * stats["cmdstat_evalsha"]["calls"]
    assert [] == audit(redis, stage.keys, ids)


def test_how_long_a_round_took_is_told(redis: Redis) -> None:
    """Beside who swept last."""
    stage = scene(redis)
    reads = Reads(redis, stage.keys)
    go_round(stage)
    assert reads.watchdog() is None
    stage.store.sweep(BY_WATCHDOG)
    assert 0 <= int((reads.watchdog() or {})["audit_round"]) < 60_000

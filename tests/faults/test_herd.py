"""Many tasks at one instant: no herd comes back together, and whoever is quick, each moves once (B41, B46)."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from audit import audit
from faults.sizes import DUE_AT_ONCE, PATIENCE
from ghostless.jobs.connection import connect
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Event, Policy
from redis import Redis
from scripts.seeding import BY_WATCHDOG, BY_WORKER, Scene, claimed, ending, scene, submission, wish

HERD = 500
SPREAD = Policy(backoff_base=10_000, backoff_cap=10_000)


def started(stage: Scene, number: int) -> list[str]:
    """Let so many tasks run; return their ids."""
    ids = [f"t{index}" for index in range(number)]
    stage.store.submit_many([submission(task_id, SPREAD) for task_id in ids])
    for index in range(number):
        stage.store.claim(wish(f"w{index}", f"{index:04x}"))
    return ids


def dues(redis: Redis, stage: Scene) -> list[float]:
    """Return when each waiting task is due, in ms from now."""
    now = stage.now()
    return [score - now for _, score in redis.zrange(stage.keys.due, 0, -1, withscores=True)]  # type: ignore[misc]


def assert_spread(dues: list[float]) -> None:
    """Check that no second of the ten has more than a quarter of them, and that all ten are used."""
    seconds = Counter(int(due // 1000) for due in dues)
    assert len(dues) == HERD
    assert max(seconds.values()) < HERD / 4
    assert len(seconds) >= 8


def test_tasks_that_fail_together_do_not_come_back_together(redis: Redis) -> None:
    """What they need was away for a moment: their retries are spread over the whole backoff."""
    stage = scene(redis)
    stage.store.submit_many([submission(f"t{index}", SPREAD) for index in range(HERD)])
    for index in range(HERD):
        held = claimed(stage.store, wish(f"w{index}", f"{index:04x}")).held
        stage.store.finish(held, ending(Event.FAIL), BY_WORKER)
    assert_spread(dues(redis, stage))
    assert [] == audit(redis, stage.keys, [f"t{index}" for index in range(HERD)])


def test_tasks_that_are_lost_together_do_not_come_back_together(redis: Redis) -> None:
    """A host died with all its workers: each task has a backoff of its own, also when one sweep finds them all."""
    stage = scene(redis)
    ids = started(stage, HERD)
    redis.delete(*(stage.keys.heartbeat(task_id) for task_id in ids))
    redis.zadd(stage.keys.deadlines, dict.fromkeys(ids, 0))
    now = stage.now()
    redis.hset(stage.keys.watchdog, mapping={"swept_at": now, "judge_from": now - 1})
    redis.pexpire(stage.keys.watchdog, 60_000)
    for task_id in ids:  # they were looked at before, a beat ago
        redis.hset(stage.keys.task(task_id), "second_look_at", now)
    while stage.store.sweep(BY_WATCHDOG).looked_at:
        pass
    assert_spread(dues(redis, stage))
    assert [] == audit(redis, stage.keys, ids)


@pytest.mark.timeout(PATIENCE)
def test_three_watchdogs_release_each_task_once(redis: Redis, settings: Settings) -> None:
    """Thousands are due, and Redis lets no write pass for a while: each gets one ticket, whoever asked."""
    stage = scene(redis)
    ids = [f"t{number}" for number in range(DUE_AT_ONCE)]
    stage.store.submit_many([submission(task_id, delay=1) for task_id in ids])
    time.sleep(0.01)  # the time after which they are due
    redis.execute_command("CLIENT", "PAUSE", 300, "WRITE")
    with ThreadPoolExecutor(3) as pool:
        moved = sum(pool.map(lambda _: release_all(settings), range(3)))
    assert moved == len(ids)
    events = Counter((entry["task"], entry["event"]) for _, entry in redis.xrange(stage.keys.history))
    assert events == {(task_id, event): 1 for task_id in ids for event in (Event.SUBMIT, Event.RELEASE)}
    assert [] == audit(redis, stage.keys, ids)


def release_all(settings: Settings) -> int:
    """Release until nothing is due; return how many tasks this watchdog moved."""
    total = 0
    with connect(settings) as redis:
        watchdog = Watchdog(Store(redis, settings))
        while (swept := watchdog.release_due()).looked_at:
            total += swept.moved
    return total

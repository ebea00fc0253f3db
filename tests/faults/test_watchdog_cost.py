"""What watching costs follows what is due, not what is stored; a backlog holds nobody up."""

import threading
from collections.abc import Callable

import pytest
from audit import audit
from faults.holders import beating, end_all, start_all
from ghostless.jobs.client import Client
from ghostless.jobs.messages import Swept
from ghostless.jobs.settings import Settings
from ghostless.jobs.watchdog import Watchdog
from ghostless.jobs.watchdog_steps import TICKET_WINDOW
from ghostless.lua import BATCH
from ghostless.statemachine import State
from helpers import eventually, expect
from redis import Redis
from scripts.seeding import QUEUE, TYPE, Scene, SpiedStore, claimed, scene, submission, wish

FEW, MANY = 4 * TICKET_WINDOW, 20_000
"""Stored tasks; with the fewer, too, more wait in the queue than a sweep looks at."""


def store(stage: Scene, first: int, last: int) -> None:
    """Store tasks: of eight, four wait, two wait for their time, two are over."""
    for start in range(first, last, 1_000):
        numbers = range(start, start + 1_000)
        stage.store.submit_many([submission(f"t{n}", delay=3_600_000 if n % 4 == 2 else 0) for n in numbers])
        for number in numbers[3::4]:
            stage.store.cancel(f"t{number}", "tester")


def run_some(stage: Scene, number: int) -> None:
    """Let some tasks run."""
    for index in range(number):
        claimed(stage.store, wish(f"w{index}", f"{index:04x}"))


def cost(redis: Redis, watchdog: Watchdog) -> tuple[dict[str, int], float]:
    """Return how often a round of the watchdog calls each command, and the least time it took in Redis, in µs."""
    watchdog.sweep_all()
    times: list[float] = []
    calls: dict[str, int] = {}
    for _ in range(10):
        redis.config_resetstat()
        watchdog.sweep_all()
        stats = {name: row for name, row in redis.info("commandstats").items() if name != "cmdstat_config|resetstat"}
        calls = {name: row["calls"] for name, row in stats.items()}
        times.append(stats["cmdstat_evalsha"]["usec"])
    return calls, min(times)


def test_a_round_with_nothing_due_costs_the_same_whatever_is_stored(redis: Redis) -> None:
    """Five times the tasks cost not one command more, and no command takes longer by what is stored."""
    stage = scene(redis)
    watchdog = Watchdog(stage.store)
    store(stage, 0, FEW)
    run_some(stage, 20)
    few, time_of_few = cost(redis, watchdog)
    store(stage, FEW, MANY)
    many, time_of_many = cost(redis, watchdog)
    assert few == many
    assert sum(many.values()) < 100
    assert time_of_many < 3 * time_of_few
    assert [] == audit(redis, stage.keys, [f"t{n}" for n in range(MANY)])


STEPS: dict[str, tuple[Callable[[Scene], str], Callable[[Scene], Swept], int]] = {
    "release": (lambda stage: stage.keys.due, lambda stage: stage.store.release("watchdog"), 3_600_000),
    "purge": (lambda stage: stage.keys.retention, lambda stage: stage.store.purge(), 0),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_costs_no_more_in_a_big_backlog(redis: Redis, step: str) -> None:
    """A batch is a hundred tasks, be there two hundred or three thousand, with as many commands for each."""
    index, act, delay = STEPS[step]
    stage = scene(redis)
    calls: list[dict[str, int]] = []
    for number in (2 * BATCH, 30 * BATCH):
        stage.start_over()
        for start in range(0, number, 1_000):
            stage.store.submit_many(
                [submission(f"t{n}", delay=delay) for n in range(start, min(start + 1_000, number))]
            )
        for n in range(number if step == "purge" else 0):
            stage.store.cancel(f"t{n}", "tester")
        redis.zunionstore(index(stage), {index(stage): 0})
        redis.config_resetstat()
        assert (BATCH, BATCH) == (act(stage).looked_at, stage.store.reply[1])
        stats = redis.info("commandstats")
        calls.append({name: row["calls"] for name, row in stats.items() if "cmdstat_config" not in name})
        assert number - BATCH == redis.zcard(index(stage))
        restore(stage, index(stage), step)
        assert [] == audit(redis, stage.keys, [f"t{n}" for n in range(number)])
    assert calls[0] == calls[1]


def restore(stage: Scene, index: str, step: str) -> None:
    """Give those that were not looked at the times again that they had."""
    with stage.redis.pipeline(transaction=False) as pipeline:
        left = stage.redis.zrange(index, 0, -1)
        for task_id in left:
            pipeline.hmget(stage.keys.task(task_id), "due_at", "entered_at", "policy")
        for task_id, (due_at, entered_at, policy) in zip(left, pipeline.execute(), strict=True):
            over = int(entered_at) + int(policy.split(",")[-1])
            pipeline.zadd(index, {task_id: over if step == "purge" else due_at})
        pipeline.execute()


def test_running_tasks_live_through_a_backlog(
    redis: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While thousands are released and purged, leases are renewed and sweeps come in time."""
    monkeypatch.setattr(Watchdog, "audit", lambda _: Swept(0, 0, ()))  # which would put right the times made up here
    quick = Settings(redis_url=settings.redis_url, beat=0.5, lease=4, sweep=0.1)
    client = Client(quick)
    stage = Scene(redis, SpiedStore(redis, quick))
    ids = [f"r{number}" for number in range(50)]
    stage.store.submit_many([submission(task_id, queue="default") for task_id in ids])
    held = start_all(client, TYPE, ids)
    stage.store.submit_many([submission(f"due{n}", delay=3_600_000) for n in range(3_000)])
    stage.store.submit_many([submission(f"old{n}", delay=3_600_000) for n in range(2_000)])
    for number in range(2_000):
        stage.store.cancel(f"old{number}", "tester")
    stop, judged_from = threading.Event(), []
    thread = threading.Thread(target=Watchdog(stage.store, "busy").run, args=(stop,))
    with beating(client, held) as lost:
        thread.start()
        eventually(lambda: expect(client.reads.watchdog()))
        judged_from.append((client.reads.watchdog() or {})["judge_from"])
        for index in (stage.keys.due, stage.keys.retention):
            redis.zunionstore(index, {index: 0})
        eventually(lambda: expect((0, 0) == (redis.zcard(stage.keys.due), redis.zcard(stage.keys.retention))), 60)
        judged_from.append((client.reads.watchdog() or {})["judge_from"])
    stop.set()
    thread.join()
    assert lost == []
    assert judged_from[0] == judged_from[1], "no sweep came late"
    assert (50, 3_000) == (redis.zcard(stage.keys.state(State.PROCESSING)), redis.llen(stage.keys.rq_queue(QUEUE)))
    end_all(client, held)
    assert [] == audit(redis, stage.keys, ids)

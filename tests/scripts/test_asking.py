"""The sweep asks before it judges: who is to be asked is left to the next call, and that one judges, whatever came."""

import json
from collections.abc import Iterator

import pytest
from audit import audit
from ghostless.jobs.keys import Keys
from ghostless.jobs.rq_keys import WORKER_RECORD
from ghostless.jobs.settings import Settings
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Policy, State
from redis import Redis
from scripts.seeding import ID, WORKER, Scene, make_lost, put, scene
from scripts.snapshot import difference, snapshot

SETTINGS = Settings(lease=15, beat=5, grace=0.5)
NOBODY = "127.0.0.1:9"  # the port of the discard service, where nobody listens


@pytest.fixture(autouse=True)
def sound(redis: Redis, keys: Keys) -> Iterator[None]:
    """End each test with the audit."""
    yield
    assert audit(redis, keys) == []


def lost(redis: Redis, record: str | None = json.dumps({"health": NOBODY})) -> Scene:
    """Return a scene with a task whose lease is over; its worker told of itself what `record` says."""
    stage = scene(redis, SETTINGS)
    put(stage, State.PROCESSING)
    if record is not None:
        redis.hset(stage.keys.rq_worker(WORKER), WORKER_RECORD, record)
    make_lost(stage)
    return stage


def told(stage: Scene) -> list[str]:
    """Return the messages of the watchdog's moves."""
    entries = stage.redis.xrange(stage.keys.history)
    return [entry["message"] for _, entry in entries if entry["event"] == "TIMEOUT"]


def test_the_first_call_leaves_the_task_and_names_its_worker(backend: Redis) -> None:
    """Nothing but the sweep's own trace is written; the second call judges with the finding."""
    stage = lost(backend)
    before = snapshot(backend)
    swept = stage.store.sweep("watchdog")
    assert (1, 0, {WORKER: NOBODY}) == (swept.looked_at, swept.moved, swept.to_ask)
    assert difference(before, snapshot(backend)).keys() <= {stage.keys.watchdog}
    swept = stage.store.sweep("watchdog", {WORKER: "connection refused"})
    assert (1, {}) == (swept.moved, swept.to_ask)
    assert [f"no heartbeat from worker {WORKER}; health: connection refused"] == told(stage)


def test_a_missing_finding_keeps_nobody_from_being_judged(backend: Redis) -> None:
    """Whom nobody asked, because there were too many, is judged like one without an endpoint."""
    stage = lost(backend)
    assert 1 == stage.store.sweep("watchdog", {}).moved
    assert [f"no heartbeat from worker {WORKER}"] == told(stage)


@pytest.mark.parametrize(
    "record", [None, "", "null", "7", "{", "[" * 5000, "{}", '{"health": null}', '{"health": 7}', '{"health": ["a"]}']
)
def test_a_worker_that_names_no_endpoint_is_judged_at_once(backend: Redis, record: str | None) -> None:
    """Plain rq workers, workers without --health-port, and whatever else stands in the hash."""
    stage = lost(backend, record)
    assert 1 == stage.store.sweep("watchdog").moved
    assert [f"no heartbeat from worker {WORKER}"] == told(stage)


def test_a_worker_whose_hash_is_none_is_judged_at_once(redis: Redis) -> None:
    """A key of another type at its place keeps no task from its turn."""
    stage = lost(redis, None)
    redis.set(stage.keys.rq_worker(WORKER), "no hash")
    assert 1 == stage.store.sweep("watchdog").moved


def test_a_live_worker_that_overran_its_deadline_is_asked_too(redis: Redis) -> None:
    """It holds its lease and does not end the attempt: its own word on that is kept."""
    stage = lost(redis)
    redis.set(stage.keys.heartbeat(ID), f"{WORKER} 1", px=60_000)
    redis.hset(stage.keys.task(ID), "timeout_at", 1)
    assert {WORKER: NOBODY} == stage.store.sweep("watchdog").to_ask
    assert 1 == stage.store.sweep("watchdog", {WORKER: "200 busy"}).moved
    assert [f"worker {WORKER} did not end the attempt in time; health: 200 busy"] == told(stage)


def test_a_task_that_is_well_costs_no_question(redis: Redis) -> None:
    """While there is nothing to judge, nobody is asked: one call, as ever."""
    stage = scene(redis, SETTINGS)
    put(stage, State.PROCESSING, Policy())
    redis.hset(stage.keys.rq_worker(WORKER), WORKER_RECORD, json.dumps({"health": NOBODY}))
    redis.zadd(stage.keys.deadlines, {ID: 0})
    calls = redis.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    assert 0 == Watchdog(stage.store).sweep_deadlines().moved
    assert calls + 1 >= redis.info("commandstats")["cmdstat_evalsha"]["calls"]


def test_trouble_with_asking_keeps_nobody_from_being_judged(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no thread left for the question."""

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("ghostless.jobs.watchdog.ask_all", fail)
    stage = lost(redis)
    assert 1 == Watchdog(stage.store).sweep_deadlines().moved
    assert [f"no heartbeat from worker {WORKER}"] == told(stage)


def test_the_watchdog_asks_and_judges_in_one_round(redis: Redis) -> None:
    """What the worker's host answers is in the history."""
    stage = lost(redis)
    assert 1 == Watchdog(stage.store).sweep_deadlines().moved
    assert [f"no heartbeat from worker {WORKER}; health: connection refused"] == told(stage)

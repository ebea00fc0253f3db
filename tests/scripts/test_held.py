"""What a worker writes while it holds a task, what others hear of it at once, and the limits of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from audit import audit
from ghostless.jobs.errors import StaleAttempt
from ghostless.jobs.keys import Keys
from ghostless.jobs.store import HISTORY_ENTRIES, LOG_LINES
from ghostless.statemachine import RUNNING, Policy, State
from redis import Redis
from scripts.seeding import BY_WORKER, ID, claimed, put, scene


@contextmanager
def listening(redis: Redis, *channels: str) -> Iterator[list[dict]]:
    """Collect the messages that are published meanwhile, decoded."""
    heard: list[dict] = []
    with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(*channels)
        for _ in channels:
            pubsub.get_message(timeout=5)
        yield heard
        redis.publish(channels[0], json.dumps("that was it"))
        while (message := pubsub.get_message(timeout=5)) is None or json.loads(message["data"]) != "that was it":
            if message:
                heard.append(json.loads(message["data"]))


@pytest.mark.parametrize("state", sorted(RUNNING))
def test_each_reply_tells_the_state_and_each_write_renews_the_lease(redis: Redis, state: State) -> None:
    """A worker learns of a cancel or a pause with whatever it writes next."""
    stage = scene(redis)
    put(stage, state)
    store, held = stage.store, stage.held
    for write in (
        lambda: store.heartbeat(held),
        lambda: store.progress(held, 0.5, "half"),
        lambda: store.checkpoint(held, "[1]"),
        lambda: store.log(held, ["line"]),
    ):
        redis.pexpire(stage.keys.heartbeat(ID), 1_000)
        assert (state, 1) == (write().state, held.attempt)
        assert 10_000 < redis.pttl(stage.keys.heartbeat(ID)) <= 15_000
    assert [] == audit(redis, stage.keys, [ID])


def test_a_beat_moves_the_deadline_of_an_extended_attempt(backend: Redis) -> None:
    """By Redis' clock, counted from its START; said again it changes nothing, and nothing is in the history."""
    stage = scene(backend)
    put(stage, State.PROCESSING, Policy(timeout=60_000, extend_by=30_000, max_runtime=600_000))
    started_at, before = int(stage.task["started_at"]), len(stage.history)
    stage.store.heartbeat(stage.held)
    assert int(stage.task["timeout_at"]) == started_at + 60_000
    for _ in range(2):
        assert "moved" == stage.store.heartbeat(stage.held, 90_000).word
        assert int(stage.task["timeout_at"]) == started_at + 90_000
    assert before == len(stage.history)
    with pytest.raises(StaleAttempt):
        stage.store.heartbeat(replace(stage.held, token="other"), 120_000)
    assert int(stage.task["timeout_at"]) == started_at + 90_000
    assert [] == audit(backend, stage.keys, [ID])


def test_the_clocks_of_a_policy_are_kept_apart(backend: Redis) -> None:
    """In a field of their own when one is on, in none when not; both readers join them."""
    stage = scene(backend)
    put(stage, State.PENDING)
    assert "clocks" not in stage.task
    stage.start_over()
    policy = Policy(stall_timeout=9_000, extend_by=1_000, max_runtime=1_900_000)
    put(stage, State.PENDING, policy)
    assert ("1800000,3,2,3,2000,600000,604800000", "9000,1000,1900000") == (stage.task["policy"], stage.task["clocks"])
    assert policy == claimed(stage.store).task.policy
    assert [] == audit(backend, stage.keys, [ID])


def test_progress_is_a_snapshot_and_a_message(redis: Redis) -> None:
    """The newest fraction and message stand in the task; those who listen hear every one."""
    stage = scene(redis)
    put(stage, State.PROCESSING, owner="ann")
    with listening(redis, stage.keys.live) as heard:
        stage.store.progress(stage.held, 0.25, "a quarter")
        stage.store.progress(stage.held, 1, 'done "ä"\n')
    assert ("1", 'done "ä"\n') == (stage.task["progress"], stage.task["message"])
    common = {"kind": "progress", "id": ID, "type": "demo.add", "queue": "q", "owner": "ann", "attempt": 1}
    assert [(0.25, "a quarter"), (1, 'done "ä"\n')] == [(message["progress"], message["message"]) for message in heard]
    assert all(common.items() <= message.items() for message in heard)
    assert stage.task["progress_at"] == str(heard[-1]["at"])


def test_the_log_keeps_its_last_lines(redis: Redis) -> None:
    """However much a handler logs, a bounded number of lines is kept, the newest."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    with listening(redis, stage.keys.live) as heard:
        for start in range(0, LOG_LINES + 200, 100):
            stage.store.log(stage.held, [f"line {number}" for number in range(start, start + 100)])
    kept = redis.lrange(stage.keys.log(ID), 0, -1)
    assert [f"line {number}" for number in range(200, LOG_LINES + 200)] == kept
    assert LOG_LINES + 200 == len([message for message in heard if message["kind"] == "log"])
    assert [] == audit(redis, stage.keys, [ID])


def test_a_repeated_call_of_the_callers_own_is_known_by_its_id(redis: Redis) -> None:
    """A reporter that sends its lines or its stage again with the same id adds nothing twice; another id does."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    for call_id in ("one", "one", "two", "two"):
        stage.store.log(stage.held, ["a", "b"], call_id)
        stage.store.stage(stage.held, BY_WORKER, "upscale", call_id)
    assert ["a", "b"] * 2 == redis.lrange(stage.keys.log(ID), 0, -1)
    assert [("STAGE", "PROCESSING", "PROCESSING")] * 2 == stage.history[2:]


def test_stages_are_bounded_and_moves_are_not(redis: Redis) -> None:
    """At a thousand entries a further stage is refused; the task still ends."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    redis.hset(stage.keys.task(ID), "entries", HISTORY_ENTRIES - 1)
    assert "moved" == stage.store.stage(stage.held, BY_WORKER, "last").word
    assert "refused" == stage.store.stage(stage.held, BY_WORKER, "one too many").word
    assert "moved" == stage.store.cancel(ID, "tester").word
    assert str(HISTORY_ENTRIES + 1) == stage.task["entries"]


@pytest.mark.parametrize("ask", ["cancel", "pause"])
def test_a_worker_is_told_to_look_at_once(redis: Redis, ask: str) -> None:
    """CANCEL and PAUSE of a running task send a hint over rq's channel of its worker; of a waiting task none."""
    stage = scene(redis)
    channel = Keys().rq_commands("w1")
    put(stage, State.PROCESSING)
    with listening(redis, channel) as heard:
        getattr(stage.store, ask)(ID, "tester")
        getattr(stage.store, ask)(ID, "tester")
    assert [{"command": "ghostless", "task_id": ID, "attempt": 1}] == heard
    stage.start_over()
    put(stage, State.PENDING)
    with listening(redis, channel) as heard:
        getattr(stage.store, ask)(ID, "tester")
    assert [] == heard


def test_a_withdrawn_pause_is_hinted_too(redis: Redis) -> None:
    """RESUME of a task that is still to pause lets its worker know that it may go on."""
    stage = scene(redis)
    put(stage, State.PAUSING)
    with listening(redis, Keys().rq_commands("w1")) as heard:
        assert State.PROCESSING == stage.store.resume(ID, "tester").state
    assert 1 == len(heard)
    assert [] == audit(redis, stage.keys, [ID])


def test_a_cancelled_task_keeps_no_checkpoint(redis: Redis) -> None:
    """A task that was paused with a checkpoint and is cancelled will never go on from it."""
    stage = scene(redis)
    put(stage, State.PAUSING)
    stage.store.checkpoint(stage.held, "[1]")
    stage.store.cancel(ID, "tester")
    assert 1 == redis.exists(stage.keys.checkpoint(ID))  # its worker has not stopped yet
    stage.start_over()
    put(stage, State.PAUSED)
    redis.set(stage.keys.checkpoint(ID), "[1]")
    stage.store.cancel(ID, "tester")
    assert 0 == redis.exists(stage.keys.checkpoint(ID))

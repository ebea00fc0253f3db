"""Things that only grow: texts are capped, and what is over leaves nothing but a small trace for a while (B59)."""

import pytest
from audit import audit
from faults.sizes import FAILED_LOUDLY, PATIENCE
from ghostless.jobs.client import Client
from ghostless.jobs.errors import TaskNotFound
from ghostless.jobs.failure import describe_error
from ghostless.jobs.messages import Ending
from ghostless.jobs.settings import Settings
from ghostless.statemachine import Event, Policy, Reason, State
from redis import Redis
from scripts.seeding import BY_WORKER, ID, Scene, claimed, finish, put, scene, submission, wish
from scripts.snapshot import snapshot

pytestmark = pytest.mark.timeout(PATIENCE)

BRIEF = Policy(max_retries=0, retention=1)
EACH = 100
ROUNDS = FAILED_LOUDLY // EACH
REPORTS, WISHES = 10_000, 10_000
TRACE = 400
"""Bytes that a purged task may cost while its id stays taken: a tombstone, and Redis' own for its key."""


def memory(redis: Redis) -> int:
    """Return the bytes that Redis holds for its data."""
    redis.memory_purge()
    return redis.info("memory")["used_memory_dataset"]


def fail_all(stage: Scene, first: int) -> None:
    """Let tasks fail with a message of a megabyte each."""
    told = describe_error(ValueError("x" * 1_000_000), "exception", "", retryable=True)
    ids = [f"t{number}" for number in range(first, first + EACH)]
    stage.store.submit_many([submission(task_id, BRIEF) for task_id in ids])
    for task_id in ids:
        stage.held = claimed(stage.store, wish("w", task_id)).held
        failure = Ending(Event.FAIL, Reason.EXCEPTION, told["message"], told["error"])
        stage.store.finish(stage.held, failure, BY_WORKER)


def test_failures_with_huge_messages_reach_a_plateau(redis: Redis) -> None:
    """However many fail: each keeps 64 KB of its traceback until its retention is over, then next to nothing."""
    stage, sizes = scene(redis), []
    before = memory(redis)
    for number in range(ROUNDS):
        fail_all(stage, number * EACH)
        assert memory(redis) - before < (number + 1) * EACH * TRACE + EACH * 100_000
        while stage.store.purge().moved:
            pass
        sizes.append(memory(redis))
    growth = [later - earlier for earlier, later in zip(sizes, sizes[1:], strict=False)]
    assert max(growth) < EACH * TRACE
    assert redis.xlen(stage.keys.history) == 0
    assert [] == audit(redis, stage.keys, [f"t{number}" for number in range(ROUNDS * EACH)])


def test_a_chatty_task_keeps_its_whole_history(redis: Redis) -> None:
    """Thousands of reports and lines cost a bounded number of bytes, and no move of the task is trimmed away."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    before, history = memory(redis), stage.history
    for number in range(1, REPORTS + 1):
        stage.store.progress(stage.held, number / REPORTS, f"step {number}")
        if number % 20 == 0:
            stage.store.log(stage.held, [f"line {number} {line}" for line in range(20)])
    assert memory(redis) - before < 200_000
    assert stage.history == history
    finish(stage, Event.COMPLETE)
    assert [event for event, _, _ in stage.history] == ["SUBMIT", "START", "COMPLETE"]
    assert [] == audit(redis, stage.keys, [ID])


def test_wishes_for_unknown_tasks_leave_no_trace(redis: Redis, settings: Settings) -> None:
    """Ten thousand cancels of ids that nobody has write nothing."""
    client, before = Client(settings, redis), snapshot(redis)
    for number in range(WISHES):
        try:
            client.cancel(f"nobody{number}")
        except TaskNotFound:
            continue
        raise AssertionError("a task that is not there was cancelled")
    assert before == snapshot(redis)
    assert [] == audit(redis, client.store.keys)

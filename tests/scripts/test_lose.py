"""A worker that is known to be gone: its tasks are taken away at once, and nobody else's."""

import pytest
from audit import audit
from ghostless.jobs.messages import Claim
from ghostless.jobs.reads import Reads
from ghostless.statemachine import RUNNING, Event, Policy, State
from redis import Redis
from scripts.seeding import BY_POOL, ID, QUEUE, TYPE, WORKER, Scene, claimed, finish, make_due, put, scene, submission
from scripts.snapshot import difference, snapshot

BUDGET = 2


def lose(stage: Scene, attempt: int, worker: str = WORKER, *, is_dead: bool = True) -> str:
    """Report the task as lost; return the word of the answer."""
    message = "worker w1 was killed by signal 9 (SIGKILL)"
    return stage.store.lose(ID, attempt, worker, BY_POOL, message, is_dead=is_dead).word


@pytest.mark.parametrize("state", sorted(RUNNING))
def test_a_lost_task_says_by_whom_and_why(backend: Redis, state: State) -> None:
    """TIMEOUT, worker_lost, the message of the one who saw it; and the loser is told stale."""
    stage = scene(backend)
    held = put(stage, state)
    assert "moved" == lose(stage, held.attempt)
    entry = next(entry for _, entry in backend.xrange(stage.keys.history) if entry["event"] == Event.TIMEOUT)
    assert ("worker_lost", BY_POOL) == (entry["reason"], entry["actor"])
    assert "worker w1 was killed by signal 9 (SIGKILL)" == entry["message"]
    assert "stale" == finish(stage, Event.COMPLETE)[0].word
    assert [] == audit(backend, stage.keys, [ID])


@pytest.mark.parametrize("lease_left", [0, 60_000])
@pytest.mark.parametrize("is_dead", [True, False])
def test_a_worker_that_may_live_keeps_its_lease(backend: Redis, is_dead: bool, lease_left: int) -> None:
    """The next attempt starts when it is over; only for one that is dead for certain after the backoff alone."""
    stage = scene(backend)
    stage.store.submit(submission(policy=Policy(backoff_base=1, backoff_cap=1)))
    claimed(stage.store)
    heartbeat = stage.keys.heartbeat(ID)
    backend.pexpire(heartbeat, lease_left) if lease_left else backend.delete(heartbeat)
    assert "moved" == lose(stage, 1, is_dead=is_dead)
    waits = int(stage.task["due_at"]) - int(stage.task["entered_at"])
    assert (waits > 50_000) == (not is_dead and lease_left > 0), waits


@pytest.mark.parametrize(("attempt", "worker"), [(1, "another"), (2, WORKER), (0, WORKER)])
def test_only_the_attempt_of_that_worker_is_taken_away(redis: Redis, attempt: int, worker: str) -> None:
    """Another attempt, or another worker's, changes no byte."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    before = snapshot(redis)
    assert "stale" == lose(stage, attempt, worker)
    assert {} == difference(before, snapshot(redis))


def test_a_task_that_always_loses_its_worker_is_given_up(redis: Redis) -> None:
    """It is started once more than its budget of losses, and the history says that it is used up."""
    stage = scene(redis)
    stage.store.submit(submission(policy=Policy(max_losses=BUDGET)))
    for attempt in range(1, BUDGET + 2):
        assert attempt == claimed(stage.store, Claim(WORKER, (QUEUE,), f"{attempt:02x}", (TYPE,))).held.attempt
        assert "moved" == lose(stage, attempt)
        make_due(stage)
        stage.store.release("watchdog")
    assert (State.TIMEOUT_CANCELLED, str(BUDGET + 1)) == (stage.task["state"], stage.task["losses"])
    assert [] == audit(redis, stage.keys, [ID])


def test_the_tasks_of_a_worker_are_found_in_every_running_state(redis: Redis) -> None:
    """Running, pausing and cancelling ones, each with its attempt; not what others hold, nor what is damaged."""
    stage = scene(redis)
    for number, worker in enumerate((WORKER, WORKER, WORKER, "another")):
        stage.store.submit(submission(f"t{number}"))
        claimed(stage.store, Claim(worker, (QUEUE,), f"{number:02x}", (TYPE,)))
    stage.store.pause("t1", "tester")
    stage.store.cancel("t2", "tester")
    redis.zadd(stage.keys.state(State.PROCESSING), {"damaged": 1, "gone": 1})
    redis.set(stage.keys.task("damaged"), "no hash")
    assert {"t0": 1, "t1": 1, "t2": 1} == Reads(redis, stage.keys).held_by(WORKER)
    assert {} == Reads(redis, stage.keys).held_by("nobody")

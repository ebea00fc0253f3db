"""A record that stands nowhere: half a submit of somebody's, or all that an accident left of a task (B03)."""

import logging

import pytest
from audit import audit
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.messages import Claimed
from ghostless.jobs.settings import Settings
from ghostless.jobs.upkeep import Upkeep
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import FINAL, RUNNING, STORED, WAITING_FOR_TIME, Event, Policy, State
from helpers import eventually
from redis import Redis
from scripts.seeding import DEPENDENCY, ID, QUEUE, TYPE, WORKER, Scene, ending, put, scene, wish

FAST = Settings(beat=0.05, lease=0.2, sweep=0.02)
SOON = Policy(backoff_base=1, backoff_cap=1)
PACKED = "1800000,3,2,3,1,1,604800000"

LEFT_ALONE = FINAL | {State.PAUSED}
ENDS = {
    **dict.fromkeys((State.CANCELLING, State.BLOCKED), State.CANCELLED),  # what the BLOCKED one depends on is gone
    **dict.fromkeys((State.SCHEDULED, State.PENDING, State.PROCESSING, State.RETRY_WAITING), State.SUCCESS),
    State.PAUSING: State.PAUSED,
    **{state: state for state in LEFT_ALONE},
}
"""Where a task comes to from each state, with a watchdog and a worker, when nobody holds it."""


def craft(stage: Scene, state: State) -> None:
    """Write as little of a record as can be read, as a stranger would: no history, no place in any index."""
    now, keys = stage.now(), stage.keys
    fields = {"state": state, "type": TYPE, "queue": QUEUE, "policy": PACKED, "attempt": 0}
    fields |= {"entered_at": now, "submitted_at": now}
    if state in RUNNING:
        fields |= {"attempt": 1, "token": "aa", "worker_id": WORKER, "started_at": now}
    if state in WAITING_FOR_TIME:
        fields |= {"due_at": now}
    if state is State.BLOCKED:
        fields |= {"dependencies": 1}
        stage.redis.set(keys.depends_on(ID), f'["{DEPENDENCY}"]')
    stage.redis.hset(keys.task(ID), mapping=fields)
    stage.redis.set(keys.params(ID), "{}")


def strip(stage: Scene, state: State) -> None:
    """Submit a task, and lose all but its record, its values and its history."""
    put(stage, state, SOON)
    keys = stage.keys
    left = {keys.history, *(of(ID) for of in (keys.task, keys.params, keys.depends_on, keys.result))}
    stage.redis.delete(*(set(stage.redis.scan_iter()) - left))
    for entry_id, moved in stage.redis.xrange(keys.history):
        if moved["task"] == DEPENDENCY:
            stage.redis.xdel(keys.history, entry_id)
    if state in WAITING_FOR_TIME:
        stage.redis.hset(keys.task(ID), "due_at", stage.now())


def work(stage: Scene) -> None:
    """Run what there is to run, as a worker does."""
    reply = stage.store.claim(wish("w2", "bb22"))
    if isinstance(reply, Claimed):
        stage.store.finish(reply.held, ending(Event.COMPLETE), "worker:w2")


@pytest.mark.parametrize("make", [craft, strip])
@pytest.mark.parametrize("state", STORED)
def test_a_record_in_no_index_is_found_and_goes_on(
    redis: Redis, caplog: pytest.LogCaptureFixture, state: State, make: type
) -> None:
    """In each state: the watchdogs' audit tells of it, puts it where it belongs, and it goes on to its end."""
    stage = scene(redis, FAST)
    make(stage, state)
    watchdog = Watchdog(stage.store)

    def go_on() -> None:
        watchdog.sweep_all()
        work(stage)
        assert (Event.REPAIR, state, state) in stage.history
        assert stage.task["state"] == ENDS[state]

    with caplog.at_level(logging.ERROR, "ghostless.watchdog"):
        eventually(go_on)
    assert f"{stage.keys.task(ID)}: it is {state} and not in {stage.keys.state(state)}" in caplog.text
    Upkeep(stage.store).account(corrects=True)  # which tasks there should be only the ledger knows
    assert [line for line in audit(redis, stage.keys, [ID]) if make is strip or not line.startswith("e: ")] == []


def test_a_record_that_cannot_be_read_is_told(redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can say what it was to do: it stays, and the watchdogs and the doctor name it, and what it lacks."""
    stage = scene(redis)
    redis.hset(stage.keys.task(ID), mapping={"state": State.PENDING})
    with caplog.at_level(logging.ERROR, "ghostless.watchdog"):
        Watchdog(stage.store).sweep_all()
    lack = f"{stage.keys.task(ID)} field type: expected the name of a task type"
    assert lack in caplog.text
    assert any(lack in str(problem) for problem in Doctor(stage.store).audit())
    assert redis.exists(stage.keys.task(ID))

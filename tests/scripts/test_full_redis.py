"""A Redis at its memory limit: what is running ends and nothing looks dead, new work is refused whole (B54)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from audit import audit
from ghostless.jobs.errors import RedisFull
from ghostless.statemachine import RUNNING, Event, Reason, State
from redis import Redis
from scripts.seeding import ALL, ID, PURGE_ARCHIVED, Carrier, Scene, finish, fire, scene, set_up, submission, wish
from scripts.snapshot import difference, snapshot


@contextmanager
def full(redis: Redis) -> Iterator[None]:
    """Set the memory limit far below what is used; a flush of the database would not undo it."""
    redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        redis.config_set("maxmemory", 0)


ENDS = [
    Carrier("finish", lambda stage, event=event, reason=reason: finish(stage, event, reason), state)
    for state in sorted(RUNNING)
    for event, reason in (
        (Event.COMPLETE, Reason.POLICY),
        (Event.FAIL, Reason.EXCEPTION),
        (Event.TIMEOUT, Reason.DEADLINE),
        (Event.SUSPEND, Reason.SHUTDOWN),
        (Event.STOPPED, Reason.USER),
    )
    if event is not Event.STOPPED or state is State.CANCELLING
]
CANCELS = [
    Carrier("cancel", lambda stage: stage.store.cancel(ID, "tester"), state)
    for state in (State.SCHEDULED, State.BLOCKED, State.PENDING, State.RETRY_WAITING, State.PAUSED, *sorted(RUNNING))
    if state is not State.CANCELLING
]
REFUSED = {"submit", "requeue", "subscribe"}
PASS = [*(carrier for carrier in ALL if carrier.verb not in REFUSED), PURGE_ARCHIVED]


@pytest.mark.parametrize("carrier", [*PASS, *ENDS, *CANCELS], ids=lambda carrier: f"{carrier.verb}-{carrier.state}")
def test_what_is_there_goes_on_at_a_full_redis(redis: Redis, carrier: Carrier) -> None:
    """Leases are renewed, attempts end, cancels, releases, sweeps and purges run through, and all of it is whole."""
    stage = scene(redis)
    set_up(stage, carrier)
    with full(redis):
        assert fire(stage, carrier) in ("moved", "claimed")
    assert [] == audit(redis, stage.keys, [] if carrier.verb == "purge" else [ID])


def _wait_in_another_queue(stage: Scene) -> None:
    stage.store.submit(submission("t2"))


@pytest.mark.parametrize("carrier", [carrier for carrier in ALL if carrier.verb in REFUSED], ids=lambda c: c.verb)
def test_what_only_adds_is_refused_whole(redis: Redis, carrier: Carrier) -> None:
    """A submit and a new ticket need memory first: RedisFull, and not a byte was written."""
    stage = scene(redis)
    set_up(stage, carrier)
    before = snapshot(redis)
    with full(redis), pytest.raises(RedisFull, match="raise maxmemory or wait"):
        carrier.call(stage)
    assert {} == difference(before, snapshot(redis))
    assert "moved" == fire(stage, carrier)
    assert [] == audit(redis, stage.keys, [ID])


def test_each_of_many_submits_is_refused(redis: Redis) -> None:
    """Tasks that are submitted together each answer RedisFull, scripts not loaded yet included."""
    stage = scene(redis)
    redis.script_flush("SYNC")
    with full(redis):
        answers = stage.store.submit_many([submission("t1"), submission("t2")])
    assert [RedisFull, RedisFull] == [type(answer) for answer in answers]
    assert {} == snapshot(redis)


def test_an_attempt_ends_and_the_next_begins_in_one_call(redis: Redis) -> None:
    """The fused call works at a full Redis as well, so that a queue drains."""
    stage = scene(redis)
    set_up(stage, Carrier("finish", finish, State.PROCESSING, _wait_in_another_queue))  # type: ignore[arg-type]
    with full(redis):
        answer, following = finish(stage, Event.COMPLETE, claim=wish("w1", "cc"))
    assert ("moved", "t2") == (answer.word, following.held.task_id)
    assert [] == audit(redis, stage.keys, [ID, "t2"])


def test_a_beat_that_found_no_lease_makes_a_new_one(redis: Redis) -> None:
    """A renewal at a full Redis works also when the lease ran out a moment ago."""
    stage = scene(redis)
    set_up(stage, Carrier("heartbeat", finish, State.PROCESSING))  # type: ignore[arg-type]
    redis.delete(stage.keys.heartbeat(ID))
    with full(redis):
        assert "moved" == stage.store.heartbeat(stage.held).word
    assert [] == audit(redis, stage.keys, [ID])

"""What a task keeps stays in the compact form that Redis has for small hashes; a field too long would triple it."""

import pytest
from ghostless.jobs import bounds
from ghostless.jobs.messages import Claimed
from ghostless.statemachine import STORED, Event, Policy, State
from redis import Redis
from scripts.seeding import BY_WORKER, ID, Scene, ending, put, scene, submission, wish

COMPACT = ("listpack", "ziplist")  # as Redis calls it since 7.0, and before
LONG = "n" * 64
LONGEST = Policy(
    timeout=round(bounds.TIMEOUT.most * 1000),
    max_retries=1000,
    max_timeouts=1000,
    max_losses=1000,
    backoff_base=round(bounds.WAIT.most * 1000),
    backoff_cap=round(bounds.WAIT.most * 1000),
    retention=round(bounds.WAIT.most * 1000),
    stall_timeout=round(bounds.CLOCK.most * 1000),
    extend_by=round(bounds.CLOCK.most * 1000),
    max_runtime=round(bounds.CLOCK.most * 1000),
)


def encodings(stage: Scene, task_id: str = ID) -> set[str]:
    """Return the encodings of the task's record and of its ticket, where there is one."""
    names = stage.keys.task(task_id), stage.keys.rq_job(task_id)
    return {str(stage.redis.object("encoding", name)) for name in names if stage.redis.exists(name)}


@pytest.mark.parametrize("state", sorted(STORED))
def test_record_and_ticket_are_compact_in_every_state(redis: Redis, state: State) -> None:
    """In whatever state a task is, its record and its ticket are small hashes."""
    stage = scene(redis)
    put(stage, state)
    assert encodings(stage) <= set(COMPACT)
    assert (state is State.PENDING) == bool(redis.exists(stage.keys.rq_job(ID))), "a ticket is there while it is needed"


def test_the_longest_names_and_terms_stay_compact(redis: Redis) -> None:
    """Each name, term and message at its bound, in the life of a task that fails and is tried again."""
    stage = scene(redis)
    given = submission(LONG, LONGEST, type=LONG, queue=LONG, owner=LONG, fingerprint="f" * 32)
    stage.store.submit(given)
    assert encodings(stage, LONG) <= set(COMPACT)
    reply = stage.store.claim(wish(LONG, "a" * 16, LONG, queues=(LONG,)))
    assert isinstance(reply, Claimed)
    stage.store.progress(reply.held, 0.123456789012345678, LONG)
    stage.store.stage(reply.held, BY_WORKER, LONG)
    assert encodings(stage, LONG) <= set(COMPACT)
    stage.store.finish(reply.held, ending(Event.FAIL), BY_WORKER)
    assert encodings(stage, LONG) <= set(COMPACT)

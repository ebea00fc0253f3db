"""The script that notes workers over HTTP: what they ask for, that they are at work, and whom it refuses."""

from collections.abc import Sequence
from typing import Any

import pytest
from ghostless.jobs.fleet import Member, members
from ghostless.jobs.scripts import Scripts
from redis import Redis
from scripts.seeding import Scene, scene
from scripts.snapshot import difference, snapshot

LEASE, KNOWN, LIFE = 60_000, 180_000, 86_400_000


@pytest.fixture
def stage(backend: Redis) -> Scene:
    """A database in which the type `work` is published."""
    stage = scene(backend)
    stage.store.publish_types({"work": {}})
    return stage


def note(stage: Scene, queue: str = "", types: Sequence[str] = (), worker: str = "far") -> list[Any]:
    """Note a worker: a claim from a queue, or that it is at work."""
    arguments = (queue, LEASE, KNOWN, LIFE, *types)
    return Scripts(stage.redis, stage.keys).call("note_worker", [stage.keys.http_worker(worker)], arguments)


def seen(stage: Scene) -> Member:
    """Return the one worker that is listed."""
    [member] = members(stage.redis, stage.keys)
    return member


def test_a_claim_and_a_beat_are_noted(stage: Scene) -> None:
    """With what it serves in each queue, as idle or busy; a repeated call finds it so. All of it passes by itself."""
    for _ in range(2):
        assert ["noted"] == note(stage, "a", ["work"])
    assert ("idle", ("a",)) == (seen(stage).state, seen(stage).queues)
    assert ["noted"] == note(stage, "b", ["work"])
    for _ in range(2):
        assert ["noted"] == note(stage)
    member = seen(stage)
    assert ("busy", {"a": ("work",), "b": ("work",)}) == (member.state, member.types_by_queue)
    assert (member.started_at or 0) <= (member.heartbeat_at or 0)
    for name in (stage.keys.http_worker("far"), stage.keys.http_workers):
        assert 0 < stage.redis.pttl(name) <= LIFE


def test_a_beat_of_one_whose_claims_are_not_known_notes_nothing(stage: Scene) -> None:
    """It is listed again with its next claim."""
    before = snapshot(stage.redis)
    assert ["unknown"] == note(stage)
    assert {} == difference(before, snapshot(stage.redis))


def test_who_may_not_claim_is_refused_and_nothing_is_noted(stage: Scene) -> None:
    """The types that nobody published are named, in their order; a name that a worker has is its own while it lives."""
    before = snapshot(stage.redis)
    assert ["unpublished", "b", "a"] == note(stage, "q", ["b", "work", "a"])
    assert {} == difference(before, snapshot(stage.redis))
    stage.redis.hset(stage.keys.rq_worker("far"), "birth", "2030-01-31T08:00:00Z")
    before = snapshot(stage.redis)
    assert ["taken"] == note(stage, "q", ["work"])
    assert {} == difference(before, snapshot(stage.redis))
    stage.redis.hset(stage.keys.rq_worker("far"), "death", "2030-01-31T09:00:00Z")
    assert ["noted"] == note(stage, "q", ["work"])


def test_who_was_forgotten_leaves_the_index_with_the_next_note(stage: Scene) -> None:
    """So it is bounded by those who come back."""
    stage.redis.zadd(stage.keys.http_workers, {"gone": 1})
    note(stage, "q", ["work"])
    assert ["far"] == stage.redis.zrange(stage.keys.http_workers, 0, -1)

"""When an entry that is missing in the listings by queue and type is a loss, and when an earlier version wrote none."""

from collections.abc import Callable

import pytest
from audit import audit
from ghostless.jobs.keys import LISTED_SINCE
from ghostless.jobs.upkeep import Upkeep
from ghostless.statemachine import Event
from redis import Redis
from scripts.seeding import ID, PLACE, Scene, scene, submission
from scripts.test_full_redis import full
from scripts.test_repair import know_all_listed


def store(stage: Scene) -> list[str]:
    """Store some tasks; return their ids."""
    ids = [f"t{number:03}" for number in range(60)]
    stage.store.submit_many([submission(task_id) for task_id in ids])
    return ids


def unlist(stage: Scene) -> None:
    """Leave what is stored as a version does that has no such index."""
    stage.redis.delete(stage.keys.listed(PLACE), stage.keys.listed_places)


def go_round(stage: Scene) -> list[str]:
    """Let several watchdogs share one round of the audit; return what they told."""
    before, told, number = rounds(stage), list[str](), 0
    while rounds(stage) == before:
        stage.redis.hdel(stage.keys.patrol, "at")
        number += 1
        told += Upkeep(stage.store).patrol(f"watchdog:{number}").problems
    return told


def rounds(stage: Scene) -> int:
    """Return how many rounds there were."""
    return int(stage.redis.hget(stage.keys.patrol, "round") or 0)


NEWS: dict[str, Callable[[Scene], object]] = {
    "an upgrade": lambda stage: None,
    "a note that was lost": lambda stage: stage.redis.delete(stage.keys.limits),
    "a note that is none": lambda stage: stage.redis.set(stage.keys.limits, "poison"),
    "a database that was emptied": lambda stage: (stage.redis.flushall(), store(stage)),
}


@pytest.mark.parametrize("news", NEWS)
def test_what_no_version_entered_is_entered_without_a_word(redis: Redis, news: str) -> None:
    """Until it is known that all have their entries, nobody lost one: neither a log nor a history tells."""
    stage = scene(redis)
    ids = store(stage)
    if news != "an upgrade":
        know_all_listed(stage)
    NEWS[news](stage)
    unlist(stage)
    length = redis.xlen(stage.keys.history)
    assert [] == go_round(stage)
    assert length == redis.xlen(stage.keys.history)
    if news == "a note that is none":
        redis.delete(stage.keys.limits)
    assert [] == audit(redis, stage.keys, ids)


def test_the_first_round_that_enters_nobody_tells_that_all_are_entered(redis: Redis) -> None:
    """Whoever made its steps; a process of an earlier version that runs beside puts that off."""
    stage = scene(redis)
    ids = store(stage)
    unlist(stage)
    for _ in range(3):
        assert [] == go_round(stage)
        assert not redis.hexists(stage.keys.limits, LISTED_SINCE)
        redis.zrem(stage.keys.listed(PLACE), ids[2])
    for _ in range(2):
        assert [] == go_round(stage)
    assert 0 < int(redis.hget(stage.keys.limits, LISTED_SINCE) or 0) <= stage.now()
    redis.zrem(stage.keys.listed(PLACE), ids[2])
    assert [f"ghostless:task:{ids[2]}: it is PENDING and not in {stage.keys.listed(PLACE)}"] == go_round(stage)
    assert (Event.REPAIR, "PENDING", "PENDING") == stage.history[-1]
    assert [] == audit(redis, stage.keys, ids)


def test_an_empty_database_has_all_its_tasks_listed(redis: Redis) -> None:
    """The first sweep there tells so, at a full Redis too."""
    stage = scene(redis)
    with full(redis):
        go_round(stage)
    assert redis.hexists(stage.keys.limits, LISTED_SINCE)
    stage.store.submit(submission())
    unlist(stage)
    assert 2 == len(go_round(stage))
    assert [] == audit(redis, stage.keys, [ID])


def test_a_place_whose_name_was_lost_is_named_again(redis: Redis) -> None:
    """One round brings a whole queue and type back into listings; of all its tasks one tells of it."""
    stage = scene(redis)
    ids = store(stage)
    know_all_listed(stage)
    redis.delete(stage.keys.listed_places)
    (told,) = go_round(stage)
    assert told.endswith(f"it is PENDING, and {stage.keys.listed_places} does not name {PLACE}")
    assert 1 == [event for event, _, _ in stage.history].count(Event.REPAIR)
    assert [] == audit(redis, stage.keys, ids)

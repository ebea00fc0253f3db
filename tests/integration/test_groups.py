"""Groups and parked entries of which something is damaged, on a real Redis: it is told, and hides nothing else."""

import json

import pytest
from ghostless.jobs.consumer import Consumer
from ghostless.jobs.errors import CorruptRecord, GroupNotFound
from ghostless.jobs.groups import PARKED_ERROR, Groups
from ghostless.jobs.model import Entry
from ghostless.jobs.settings import Settings
from redis import Redis
from scripts.seeding import Scene, scene, submission

GROUP, OTHER = "listener:tell", "listener:other"


@pytest.fixture
def stage(redis: Redis) -> Scene:
    """A store on an empty database."""
    return scene(redis)


@pytest.fixture
def groups(stage: Scene) -> Groups:
    """Two groups."""
    groups = Groups(stage.redis, Settings())
    groups.create(GROUP)
    groups.create(OTHER)
    return groups


def park(stage: Scene, groups: Groups, task_id: str, error: str = "no") -> Entry:
    """Park the entry of a new task."""
    one = Consumer(groups, GROUP, "one", 60.0)
    stage.store.submit(submission(task_id))
    heard = one.listen(("SUBMIT",), 9)
    assert heard
    one.park(heard.handed[0].entry, 8, error)
    return heard.handed[0].entry


def test_the_error_of_a_parked_entry_is_bounded(stage: Scene, groups: Groups) -> None:
    """A thousand tracebacks of 64 KiB would fill Redis: head and tail are kept."""
    park(stage, groups, "t1", "head" + "ä" * 60_000 + "tail")
    [[parked], _] = groups.parked(GROUP)
    assert len(parked.error.encode()) <= PARKED_ERROR
    assert ("head", "tail") == (parked.error[:4], parked.error[-4:])


@pytest.mark.parametrize("damage", ["", "[]", '{"entry": {}}', "bad id"])
def test_a_damaged_parked_entry_keeps_no_other_from_being_tried_again(
    stage: Scene, groups: Groups, damage: str
) -> None:
    """Older and newer ones are shown and replayed; what is wrong is told, and stays."""
    key = stage.keys.parked_entries(GROUP)
    older = park(stage, groups, "t1")
    record = json.loads(stage.redis.lrange(key, 0, 0)[0])
    record["entry"]["id"] = "some"
    stage.redis.lpush(key, json.dumps(record) if damage == "bad id" else damage)
    newer = park(stage, groups, "t2")
    parked, damaged = groups.parked(GROUP)
    assert ([newer, older], 1) == ([each.entry for each in parked], len(damaged))
    assert "a parked entry" in damaged[0]
    assert ([older.id, newer.id], [], damaged) == groups.replay(GROUP)
    assert 1 == stage.redis.llen(key)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [("missed", "many", "field missed"), ("beat:two", "soon", "field beat:two"), ("beat:two", "-1", "field beat:two")],
)
def test_a_damaged_count_hides_no_group(stage: Scene, groups: Groups, field: str, value: str, told: str) -> None:
    """It stands there with what is right, and with what is wrong."""
    Consumer(groups, GROUP, "one", 60.0).listen(("SUBMIT",), 9)
    stage.redis.hset(stage.keys.listener(GROUP), field, value)
    other, damaged = groups.all()
    assert (OTHER, "") == (other.name, other.problem)
    assert (GROUP, ("one",), 0) == (damaged.name, damaged.listeners, damaged.missed)
    assert told in damaged.problem
    assert repr(value) in damaged.problem


def test_keys_of_a_wrong_type_hide_no_group(stage: Scene, groups: Groups) -> None:
    """Both that a group has are named; and a history that is none is an error."""
    names = stage.keys.listener(GROUP), stage.keys.parked_entries(GROUP)
    for name in names:
        stage.redis.delete(name)
        stage.redis.sadd(name, "x")
    _, damaged = groups.all()
    assert f"{names[0]}: expected a hash; {names[1]}: expected a list" == damaged.problem
    stage.redis.set(stage.keys.history, "x")
    with pytest.raises(CorruptRecord):
        groups.all()


def test_a_group_that_goes_while_it_is_looked_at_is_none(
    stage: Scene, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are there."""
    ask = groups._ask

    def and_remove(pipeline: object, group: dict[str, str]) -> None:
        stage.redis.xgroup_destroy(stage.keys.history, OTHER)
        ask(pipeline, group)

    monkeypatch.setattr(groups, "_ask", and_remove)
    assert [GROUP] == [status.name for status in groups.all()]


def test_what_is_left_of_a_group_is_removed(stage: Scene, groups: Groups) -> None:
    """By whoever removes it again; a damaged one goes whole, and then there is none."""
    park(stage, groups, "t1")
    stage.redis.xgroup_destroy(stage.keys.history, GROUP)
    groups.remove(GROUP)
    assert not stage.redis.exists(stage.keys.listener(GROUP), stage.keys.parked_entries(GROUP))
    with pytest.raises(GroupNotFound):
        groups.remove(GROUP)
    stage.redis.delete(stage.keys.history)
    stage.redis.set(stage.keys.listener(OTHER), "x")
    groups.remove(OTHER)
    with pytest.raises(GroupNotFound):
        groups.remove(OTHER)

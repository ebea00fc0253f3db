"""Damage in what is stored of dependencies: nobody runs too early, no attempt goes round, and no worker ends of it."""

import pytest
from audit import audit
from ghostless.jobs.errors import CorruptRecord
from ghostless.jobs.messages import NothingToClaim
from ghostless.jobs.reads import Reads
from ghostless.statemachine import Event, State
from redis import Redis
from scripts.seeding import ID, Scene, claimed, ending, put, scene, submission, wish

DEEP = "[" * 100_000 + "]" * 100_000
NO_IDS = {
    **{"a number": "5", "an object": '{"a":1}', "a text": '"abc"', "null": "null", "a truth": "true", "nothing": None},
    **{"deep": DEEP, "no JSON": "[", "too few": '["t1"]', "too many": '["t1","t2","t3"]', "no texts": "[1,2]"},
    **{"an empty list": "[]", "a hole": '["t1",null]', "lists": '[["t1"],["t2"]]', "another type": {}},
}


def _spoil_ids(stage: Scene, value: object) -> None:
    stage.redis.delete(stage.keys.depends_on("last"))
    if isinstance(value, str):
        stage.redis.set(stage.keys.depends_on("last"), value)
    elif value is not None:
        stage.redis.sadd(stage.keys.depends_on("last"), "x")


@pytest.mark.parametrize("way", ["claim", "start", "finish"])
@pytest.mark.parametrize("value", NO_IDS.values(), ids=NO_IDS)
def test_damaged_ids_of_dependencies_end_the_attempt_and_no_worker(backend: Redis, way: str, value: object) -> None:
    """Whoever starts the task, its attempt fails and says why; the task that ended in the same call is not touched."""
    stage = scene(backend)
    for number, task_id in enumerate(("t1", "t2")):
        stage.store.submit(submission(task_id))
        stage.held = claimed(stage.store, wish("w1", f"a{number}")).held
        if number == 0:
            stage.store.finish(stage.held, ending(Event.COMPLETE), "worker:w1")
    stage.store.submit(submission("last", depends_on=("t1", "t2")))
    _spoil_ids(stage, value)
    answer, reply = stage.store.finish(
        stage.held, ending(Event.COMPLETE), "worker:w1", wish("w1", "cc") if way == "finish" else None
    )
    assert ("moved", State.SUCCESS) == (answer.word, answer.state)
    if way != "finish":
        reply = stage.store.claim(wish("w1", "cc")) if way == "claim" else stage.store.start("last", "w1", "cc")
    assert NothingToClaim("damaged") == reply
    assert {"SUCCESS"} == {backend.hget(stage.keys.task(done), "state") for done in ("t1", "t2")}
    last = stage.store.keys.task("last")
    assert [State.FAILED, "invalid_params"] == backend.hmget(last, "state", "reason")
    assert stage.keys.depends_on("last") in str(backend.get(stage.keys.error("last")))
    assert [] == [line for line in audit(backend, stage.keys) if "last" not in line]


def test_ids_of_dependencies_that_are_none_are_told_to_who_reads_them(redis: Redis) -> None:
    """A reader of the task is told what is damaged, and meets no other error."""
    stage = scene(redis)
    put(stage, State.BLOCKED)
    for value in ("5", '{"a":1}', '"abc"', "true", "[1]", DEEP):
        redis.set(stage.keys.depends_on(ID), value)
        with pytest.raises(CorruptRecord, match=ID):
            Reads(redis, stage.keys).task(ID)


def test_a_value_that_is_nested_too_deeply_is_damaged_like_any_other(redis: Redis) -> None:
    """Params, and what a dependency returned, end the attempt; a checkpoint costs only what it held."""
    stage = scene(redis)
    put(stage, State.SUCCESS)
    for number, kind in enumerate(("params", "result")):
        stage.store.submit(submission(f"d{number}", depends_on=(ID,)))
        redis.set(stage.keys.params("d0") if kind == "params" else stage.keys.result(ID), DEEP)
        assert NothingToClaim("damaged") == stage.store.claim(wish("w1", f"b{number}"))
        assert State.FAILED == redis.hget(stage.keys.task(f"d{number}"), "state")
    stage.store.submit(submission("c"))
    redis.set(stage.keys.checkpoint("c"), DEEP)
    with pytest.raises(CorruptRecord, match="checkpoint of c"):
        Reads(redis, stage.keys).checkpoint("c")
    assert claimed(stage.store, wish("w1", "cc")).checkpoint is None

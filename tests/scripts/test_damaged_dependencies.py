"""Damage in what is stored of dependencies: nobody runs too early, no attempt goes round, and no worker ends of it."""

import pytest
from audit import audit
from ghostless.jobs.errors import CorruptRecord
from ghostless.jobs.messages import NothingToClaim
from ghostless.jobs.reads import Reads
from ghostless.jobs.upkeep import Upkeep
from ghostless.statemachine import Event, State
from redis import Redis
from scripts.seeding import BY_PERSON, BY_WATCHDOG, ID, Scene, claimed, ending, put, scene, step, submission, wish
from scripts.test_full_redis import full

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


# The set of what a task waits for, lost


def _end(stage: Scene, task_id: str, event: Event = Event.COMPLETE) -> None:
    stage.held = claimed(stage.store, wish("w1", task_id.encode().hex())).held
    assert task_id == stage.held.task_id
    stage.store.finish(stage.held, ending(event, retryable=False), "worker:w1")


LOOKS = {
    "recheck": lambda s: s.store.recheck(BY_WATCHDOG),
    "release": lambda s: (s.redis.zadd(s.keys.due, {"last": 0}), s.store.release(BY_WATCHDOG)),
    "repair": lambda s: Upkeep(s.store).compare(["last"], actor=BY_PERSON),
    "patrol": lambda s: Upkeep(s.store).patrol(BY_WATCHDOG),
    "an end": lambda s: _end(s, "t1"),
}


@pytest.mark.parametrize("delay", [0, 1_000_000])
@pytest.mark.parametrize("look", LOOKS)
def test_a_lost_set_releases_nobody(backend: Redis, look: str, delay: int) -> None:
    """Whoever looks at the task makes the set again from what it depends on; it starts after the last of them."""
    stage = scene(backend)
    stage.store.submit_many([submission("t1"), submission("t2")])
    stage.store.submit(submission("last", depends_on=("t1", "t2"), delay=delay))
    backend.delete(stage.keys.unmet("last"))
    LOOKS[look](stage)
    assert State.BLOCKED == backend.hget(stage.keys.task("last"), "state")
    assert backend.smembers(stage.keys.unmet("last")) == ({"t2"} if look == "an end" else {"t1", "t2"})
    assert [] == [line for line in audit(backend, stage.keys) if "last" in line and "due" not in line]
    for task_id in ("t2",) if look == "an end" else ("t1", "t2"):
        _end(stage, task_id)
    if delay and look != "release":
        assert State.BLOCKED == backend.hget(stage.keys.task("last"), "state")
        LOOKS["release"](stage)
    assert State.PENDING == backend.hget(stage.keys.task("last"), "state")
    assert [] == audit(backend, stage.keys)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("value", [None, "5", '["t1"]'])
def test_who_cannot_tell_what_it_waits_for_is_kept(backend: Redis, look: str, value: str | None) -> None:
    """With the list of its dependencies damaged too the task stays as it is, and that is told."""
    stage = scene(backend)
    stage.store.submit_many([submission("t1"), submission("t2")])
    stage.store.submit(submission("last", depends_on=("t1", "t2"), delay=1_000_000 if look == "release" else 0))
    backend.delete(stage.keys.unmet("last"), stage.keys.depends_on("last"))
    if value:
        backend.set(stage.keys.depends_on("last"), value)
    LOOKS[look](stage)
    told = stage.store.settle() if look == "an end" else stage.store.reply
    assert stage.keys.depends_on("last") in str(told)
    assert State.BLOCKED == backend.hget(stage.keys.task("last"), "state")


def test_a_lost_set_does_not_hide_a_bad_end(backend: Redis) -> None:
    """One of them failed meanwhile: the task is cancelled, and says of which."""
    stage = scene(backend)
    stage.store.submit(submission("t1"))
    stage.store.submit(submission("last", depends_on=("t1",)))
    backend.hdel(stage.keys.task("t1"), "dependents")
    backend.delete(stage.keys.unmet("last"), stage.keys.dependents("t1"))
    _end(stage, "t1", Event.FAIL)
    assert 1 == stage.store.recheck(BY_WATCHDOG).moved
    assert State.CANCELLED == backend.hget(stage.keys.task("last"), "state")


def test_who_waits_for_its_time_only_outlives_what_it_depended_on(backend: Redis) -> None:
    """Its set is rightly gone, and so is the dependency with its tombstone: it starts at its time."""
    stage = scene(backend)
    stage.store.submit(submission("t1"))
    stage.store.submit(submission("last", depends_on=("t1",), delay=1_000_000))
    _end(stage, "t1")
    backend.zadd(stage.keys.retention, {"t1": 0})
    assert 1 == stage.store.purge().moved
    backend.delete(stage.keys.tombstone("t1"))
    assert 0 == stage.store.recheck(BY_WATCHDOG).moved
    LOOKS["release"](stage)
    assert State.PENDING == backend.hget(stage.keys.task("last"), "state")


def test_a_lost_set_is_made_again_at_a_full_redis(redis: Redis) -> None:
    """Also the first write of a step that needs memory comes after one that needs none."""
    stage = scene(redis)
    stage.store.submit(submission("t1"))
    stage.store.submit(submission("last", depends_on=("t1",), delay=1_000_000))
    for look in ("release", "recheck"):
        redis.delete(stage.keys.unmet("last"))
        redis.zadd(stage.keys.due, {"last": 0})
        with full(redis):
            {"release": stage.store.release, "recheck": stage.store.recheck}[look](BY_WATCHDOG)
        assert {"t1"} == redis.smembers(stage.keys.unmet("last"))


# What is set aside, and bounds


def test_a_note_in_quarantine_says_what_is_wrong(backend: Redis) -> None:
    """Of a damaged record the fault; of a missing one that there is none. Where tasks are counted the damaged stays."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    for task_id in ("bad", "gone"):
        stage.store.submit(submission(task_id, depends_on=(ID,)))
    backend.hset(stage.keys.task("bad"), "attempt", "x")
    backend.delete(stage.keys.task("gone"))
    backend.delete(stage.keys.unmet("bad"), stage.keys.unmet("gone"))  # so that they are not in order
    stage.store.recheck(BY_WATCHDOG)
    stage.store.finish(stage.held, ending(Event.COMPLETE), "worker:w1")
    stage.store.settle()
    blocked, dependents = stage.keys.state(State.BLOCKED), stage.keys.dependents(ID)
    noted = backend.hgetall(stage.keys.quarantine)
    assert f"{stage.keys.task('bad')} field attempt" in noted.pop(f"{dependents} bad")
    assert dict.fromkeys((f"{dependents} gone", f"{blocked} gone"), "no task of this id") == noted
    assert ["bad"] == backend.zrange(blocked, 0, -1)


def _calls(redis: Redis, command: str) -> int:
    return redis.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


def _wide(stage: Scene, number: int) -> list[str]:
    """Let some tasks wait for a hundred others each."""
    others = [f"o{index:03}" for index in range(100)]
    stage.store.submit_many([submission(task_id, delay=1_000_000) for task_id in others])
    ids = [f"d{index:03}" for index in range(number)]
    stage.store.submit_many([submission(task_id, depends_on=tuple(others)) for task_id in ids])
    return ids


def test_a_repair_of_wide_tasks_is_cut_into_bounded_calls(redis: Redis) -> None:
    """No call looks at more than some hundred dependencies, and all tasks are looked at."""
    stage = scene(redis)
    ids = _wide(stage, 20)
    redis.delete(stage.keys.state(State.BLOCKED))
    redis.config_resetstat()
    assert 20 == Upkeep(stage.store).compare(ids, actor=BY_PERSON).moved
    assert 7 == _calls(redis, "evalsha")  # of three tasks each
    assert {*ids} == {*redis.zrange(stage.keys.state(State.BLOCKED), 0, -1)}


def test_a_patrol_over_wide_tasks_is_cut_into_bounded_steps(redis: Redis) -> None:
    """A step looks at some hundred dependencies, and the next one goes on with the same page of keys."""
    stage = scene(redis)
    ids = _wide(stage, 20)
    redis.delete(stage.keys.state(State.BLOCKED))
    for _ in range(200):
        redis.config_resetstat()
        step(stage, "patrol")
        assert _calls(redis, "hexists") <= 450  # one for each dependency, and some for each task
        if redis.zcard(stage.keys.state(State.BLOCKED)) == len(ids):
            break
    assert {*ids} == {*redis.zrange(stage.keys.state(State.BLOCKED), 0, -1)}


@pytest.mark.parametrize("way", ["recheck", "repair"])
def test_the_ids_of_dependencies_are_read_once(redis: Redis, way: str) -> None:
    """Each of a hundred lost notes is written again; the list of the task's dependencies is read once for all."""
    stage = scene(redis)
    (last,) = _wide(stage, 1)
    first = redis.smembers(stage.keys.unmet(last))
    redis.delete(*map(stage.keys.dependents, first))
    redis.config_resetstat()
    if way == "recheck":
        stage.store.recheck(BY_WATCHDOG)
    else:
        Upkeep(stage.store).compare([last], actor=BY_WATCHDOG)
    assert _calls(redis, "get") < len(first) / 2
    assert [last] == redis.zrange(stage.keys.dependents(min(first)), 0, -1)


def test_a_look_through_the_history_reads_a_bounded_number_of_values(redis: Redis) -> None:
    """Beside tasks with long histories it goes on in smaller steps, to the same end."""
    stage = scene(redis)
    ids = [f"t{number}" for number in range(40)]
    stage.store.submit_many([submission(task_id) for task_id in ids])
    for task_id in ids:
        redis.hset(stage.keys.task(task_id), mapping={f"x{number}": "" for number in range(1_000)})
    redis.xadd(stage.keys.history, {"task": "gone"})
    after: str | None = "0-0"
    numbers, unnamed = [], []
    while after is not None:
        redis.config_resetstat()
        leaf = Upkeep(stage.store).leaf_through(after)
        assert _calls(redis, "hvals") <= 10
        numbers.append(leaf.number)
        unnamed += leaf.unnamed.values()
        after = leaf.after
    assert (41, ["gone"]) == (sum(numbers), unnamed)


def test_a_new_task_does_not_wait_for_who_waits_for_its_lost_record(backend: Redis) -> None:
    """They would wait for each other for ever. Once the watchdog cancelled who waited, the id is free for it."""
    stage = scene(backend)
    stage.store.submit(submission("lost", delay=60_000))
    stage.store.submit(submission("waits", depends_on=("lost",)))
    backend.delete(stage.keys.task("lost"))
    with pytest.raises(CorruptRecord, match="dependents:lost: expected nobody who waits"):
        stage.store.submit(submission("lost", depends_on=("waits",)))
    assert 0 == backend.exists(stage.keys.task("lost"))
    stage.store.recheck("watchdog:w")
    assert State.CANCELLED == backend.hget(stage.keys.task("waits"), "state")
    assert State.CANCELLED == stage.store.submit(submission("lost", depends_on=("waits",))).state


def test_where_types_are_published_is_named_when_it_is_damaged(redis: Redis) -> None:
    """A worker that cannot start for it says which key, and who tells more."""
    stage = scene(redis)
    redis.set(stage.keys.types, "none")
    with pytest.raises(CorruptRecord, match=f"{stage.keys.types}: .*ghostless doctor"):
        stage.store.publish_types({"work": {}})
    redis.delete(stage.keys.types)

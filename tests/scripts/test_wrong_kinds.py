"""What stands in the place of an index, and is none: good tasks wait a sweep or a round for their index, no longer."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from audit import audit
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.errors import CorruptRecord
from ghostless.jobs.keys import Keys
from ghostless.jobs.messages import Answer, Finished
from ghostless.jobs.rq_keys import QUEUES
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Event, Reason, State
from redis import Redis
from scripts.seeding import (
    BY_PERSON,
    BY_WATCHDOG,
    ID,
    OTHER_TYPE,
    OWNER,
    PLACE,
    QUEUE,
    Scene,
    claimed,
    ending,
    finish,
    put,
    scene,
    step,
    submission,
    wish,
)
from scripts.test_full_redis import full

Name = Callable[[Keys], str]
Call = Callable[[Scene], object]


def _complete(stage: Scene) -> object:
    return finish(stage, Event.COMPLETE)


def _fail(stage: Scene) -> object:
    return finish(stage, Event.FAIL)


def _hand_back(stage: Scene) -> object:
    return finish(stage, Event.SUSPEND, Reason.SHUTDOWN)


def _hand_back_unknown(stage: Scene) -> object:
    return finish(stage, Event.SUSPEND, Reason.UNKNOWN_TYPE)


def _add_dependent(stage: Scene) -> None:
    stage.store.submit(submission("t2", depends_on=(ID,)))


ENDS: dict[str, tuple[Call, Name]] = {
    "its owner's": (_complete, lambda keys: keys.owned(OWNER)),
    "its state's": (_complete, lambda keys: keys.state(State.PROCESSING)),
    "its next state's": (_complete, lambda keys: keys.state(State.SUCCESS)),
    "deadlines": (_complete, lambda keys: keys.deadlines),
    "retention": (_complete, lambda keys: keys.retention),
    "settling": (_complete, lambda keys: keys.settling),
    "due": (_fail, lambda keys: keys.due),
    "its queue's": (_hand_back, lambda keys: keys.pending(QUEUE)),
    "the parked": (_hand_back_unknown, lambda keys: keys.parked(PLACE)),
    "the parked types": (_hand_back_unknown, lambda keys: keys.parked_types(QUEUE)),
}
"""Ends of an attempt, and an index that each writes to."""


def spoil(redis: Redis, name: str) -> None:
    """Let a key be a text."""
    redis.delete(name)
    redis.set(name, "no index")


@pytest.mark.parametrize("is_full", [False, True], ids=["", "full"])
@pytest.mark.parametrize("case", ENDS)
def test_an_end_waits_for_one_round_at_most(redis: Redis, case: str, is_full: bool) -> None:
    """It is refused whole, a watchdog makes room for the index, and then it is written; also at a full Redis."""
    end, name_in = ENDS[case]
    stage = scene(redis)
    name = name_in(stage.keys)
    put(stage, State.PROCESSING)
    if case == "settling":
        _add_dependent(stage)
    spoil(redis, name)
    with pytest.raises(CorruptRecord, match="expected (zset|set), got string") as refused:
        end(stage)
    assert name in refused.value.detail
    with full(redis) if is_full else nullcontext():
        Watchdog(stage.store).sweep_all()
        end(stage)
    assert "no index" == redis.get(stage.keys.set_aside(name))
    assert redis.ttl(stage.keys.set_aside(name)) > 0
    Watchdog(stage.store).sweep_all()
    assert [] == audit(redis, stage.keys, [ID])


def test_a_start_beside_an_owners_index_that_is_none_holds_up_its_queue_for_a_sweep(redis: Redis) -> None:
    """The duty that looks after the queue makes room for the index; the audit, which takes a round, is not needed."""
    stage = scene(redis)
    stage.store.submit_many([submission(), submission("t2", owner="")])
    spoil(redis, stage.keys.owned(OWNER))
    with pytest.raises(CorruptRecord, match="expected zset, got string"):
        claimed(stage.store)
    (problem,) = stage.store.requeue(BY_WATCHDOG, QUEUE).problems
    assert stage.keys.owned(OWNER) in problem
    assert "no index" == redis.get(stage.keys.set_aside(stage.keys.owned(OWNER)))
    assert ID == claimed(stage.store).held.task_id
    assert () == stage.store.requeue(BY_WATCHDOG, QUEUE).problems
    assert [] == audit(redis, stage.keys, [ID, "t2"])


def test_a_hint_for_workers_that_is_none_holds_up_nobody(redis: Redis) -> None:
    """A task comes back to its queue, and another one enters it: nobody is told, which costs a poll."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    spoil(redis, stage.keys.wake(QUEUE))
    _hand_back(stage)
    stage.store.submit(submission("t2"))
    assert [ID, "t2"] == stage.queue
    redis.delete(stage.keys.wake(QUEUE))
    assert [] == audit(redis, stage.keys, [ID, "t2"])


def test_a_worker_whose_last_claim_is_none_claims(redis: Redis) -> None:
    """It is written anew with the next task; a claim that is repeated is known by it again."""
    stage = scene(redis)
    stage.store.submit(submission())
    redis.hset(stage.keys.claim("w9"), "no", "text")
    held = claimed(stage.store, wish("w9", "cc")).held
    assert held == claimed(stage.store, wish("w9", "cc")).held
    assert f"cc {ID}" == redis.get(stage.keys.claim("w9"))
    assert [] == audit(redis, stage.keys, [ID])


@pytest.mark.parametrize("name_in", [case[1] for case in ENDS.values() if case[0] is not _hand_back_unknown])
def test_the_doctor_makes_room_at_once(redis: Redis, name_in: Name) -> None:
    """It tells of each index that is none, also of one in which no task must stand; the second time all is well."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    spoil(redis, name_in(stage.keys))
    told = [problem for problem in Doctor(stage.store).audit() if name_in(stage.keys) in problem.what]
    assert ("c", "repairable") in [(problem.rule, problem.outcome) for problem in told]
    assert {True} == {problem.is_solved for problem in Doctor(stage.store, BY_PERSON).audit()}
    assert [] == list(Doctor(stage.store).audit())
    _complete(stage)
    assert [] == audit(redis, stage.keys, [ID])


def test_nobody_need_stand_in_it(redis: Redis) -> None:
    """The index of an owner without tasks, and of a queue and type without any, is made room for as well."""
    stage = scene(redis)
    names = [stage.keys.owned("bob"), stage.keys.listed(f"{QUEUE}:{OTHER_TYPE}"), stage.keys.retention]
    for name in names:
        spoil(redis, name)
    assert {True} == {problem.is_solved for problem in Doctor(stage.store, BY_PERSON).audit()}
    assert 0 == redis.exists(*names)
    assert [] == list(Doctor(stage.store).audit())


def test_each_ends_for_itself_beside_an_index_that_is_none(redis: Redis) -> None:
    """Of two that end together one has an owner whose index is none: the other ends, and nothing new is begun."""
    stage = scene(redis)
    stage.store.submit_many([submission(), submission("t2", owner=""), submission("t3", owner="")])
    together = [claimed(stage.store, wish("w1", f"0{number}")) for number in range(2)]
    spoil(redis, stage.keys.owned(OWNER))
    finished = [Finished(one.held, ending(Event.COMPLETE)) for one in together]
    (refused, answer), reply = stage.store.finish_each(finished, "worker:w1", wish("w1", "09"))
    assert isinstance(refused, CorruptRecord)
    assert (Answer("moved", "t2", "SUCCESS", 1, answer.entry), None) == (answer, reply)  # type: ignore[union-attr]
    assert "t3" == claimed(stage.store, wish("w1", "09")).held.task_id


@pytest.mark.parametrize("waits", [True, False], ids=["with one that waits", "with none"])
def test_an_index_of_dependents_that_is_none(redis: Redis, waits: bool) -> None:
    """The audit makes it anew and repairs once, not with each round; the end of the task finds who waits."""
    stage = scene(redis)
    stage.store.submit(submission())
    if waits:
        _add_dependent(stage)
    spoil(redis, stage.keys.dependents(ID))
    for _ in range(3):
        redis.delete(stage.keys.patrol)
        step(stage, "patrol")
    assert ["t2"] * waits == redis.zrange(stage.keys.dependents(ID), 0, -1)
    assert "2" == redis.hget(stage.keys.task("t2" if waits else ID), "entries")
    held = claimed(stage.store, wish("w1", "01")).held
    stage.store.finish(held, ending(Event.COMPLETE), "worker:w1")
    assert [] == audit(redis, stage.keys, [ID, "t2"] if waits else [ID])


def test_who_cannot_enter_its_queue_is_not_repaired_with_each_look(redis: Redis) -> None:
    """What it waited for ended untold, and the list of its queue is none: it stays, and its history does not grow."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    _add_dependent(stage)
    redis.hdel(stage.keys.task(ID), "dependents")
    redis.delete(stage.keys.dependents(ID))
    _complete(stage)
    spoil(redis, stage.keys.rq_queue(QUEUE))
    before = redis.hget(stage.keys.task("t2"), "entries")
    for _ in range(3):
        redis.delete(stage.keys.patrol)
        assert stage.keys.rq_queue(QUEUE) in str(step(stage, "patrol").problems)
    assert before == redis.hget(stage.keys.task("t2"), "entries")
    redis.delete(stage.keys.rq_queue(QUEUE), stage.keys.patrol)
    step(stage, "patrol")
    assert State.PENDING == redis.hget(stage.keys.task("t2"), "state")


def test_a_value_that_is_none_is_told(redis: Redis) -> None:
    """The doctor and the audit name the params that no attempt can read; nobody can put them right."""
    stage = scene(redis)
    stage.store.submit(submission())
    redis.delete(stage.keys.params(ID))
    redis.hset(stage.keys.params(ID), "no", "text")
    (problem,) = Doctor(stage.store, BY_PERSON).audit()
    assert ("c", ID, "kept") == (problem.rule, problem.task_id, problem.outcome)
    assert f"{stage.keys.params(ID)}: expected string, got hash" in problem.what
    redis.delete(stage.keys.patrol)
    assert stage.keys.params(ID) in str(step(stage, "patrol").problems)


def test_the_doctor_tells_once_of_an_index(redis: Redis) -> None:
    """However many tasks were to stand in it, or must not."""
    stage = scene(redis)
    stage.store.submit_many([submission(f"t{number}") for number in range(10)])
    for name in (stage.keys.state(State.FAILED), stage.keys.listed_places, stage.keys.state(State.PENDING)):
        spoil(redis, name)
        told = [problem for problem in Doctor(stage.store).audit() if name in problem.what]
        assert {"-"} == {problem.task_id for problem in told}
        list(Doctor(stage.store, BY_PERSON).audit())


def test_the_watchdog_tells_of_the_names_of_listings(redis: Redis) -> None:
    """Also while nobody knows yet whether each task has its entry in the listings."""
    stage = scene(redis)
    stage.store.submit(submission())
    spoil(redis, stage.keys.listed_places)
    assert stage.keys.listed_places in str(step(stage, "patrol").problems)
    assert {PLACE} == redis.smembers(stage.keys.listed_places)


def test_the_doctor_tells_of_rqs_names_of_queues(redis: Redis) -> None:
    """While they are none every submit is refused, and nobody but a person can say what they are."""
    stage = scene(redis)
    spoil(redis, QUEUES)
    with pytest.raises(CorruptRecord, match=QUEUES):
        stage.store.submit(submission())
    (problem,) = Doctor(stage.store, BY_PERSON).audit()
    assert ("c", "kept") == (problem.rule, problem.outcome)
    assert QUEUES in problem.what

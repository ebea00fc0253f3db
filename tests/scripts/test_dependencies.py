"""Tasks that wait for tasks: what each end means for those that wait, at once, and what is left for later."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from audit import audit
from ghostless.jobs.messages import Swept
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.lua import BATCH
from ghostless.statemachine import Event, Reason, State
from helpers import heard
from redis import Redis
from redis_server import RedisServer
from scripts.seeding import (
    BY_PERSON,
    BY_POOL,
    ID,
    PATIENT,
    QUEUE,
    WORKER,
    Scene,
    claimed,
    finish,
    make_due,
    make_lost,
    make_outdated,
    put,
    scene,
    submission,
    wish,
)
from scripts.snapshot import difference, snapshot
from scripts.test_full_redis import full

NO_BUDGET = replace(PATIENT, max_retries=0, max_timeouts=0, max_losses=0)


def state_of(stage: Scene, task_id: str) -> str | None:
    """Return the state of a task."""
    return stage.redis.hget(stage.keys.task(task_id), "state")  # type: ignore[return-value]


def story(stage: Scene, task_id: str) -> list[tuple[str, str, str, str]]:
    """Return what happened to a task: event, actor, reason and message."""
    entries = [entry for _, entry in stage.redis.xrange(stage.keys.history) if entry["task"] == task_id]
    return [(entry["event"], entry["actor"], entry["reason"], entry["message"]) for entry in entries]


def wait_for(stage: Scene, task_id: str, *others: str, **changes: object) -> str:
    """Submit a task that depends on others; return the state it is in then."""
    return stage.store.submit(submission(task_id, depends_on=others, **changes)).state


# The causes by which a task ends, each from a state of its own


def _finish(event: Event, reason: Reason = Reason.EXCEPTION) -> Callable[[Scene], object]:
    return lambda stage: finish(stage, event, reason, retryable=False)


def _cancel(stage: Scene) -> None:
    stage.store.cancel(ID, BY_PERSON)


def _sweep(stage: Scene) -> None:
    make_lost(stage)
    assert 1 == stage.store.sweep("watchdog").moved


def _lose(stage: Scene) -> None:
    stage.store.lose(ID, stage.held.attempt, WORKER, BY_POOL, "it was killed", is_dead=True)


@dataclass(frozen=True)
class Cause:
    """Something that ends a task: the state before, what ends it, and how."""

    before: State
    end: Callable[[Scene], object]
    after: State

    def __str__(self) -> str:
        return f"{self.before}-{getattr(self.end, '__name__', '')}-{self.after}"


CAUSES = [
    Cause(State.PROCESSING, _finish(Event.COMPLETE), State.SUCCESS),
    Cause(State.PAUSING, _finish(Event.COMPLETE), State.SUCCESS),
    Cause(State.PROCESSING, _finish(Event.FAIL), State.FAILED),
    Cause(State.PAUSING, _finish(Event.FAIL), State.FAILED),
    Cause(State.PROCESSING, _finish(Event.TIMEOUT, Reason.DEADLINE), State.TIMEOUT_CANCELLED),
    Cause(State.PROCESSING, _sweep, State.TIMEOUT_CANCELLED),
    Cause(State.PROCESSING, _lose, State.TIMEOUT_CANCELLED),
    *(
        Cause(State.CANCELLING, _finish(event), State.CANCELLED)
        for event in (Event.COMPLETE, Event.FAIL, Event.TIMEOUT, Event.STOPPED, Event.SUSPEND)
    ),
    Cause(State.CANCELLING, _sweep, State.CANCELLED),
    Cause(State.CANCELLING, _lose, State.CANCELLED),
    *(
        Cause(state, _cancel, State.CANCELLED)
        for state in (State.SCHEDULED, State.BLOCKED, State.PENDING, State.RETRY_WAITING, State.PAUSED)
    ),
]
each_cause = pytest.mark.parametrize("cause", CAUSES, ids=str)


@each_cause
def test_every_end_is_told_in_the_same_script(backend: Redis, cause: Cause) -> None:
    """SUCCESS releases whom it was the last for, any other end cancels; the rest stays as it was (B44)."""
    stage = scene(backend)
    put(stage, cause.before, NO_BUDGET if cause.before is not State.RETRY_WAITING else PATIENT)
    stage.store.submit(submission("other", delay=1_000_000))
    assert {State.BLOCKED} == {
        wait_for(stage, "alone", ID),
        wait_for(stage, "both", ID, "other"),
        wait_for(stage, "later", ID, delay=1_000_000),
        wait_for(stage, "gone", ID),
        wait_for(stage, "elsewhere", "other"),
    }
    stage.store.cancel("gone", BY_PERSON)
    assert [] == audit(backend, stage.keys, [ID, "other", "alone", "both", "later", "gone", "elsewhere"])
    cause.end(stage)
    assert cause.after == state_of(stage, ID)
    is_good = cause.after is State.SUCCESS
    expected = {
        "alone": State.PENDING if is_good else State.CANCELLED,
        "both": State.BLOCKED if is_good else State.CANCELLED,
        "later": State.BLOCKED if is_good else State.CANCELLED,
        "gone": State.CANCELLED,
        "elsewhere": State.BLOCKED,
    }
    assert expected == {task_id: state_of(stage, task_id) for task_id in expected}
    event = "RELEASE" if is_good else "CANCEL"
    told = f"task {ID}, which it depends on, is {cause.after}"
    assert (event, f"dependency:{ID}", "dependency", told) == story(stage, "alone")[-1]
    assert not backend.exists(stage.keys.settling, stage.keys.dependents(ID), stage.keys.unmet("alone"))
    assert "dependents" not in stage.task
    assert [] == audit(backend, stage.keys, [ID, *expected])


@pytest.mark.parametrize("event", [Event.FAIL, Event.TIMEOUT, Event.SUSPEND])
def test_what_is_retried_or_resumed_is_no_end(backend: Redis, event: Event) -> None:
    """A failure that is retried, a timeout within its budget and a shutdown tell nobody anything."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    wait_for(stage, "t2", ID)
    finish(stage, event, Reason.DEADLINE if event is Event.TIMEOUT else Reason.EXCEPTION)
    assert State.BLOCKED == state_of(stage, "t2")
    assert [] == audit(backend, stage.keys, [ID, "t2"])


# Submitting


def test_unknown_dependencies_are_named_and_nothing_is_written(backend: Redis) -> None:
    """All that nobody knows are told at once, and the id stays free."""
    stage = scene(backend)
    put(stage, State.PENDING)
    before = snapshot(backend)
    answer = stage.store.submit(submission("t2", depends_on=("nobody", ID, "nothing"), idempotency_key="k"))
    assert ("unknown", ("nobody", "nothing")) == (answer.word, answer.unknown)
    assert {} == difference(before, snapshot(backend))


@pytest.mark.parametrize("is_purged", [False, True])
@pytest.mark.parametrize("state", [State.SUCCESS, State.FAILED, State.TIMEOUT_CANCELLED, State.CANCELLED])
def test_dependencies_that_ended_before(backend: Redis, state: State, is_purged: bool) -> None:
    """SUCCESS counts as met, also by a tombstone; after any other end the task is accepted and cancelled at once."""
    stage = scene(backend)
    put(stage, state)
    if is_purged:
        make_outdated(stage)
        stage.store.purge()
    states = [wait_for(stage, "t2", ID), wait_for(stage, "t3", ID, delay=9_000)]
    if state is State.SUCCESS:
        assert [State.PENDING, State.SCHEDULED] == states
        assert ["SUBMIT"] == [event for event, *_ in story(stage, "t2")]
    else:
        assert [State.CANCELLED] * 2 == states
        told = ("CANCEL", f"dependency:{ID}", "dependency", f"task {ID}, which it depends on, is {state}")
        assert told == story(stage, "t2")[-1]
    again = stage.store.submit(submission("t2", depends_on=(ID,)))
    assert ("already", states[0]) == (again.word, again.state)
    assert [] == audit(backend, stage.keys, [ID, "t2", "t3"])


def test_some_met_and_some_not(backend: Redis) -> None:
    """Only what has not ended yet is waited for; the ids of all stay with the task."""
    stage = scene(backend)
    put(stage, State.SUCCESS)
    stage.store.submit(submission("other"))
    assert State.BLOCKED == wait_for(stage, "t2", ID, "other")
    assert {"other"} == backend.smembers(stage.keys.unmet("t2"))
    assert "2" == backend.hget(stage.keys.task("t2"), "dependencies")
    assert f'["{ID}", "other"]' == backend.get(stage.keys.depends_on("t2"))


# Time


def test_a_task_with_a_time_waits_for_both(backend: Redis) -> None:
    """Its tasks first, then its time: BLOCKED until the watchdog releases it when it is due."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    wait_for(stage, "t2", ID, delay=1_000_000)
    finish(stage, Event.COMPLETE)
    assert State.BLOCKED == state_of(stage, "t2")
    assert [] == audit(backend, stage.keys, [ID, "t2"])
    assert 0 == stage.store.recheck("watchdog").moved
    backend.zadd(stage.keys.due, {"t2": 0})
    assert 1 == stage.store.release("watchdog").moved
    assert (State.PENDING, None) == (state_of(stage, "t2"), backend.hget(stage.keys.task("t2"), "due_at"))
    assert [] == audit(backend, stage.keys, [ID, "t2"])


def test_a_time_that_comes_first_is_forgotten(backend: Redis) -> None:
    """Its time first, then its tasks: from then on it waits for them alone."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    wait_for(stage, "t2", ID, delay=1_000_000)
    backend.zadd(stage.keys.due, {"t2": 0})
    assert 0 == stage.store.release("watchdog").moved
    assert [] == audit(backend, stage.keys, [ID, "t2"])
    finish(stage, Event.COMPLETE)
    assert State.PENDING == state_of(stage, "t2")
    assert [] == audit(backend, stage.keys, [ID, "t2"])


# Shapes


def test_a_chain_ends_with_its_head(backend: Redis) -> None:
    """The cancelled dependent's own dependents follow in the same script."""
    stage = scene(backend)
    put(stage, State.PROCESSING, NO_BUDGET)
    ids = [ID, *(f"c{number:02}" for number in range(20))]
    for before, task_id in zip(ids, ids[1:], strict=False):
        wait_for(stage, task_id, before)
    finish(stage, Event.FAIL)
    assert {State.CANCELLED} == {state_of(stage, task_id) for task_id in ids[1:]}
    assert "task c18, which it depends on, is CANCELLED" == story(stage, "c19")[-1][3]
    assert [] == audit(backend, stage.keys, ids)


def _all_of(stage: Scene, ids: list[str], most: int) -> list[int]:
    """Let the watchdog settle what is left; return how many were told in each call."""
    told = []
    while stage.redis.exists(stage.keys.settling):
        told.append(stage.store.settle().looked_at)
        assert [] == audit(stage.redis, stage.keys, [ID, *ids])
        assert len(told) < most
    return told


@pytest.mark.parametrize(("event", "state"), [(Event.COMPLETE, State.PENDING), (Event.FAIL, State.CANCELLED)])
def test_a_wide_fan_is_told_in_bounded_calls(redis: Redis, event: Event, state: State) -> None:
    """The ending script tells a batch, the oldest first; the watchdog the others, a batch a call."""
    stage = scene(redis)
    put(stage, State.PROCESSING, NO_BUDGET)
    ids = [f"d{number:03}" for number in range(2 * BATCH + 10)]
    for task_id in ids:
        wait_for(stage, task_id, ID)
    finish(stage, event)
    assert {state: BATCH, State.BLOCKED: BATCH + 10} == Counter(state_of(stage, task_id) for task_id in ids)
    assert [] == audit(redis, stage.keys, [ID, *ids])
    assert [BATCH, 10] == _all_of(stage, ids, 5)
    assert {state} == {state_of(stage, task_id) for task_id in ids}
    if event is Event.COMPLETE:
        order = redis.lrange(stage.keys.rq_queue(QUEUE), 0, -1)
        assert order[:BATCH] == sorted(order[:BATCH])
        assert set(order) == set(ids)


def test_a_deep_chain_is_told_in_bounded_calls(redis: Redis) -> None:
    """A chain longer than two batches needs three calls, in each of which a batch follow each other."""
    stage = scene(redis)
    put(stage, State.PROCESSING, NO_BUDGET)
    ids = [f"d{number:03}" for number in range(2 * BATCH + 10)]
    for before, task_id in zip([ID, *ids], ids, strict=False):
        wait_for(stage, task_id, before)
    finish(stage, Event.FAIL)
    assert BATCH == sum(state_of(stage, task_id) == State.CANCELLED for task_id in ids)
    assert [BATCH, 10] == _all_of(stage, ids, 5)
    assert {State.CANCELLED} == {state_of(stage, task_id) for task_id in ids}


def test_several_watchdogs_settle_at_once(redis: Redis, redis_server: RedisServer) -> None:
    """Four watchdogs drain one fan: each dependent is released once."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    ids = [f"d{number:03}" for number in range(400)]
    stage.store.submit_many([submission(task_id, depends_on=(ID,)) for task_id in ids])
    finish(stage, Event.COMPLETE)
    stores = [Store(redis, Settings()) for _ in range(4)]
    threads = [threading.Thread(target=lambda store=store: [store.settle() for _ in range(4)]) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    releases = Counter(entry["task"] for _, entry in redis.xrange(stage.keys.history) if entry["event"] == "RELEASE")
    assert dict.fromkeys(ids, 1) == releases
    assert [] == audit(redis, stage.keys, [ID, *ids])


def test_many_tasks_in_one(redis: Redis) -> None:
    """A task that depends on fifty starts after the last of them, whatever the order of their ends."""
    stage = scene(redis)
    ids = [f"d{number:02}" for number in range(50)]
    stage.store.submit_many([submission(task_id) for task_id in ids])
    assert State.BLOCKED == wait_for(stage, "last", *ids)
    for number in range(50):
        assert State.BLOCKED == state_of(stage, "last")
        stage.held = claimed(stage.store, wish("w1", f"{number:04x}")).held
        finish(stage, Event.COMPLETE)
    assert State.PENDING == state_of(stage, "last")
    assert [] == audit(redis, stage.keys, [*ids, "last"])


def test_what_the_dependencies_returned_comes_with_the_claim(backend: Redis) -> None:
    """The results are there by id, in the order of the submit; more than 1 MiB are told by their size."""
    stage = scene(backend)
    for number, task_id in enumerate(("b", "a")):
        stage.store.submit(submission(task_id))
        stage.held = claimed(stage.store, wish("w1", f"a{number}")).held
        finish(stage, Event.COMPLETE)
    wait_for(stage, "t2", "b", "a")
    first = claimed(stage.store, wish("w1", "bb"))
    again = claimed(stage.store, wish("w1", "bb"))
    assert [("b", {"sum": 3}), ("a", {"sum": 3})] == list(first.results.items()) == list(again.results.items())
    wait_for(stage, "t3", "b", "a")
    backend.set(stage.keys.result("b"), f'"{"x" * 2**20}"')
    assert 2**20 + 2 + len('{"sum":3}') == claimed(stage.store, wish("w2", "cc")).results
    wait_for(stage, "t4", "b", "a")
    backend.delete(stage.keys.result("b"))
    assert {"a": {"sum": 3}} == claimed(stage.store, wish("w3", "dd")).results
    stage.store.submit(submission())
    assert {} == claimed(stage.store, wish("w4", "ee")).results


# An operator's retry


def test_who_was_cancelled_stays_so_when_the_dependency_is_retried(backend: Redis) -> None:
    """A retry of the dependency does not bring its dependents back."""
    stage = scene(backend)
    put(stage, State.PROCESSING, NO_BUDGET)
    wait_for(stage, "t2", ID)
    finish(stage, Event.FAIL)
    stage.store.retry(ID, "tester")
    assert State.CANCELLED == state_of(stage, "t2")
    assert [] == audit(backend, stage.keys, [ID, "t2"])


def test_who_was_not_told_yet_waits_for_the_retry(redis: Redis) -> None:
    """Those that did not hear of the failure before the operator's retry wait for the new life's end."""
    stage = scene(redis)
    put(stage, State.PROCESSING, NO_BUDGET)
    ids = [f"d{number:03}" for number in range(BATCH + 20)]
    stage.store.submit_many([submission(task_id, depends_on=(ID,)) for task_id in ids])
    finish(stage, Event.FAIL)
    stage.store.retry(ID, "tester")
    assert Swept(0, 0, ()) == stage.store.settle()
    assert [] == audit(redis, stage.keys, [ID, *ids])
    make_due(stage)
    stage.store.release("watchdog")
    stage.held = claimed(stage.store, wish("w1", "ff")).held
    finish(stage, Event.COMPLETE)
    assert {State.CANCELLED: BATCH, State.PENDING: 20} == Counter(state_of(stage, task_id) for task_id in ids)
    assert [] == audit(redis, stage.keys, [ID, *ids])


# Purge


def test_a_purge_tells_those_that_still_wait(redis: Redis) -> None:
    """A task with dependents that were not told is kept until all were, and goes then."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    ids = [f"d{number:03}" for number in range(2 * BATCH + 10)]
    stage.store.submit_many([submission(task_id, depends_on=(ID,)) for task_id in ids])
    finish(stage, Event.COMPLETE)
    make_outdated(stage)
    assert [0, 1] == [stage.store.purge().moved for _ in range(2)]
    assert {State.PENDING} == {state_of(stage, task_id) for task_id in ids}
    assert [] == audit(redis, stage.keys, [ID, *ids])


# Damage


def _forget(stage: Scene) -> None:
    stage.redis.hdel(stage.keys.task(ID), "dependents")
    stage.redis.delete(stage.keys.dependents(ID))


@pytest.mark.parametrize("state", [State.SUCCESS, State.FAILED])
def test_an_end_that_nobody_told_is_found(backend: Redis, state: State) -> None:
    """While the index of dependents was lost its task ended: the watchdog's look at BLOCKED tasks finds that."""
    stage = scene(backend)
    put(stage, State.PROCESSING, NO_BUDGET)
    wait_for(stage, "t2", ID)
    _forget(stage)
    finish(stage, Event.COMPLETE if state is State.SUCCESS else Event.FAIL)
    assert State.BLOCKED == state_of(stage, "t2")
    assert Swept(1, 1, ()) == stage.store.recheck("watchdog:a")
    event = "RELEASE" if state is State.SUCCESS else "CANCEL"
    assert (event, "watchdog:a", "dependency", f"task {ID}, which it depends on, is {state}") == story(stage, "t2")[-1]
    assert [] == audit(backend, stage.keys, [ID, "t2"])


@pytest.mark.parametrize(
    "lose",
    [
        lambda s: s.redis.delete(s.keys.dependents(ID)),
        lambda s: s.redis.hdel(s.keys.task(ID), "dependents"),
        lambda s: (s.redis.zrem(s.keys.dependents(ID), "t2"), s.redis.zadd(s.keys.dependents(ID), {"t3": 1})),
    ],
)
def test_a_lost_place_in_the_index_is_put_right(backend: Redis, lose: Callable[[Scene], object]) -> None:
    """The look at BLOCKED tasks adds what was lost, before the dependency ends."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    wait_for(stage, "t2", ID)
    wait_for(stage, "t3", ID)
    lose(stage)
    assert [] != audit(backend, stage.keys, [ID, "t2", "t3"])
    assert Swept(0, 0, ()) == stage.store.recheck("watchdog")
    backend.zadd(stage.keys.dependents(ID), {"t3": float(backend.hget(stage.keys.task("t3"), "entered_at") or 0)})
    assert [] == audit(backend, stage.keys, [ID, "t2", "t3"])
    finish(stage, Event.COMPLETE)
    assert [State.PENDING] * 2 == [state_of(stage, "t2"), state_of(stage, "t3")]


@pytest.mark.parametrize("word", ["SUCCESS", "FAILED", None])
def test_a_dependency_that_is_gone(backend: Redis, word: str | None) -> None:
    """Without a record its tombstone tells how it ended; without that the dependents are cancelled, saying so."""
    stage = scene(backend)
    put(stage, State.PENDING)
    wait_for(stage, "t2", ID)
    backend.delete(stage.keys.task(ID), stage.keys.dependents(ID))
    if word:
        backend.set(stage.keys.tombstone(ID), f"{word} 1")
    assert 1 == stage.store.recheck("watchdog").moved
    assert (State.PENDING if word == "SUCCESS" else State.CANCELLED) == state_of(stage, "t2")
    assert f"task {ID}, which it depends on, is {word or 'gone'}" == story(stage, "t2")[-1][3]
    assert not backend.exists(stage.keys.unmet("t2"))


DAMAGES: dict[str, Callable[[Scene], object]] = {
    "its record is a string": lambda s: (s.redis.delete(s.keys.task("bad")), s.redis.set(s.keys.task("bad"), "x")),
    "its record is gone": lambda s: s.redis.delete(s.keys.task("bad")),
    "its policy": lambda s: s.redis.hset(s.keys.task("bad"), "policy", "x"),
    "its attempt": lambda s: s.redis.hset(s.keys.task("bad"), "attempt", "x"),
    "what it waits for": lambda s: (s.redis.delete(s.keys.unmet("bad")), s.redis.rpush(s.keys.unmet("bad"), "x")),
}


@pytest.mark.parametrize("event", [Event.COMPLETE, Event.FAIL])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_dependent_keeps_nobody_from_ending(backend: Redis, damage: str, event: Event) -> None:
    """Its dependency ends whole, the others hear of it, and the watchdog sets the damaged one aside and tells it."""
    stage = scene(backend)
    put(stage, State.PROCESSING, NO_BUDGET)
    wait_for(stage, "bad", ID)
    wait_for(stage, "good", ID)
    DAMAGES[damage](stage)
    answer, _ = finish(stage, event)
    assert ("moved", "SUCCESS" if event is Event.COMPLETE else "FAILED") == (answer.word, answer.state)
    assert (State.PENDING if event is Event.COMPLETE else State.CANCELLED) == state_of(stage, "good")
    assert backend.exists(stage.keys.result(ID)) == (event is Event.COMPLETE)
    swept = stage.store.settle()
    assert (1, 0, 1) == (swept.looked_at, swept.moved, len(swept.problems))
    assert [f"{stage.keys.dependents(ID)} bad"] == backend.hkeys(stage.keys.quarantine)
    assert not backend.exists(stage.keys.settling, stage.keys.dependents(ID))
    assert Swept(0, 0, ()) == stage.store.settle()
    told = audit(backend, stage.keys, [ID, "good"], quarantined=1)
    assert [] == [line for line in told if f" {ID} " in line or "good" in line]


def test_a_damaged_index_of_dependents_keeps_nobody_waiting(backend: Redis) -> None:
    """An index of another type is set aside, and told; the look at BLOCKED tasks finds who stood in it."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    wait_for(stage, "t2", ID)
    backend.delete(stage.keys.dependents(ID))
    backend.set(stage.keys.dependents(ID), "x")
    assert "moved" == finish(stage, Event.COMPLETE)[0].word
    swept = stage.store.settle()
    assert stage.keys.dependents(ID) in swept.problems[0]
    assert not backend.exists(stage.keys.settling)
    swept = stage.store.recheck("watchdog")
    assert 1 == swept.moved
    assert stage.keys.dependents(ID) in swept.problems[0]
    assert "x" == backend.get(stage.keys.set_aside(stage.keys.dependents(ID)))
    assert State.PENDING == state_of(stage, "t2")


def test_one_that_cannot_be_moved_now_is_moved_later(backend: Redis) -> None:
    """A queue of a wrong type keeps its task from its release; once it is right, the look at BLOCKED ones does it."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    wait_for(stage, "t2", ID, queue="q2")
    backend.set(stage.keys.rq_queue("q2"), "x")
    assert "moved" == finish(stage, Event.COMPLETE)[0].word
    assert stage.keys.rq_queue("q2") in stage.store.settle().problems[0]
    assert stage.keys.rq_queue("q2") in stage.store.recheck("watchdog").problems[0]
    backend.delete(stage.keys.rq_queue("q2"))
    assert 1 == stage.store.recheck("watchdog").moved
    assert State.PENDING == state_of(stage, "t2")
    assert [] == audit(backend, stage.keys, [ID, "t2"], quarantined=1)


def test_the_look_at_blocked_tasks_goes_on_where_it_was(redis: Redis) -> None:
    """A page a call, whose size counts what the tasks wait for; all are looked at in one round, and then anew."""
    stage = scene(redis)
    stage.store.submit(submission(delay=1_000_000))
    ids = [f"d{number:03}" for number in range(2 * BATCH + 10)]
    stage.store.submit_many([submission(task_id, depends_on=(ID,)) for task_id in ids])
    redis.delete(stage.keys.task(ID), stage.keys.dependents(ID))
    assert [BATCH, BATCH, 10, 0] == [stage.store.recheck("watchdog").moved for _ in range(4)]
    stage.start_over()
    others = [f"o{number:02}" for number in range(BATCH // 2 + 5)]
    stage.store.submit_many([submission(task_id, delay=1_000_000) for task_id in others])
    stage.store.submit_many([submission(task_id, depends_on=tuple(others)) for task_id in ids[:5]])
    cursors = []
    for _ in range(4):
        stage.store.recheck("watchdog")
        cursors.append(redis.get(stage.keys.blocked_cursor))
    assert ["2", "4", None, "2"] == cursors


def test_a_look_at_nothing_costs_little(redis: Redis) -> None:
    """Without a BLOCKED task and without an end to tell, the two duties are a few commands each."""
    stage = scene(redis)
    stage.store.submit(submission())
    redis.config_resetstat()
    stage.store.settle()
    stage.store.recheck("watchdog")
    calls = sum(row["calls"] for name, row in redis.info("commandstats").items() if "config" not in name)
    assert calls <= 16


# Cost, repeats, a full Redis


def test_tasks_without_dependencies_pay_nothing(redis: Redis) -> None:
    """Submit, claim and end of a task of its own touch no key of dependencies and store no field of them."""
    stage = scene(redis)

    def live() -> None:
        stage.store.submit(submission())
        stage.held = claimed(stage.store).held
        finish(stage, Event.COMPLETE)

    seen = [told["command"] for told in heard(redis, live) if told["client_type"] == "lua"]
    names = ("unmet:", "dependents:", "depends_on:", "settling")
    assert [] == [command for command in seen if any(stage.keys.prefix + name in command for name in names)]
    assert {"dependencies", "dependents"}.isdisjoint(stage.task)


def test_an_end_that_is_sent_twice_tells_once(backend: Redis) -> None:
    """The very same call again leaves the same database."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    wait_for(stage, "t2", ID)
    wait_for(stage, "t3", ID)
    finish(stage, Event.COMPLETE)
    before = snapshot(backend)
    assert "already" == stage.store.send_again()[0][0]
    assert {} == difference(before, snapshot(backend))


@pytest.mark.parametrize("event", [Event.COMPLETE, Event.FAIL])
def test_ends_are_told_at_a_full_redis(redis: Redis, event: Event) -> None:
    """Running work ends, its dependents hear of it, and what is left is drained, all over the memory limit."""
    stage = scene(redis)
    put(stage, State.PROCESSING, NO_BUDGET)
    ids = [f"d{number:03}" for number in range(BATCH + 20)]
    stage.store.submit_many([submission(task_id, depends_on=(ID,)) for task_id in ids])
    with full(redis):
        assert "moved" == finish(stage, event)[0].word
        assert 20 == redis.zcard(stage.keys.dependents(ID))
        assert 20 == stage.store.settle().moved
        stage.store.recheck("watchdog")
    assert {State.PENDING if event is Event.COMPLETE else State.CANCELLED} == {state_of(stage, one) for one in ids}
    assert [] == audit(redis, stage.keys, [ID, *ids])

"""Tasks that are started together and ended together: which ones, each for itself, and what a loss of them costs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from audit import audit
from ghostless.jobs.batch import MOST
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.messages import Answer, Claim, Claimed, ClaimReply, Ending, Finished
from ghostless.jobs.settle import given_back
from ghostless.statemachine import Event, Policy, Reason, State
from redis import Redis
from scripts.seeding import (
    BY_POOL,
    BY_WATCHDOG,
    BY_WORKER,
    CLAIM,
    DEPENDENCY,
    OTHER_TYPE,
    QUEUE,
    TYPE,
    WORKER,
    Scene,
    ending,
    scene,
    submission,
)
from scripts.test_full_redis import full

SWIFT = Policy(backoff_base=1, backoff_cap=1, max_losses=1)
DONE = ending(Event.COMPLETE)


def wish(token: str = "aa11", most: int = 8) -> Claim:
    """Return a claim of so many tasks at once."""
    return replace(CLAIM, token=token, types=(TYPE, OTHER_TYPE), together=((OTHER_TYPE, 2), (TYPE, most)))


def fill(stage: Scene, *numbers: int) -> None:
    """Submit tasks t1, t2 and so on."""
    stage.store.submit_many([submission(f"t{number}", SWIFT) for number in numbers])


def members(reply: ClaimReply | None) -> list[Claimed]:
    """Return all that a claim started."""
    assert isinstance(reply, Claimed), reply
    return [reply, *reply.followers]


def ids(reply: ClaimReply | None) -> list[str]:
    """Return their ids, in order."""
    return [claimed.held.task_id for claimed in members(reply)]


def started(stage: Scene, *numbers: int) -> list[Claimed]:
    """Submit tasks and start them together."""
    fill(stage, *numbers)
    return members(stage.store.claim(wish()))


def finish(stage: Scene, batch: Sequence[Claimed], claim: Claim | None = None, end: Ending = DONE):
    """End attempts together; return the words of the answers, and what was claimed."""
    finished = [Finished(claimed.held, end, 0.5) for claimed in batch]
    answers, reply = stage.store.finish_each(finished, BY_WORKER, claim)
    return [answer.word if isinstance(answer, Answer) else "damaged" for answer in answers], reply


def fields(stage: Scene, task_id: str, *names: str) -> list[str | None]:
    """Return fields of a task."""
    return stage.redis.hmget(stage.keys.task(task_id), names)  # type: ignore[return-value]


def events(stage: Scene, task_id: str) -> list[str]:
    """Return the events of a task's history."""
    return [entry["event"] for _, entry in stage.redis.xrange(stage.keys.history) if entry["task"] == task_id]


def test_the_first_of_a_queue_are_started_in_their_order(backend: Redis) -> None:
    """Under one token, each with its START and params; no more than the worker wants of the type."""
    stage = scene(backend)
    fill(stage, *range(6))
    batch = members(stage.store.claim(wish(most=4)))
    assert [f"t{number}" for number in range(4)] == [claimed.held.task_id for claimed in batch]
    assert {("aa11", 1)} == {(claimed.held.token, claimed.held.attempt) for claimed in batch}
    assert [{"a": 1}] * 4 == [claimed.params for claimed in batch]
    assert ["SUBMIT", "START"] == events(stage, "t3")
    assert ["t4", "t5"] == stage.queue
    assert [] == audit(backend, stage.keys, [f"t{number}" for number in range(6)])


def test_one_alone_is_no_batch(backend: Redis) -> None:
    """Nor is one of a type of which the worker wants one at a time: a loss of it counts."""
    stage = scene(backend)
    fill(stage, 1)
    assert ["t1"] == ids(stage.store.claim(wish()))
    fill(stage, 2, 3)
    assert ["t2"] == ids(stage.store.claim(replace(wish("bb22"), together=())))
    assert [[None], [None]] == [fields(stage, task_id, "batched") for task_id in ("t1", "t2")]


def _retried(stage: Scene) -> None:
    fill(stage, 2)
    claimed = members(stage.store.claim(replace(wish("dd44"), together=())))
    stage.store.finish_each([Finished(one.held, end) for one, end in given_back(claimed)], BY_WORKER)


def _plain(stage: Scene) -> None:
    stage.redis.rpush(stage.keys.rq_queue(QUEUE), "plain")
    stage.redis.hset(stage.keys.rq_job("plain"), "origin", QUEUE)


def _dependent(stage: Scene) -> None:
    stage.store.submit(submission(DEPENDENCY, queue="another"))
    stage.store.submit(submission("t2", SWIFT, depends_on=(DEPENDENCY,)))
    first = stage.store.claim(replace(CLAIM, queues=("another",), token="dd44"))
    assert isinstance(first, Claimed)
    stage.store.finish(first.held, DONE, BY_WORKER)


def _damaged(stage: Scene) -> None:
    fill(stage, 2)
    stage.redis.hset(stage.keys.task("t2"), "attempt", "many")


def _ticket_twice(stage: Scene) -> None:
    stage.redis.rpush(stage.keys.rq_queue(QUEUE), "t1")


BARRIERS: dict[str, Callable[[Scene], object]] = {
    "of another type": lambda s: s.store.submit(submission("t2", SWIFT, type=OTHER_TYPE)),
    "a plain job": _plain,
    "with dependencies": _dependent,
    "with secrets": lambda s: s.store.submit(submission("t2", SWIFT, secrets_json='{"a":2}')),
    "not to be run again": lambda s: s.store.submit(submission("t2", replace(SWIFT, max_losses=0))),
    "with much to say": lambda s: s.store.submit(submission("t2", SWIFT, params_json=f'{{"a":"{"x" * 70_000}"}}')),
    "damaged": _damaged,
    "the first once more": _ticket_twice,
    "gone": lambda s: s.redis.rpush(s.keys.rq_queue(QUEUE), "gone"),
}


@pytest.mark.parametrize("barrier", BARRIERS.values(), ids=BARRIERS.keys())
def test_what_needs_a_second_look_ends_the_batch(redis: Redis, barrier: Callable[[Scene], object]) -> None:
    """It and what is behind it stay where they are, to be claimed as ever."""
    stage = scene(redis)
    fill(stage, 0, 1)
    barrier(stage)
    fill(stage, 3)
    before = stage.queue
    assert ["t0", "t1"] == ids(stage.store.claim(wish()))
    assert before[2:] == stage.queue


def test_a_further_attempt_runs_alone(redis: Redis) -> None:
    """Neither with others behind it, nor behind others: something befell it."""
    stage = scene(redis)
    _retried(stage)
    fill(stage, 3)
    assert ["t2"] == ids(stage.store.claim(wish()))
    assert ["t3"] == ids(stage.store.claim(wish("bb22")))


def test_a_lost_reply_is_answered_with_what_still_runs(redis: Redis) -> None:
    """The same tasks in the same order, nothing started anew; what was taken away meanwhile is left out."""
    stage = scene(redis)
    batch = started(stage, 1, 2, 3)
    stage.store.cancel("t3", "tester")
    assert ["t1", "t2", "t3"] == ids(stage.store.claim(wish()))
    stage.store.lose("t1", 1, WORKER, BY_POOL, "gone", is_dead=True)
    again = members(stage.store.claim(wish()))
    assert batch[1].held == again[0].held
    assert ["t2", "t3"] == [claimed.held.task_id for claimed in again]
    assert ["SUBMIT", "START"] == events(stage, "t2")
    assert [] == audit(redis, stage.keys, ["t1", "t2", "t3"])


def test_each_ends_for_itself(redis: Redis) -> None:
    """One that was taken away, one that is damaged and one that is gone keep none of the others from their end.

    Only the next claim is for another call then.
    """
    stage = scene(redis)
    batch = started(stage, *range(6))
    fill(stage, 8, 9)
    stage.store.lose("t1", 1, WORKER, BY_POOL, "gone", is_dead=True)
    redis.hset(stage.keys.task("t2"), "attempt", "many")
    stage.store.cancel("t4", "tester")
    gone = replace(batch[3], held=replace(batch[3].held, task_id="t7"))
    words, reply = finish(stage, [*batch[:4], gone, *batch[4:]], wish("bb22"))
    assert ["moved", "stale", "damaged", "moved", "missing", "moved", "moved"] == words
    assert reply is None
    assert ["t8", "t9"] == ids(stage.store.claim(wish("bb22")))
    assert [["SUCCESS"], ["SUCCESS"]] == [fields(stage, task_id, "state") for task_id in ("t0", "t5")]


def test_ending_them_again_changes_nothing(redis: Redis) -> None:
    """After a lost reply each is ended already, and the claim is answered with the same tasks."""
    stage = scene(redis)
    batch = started(stage, 1, 2)
    fill(stage, 3, 4, 5)
    words, reply = finish(stage, batch, wish("bb22", most=2))
    assert (["moved", "moved"], ["t3", "t4"]) == (words, ids(reply))
    words, reply = finish(stage, batch, wish("bb22", most=2))
    assert (["already", "already"], ["t3", "t4"]) == (words, ids(reply))
    assert ["SUBMIT", "START", "COMPLETE"] == events(stage, "t1")
    assert [] == audit(redis, stage.keys, ["t1", "t5"], effects={"t1": [1]})


def test_what_was_not_begun_comes_back_in_its_order(redis: Redis) -> None:
    """To the head of its queue, for no budget, with words for it; whatever a person asked of it meanwhile is done."""
    stage = scene(redis)
    batch = started(stage, *range(6))
    fill(stage, 8)
    stage.store.pause("t2", "tester")
    stage.store.cancel("t3", "tester")
    back = given_back(batch[1:])
    stage.store.finish_each([Finished(one.held, end) for one, end in back], BY_WORKER)
    assert ["t1", "t4", "t5", "t8"] == stage.queue
    assert ["PAUSED", "CANCELLED"] == [*fields(stage, "t2", "state"), *fields(stage, "t3", "state")]
    assert [None, None, None, "1"] == fields(stage, "t1", "failures", "timeouts", "losses", "attempt")
    assert ["SUBMIT", "START", "SUSPEND", "RESUME"] == events(stage, "t1")
    messages = [entry["message"] for _, entry in redis.xrange(stage.keys.history) if entry["event"] == Event.SUSPEND]
    assert {"given back, not begun"} == set(messages)
    assert [] == audit(redis, stage.keys, [f"t{number}" for number in range(6)])


@pytest.mark.parametrize("by_watchdog", [True, False])
def test_a_loss_of_one_of_a_batch_costs_it_nothing(backend: Redis, by_watchdog: bool) -> None:
    """Nobody knows which one ended the worker, so no budget is used; the next attempt runs alone, and counts."""
    stage = scene(backend)
    started(stage, 1, 2, 3)
    for task_id in ("t1", "t2", "t3"):
        if by_watchdog:
            _let_the_lease_end(stage, task_id)
        else:
            stage.store.lose(task_id, 1, WORKER, BY_POOL, "gone", is_dead=True)
    if by_watchdog:
        stage.store.sweep(BY_WATCHDOG, {})
    assert [["RETRY_WAITING", None, None]] * 3 == [
        fields(stage, task_id, "state", "losses", "batched") for task_id in ("t1", "t2", "t3")
    ]
    assert "uses no budget" in [entry["message"] for _, entry in backend.xrange(stage.keys.history)][-1]
    assert [] == audit(backend, stage.keys, ["t1", "t2", "t3"])


def _let_the_lease_end(stage: Scene, task_id: str) -> None:
    now = stage.now()
    stage.redis.delete(stage.keys.heartbeat(task_id))
    stage.redis.zadd(stage.keys.deadlines, {task_id: 0})
    stage.redis.hset(stage.keys.watchdog, mapping={"swept_at": now, "judge_from": now - 1})


def test_poison_uses_up_its_own_budget_and_no_other(redis: Redis) -> None:
    """A task that ends every worker is given up after its losses alone; those that ran beside it once lost nothing."""
    stage = scene(redis)
    started(stage, 1, 2, 3)
    for task_id in ("t1", "t2", "t3"):
        stage.store.lose(task_id, 1, WORKER, BY_POOL, "gone", is_dead=True)
    for number in range(20):
        for task_id in ("t1", "t2", "t3"):
            redis.zadd(stage.keys.due, {task_id: 0}, xx=True)
        stage.store.release(BY_WATCHDOG)
        reply = stage.store.claim(wish(f"{number:04x}"))
        if not isinstance(reply, Claimed):
            break
        assert () == reply.followers
        if reply.held.task_id == "t2":
            stage.store.lose("t2", reply.held.attempt, WORKER, BY_POOL, "gone", is_dead=True)
        else:
            stage.store.finish(reply.held, DONE, BY_WORKER)
    assert ["TIMEOUT_CANCELLED", "2", "3"] == fields(stage, "t2", "state", "losses", "attempt")
    assert [["SUCCESS", None]] * 2 == [fields(stage, task_id, "state", "losses") for task_id in ("t1", "t3")]
    assert [] == audit(redis, stage.keys, ["t1", "t2", "t3"])


def test_a_crash_that_its_worker_saw_counts(redis: Redis) -> None:
    """It knows which task ran: only a loss of all of them is nobody's."""
    stage = scene(redis)
    batch = started(stage, 1, 2)
    finish(stage, batch[:1], end=ending(Event.FAIL, Reason.CRASHED))
    assert ["RETRY_WAITING", "1"] == fields(stage, "t1", "state", "losses")


def test_they_end_at_a_full_redis(redis: Redis) -> None:
    """All of them, and the next are started, as nothing is written before something is removed."""
    stage = scene(redis)
    batch = started(stage, 1, 2, 3)
    fill(stage, 4, 5)
    with full(redis):
        words, reply = finish(stage, batch, wish("bb22"))
    assert (["moved"] * 3, ["t4", "t5"]) == (words, ids(reply))
    assert [] == audit(redis, stage.keys, [f"t{number}" for number in range(1, 6)])


def test_the_doctor_finds_a_mark_that_was_left(redis: Redis) -> None:
    """Only an attempt that runs can be one of a batch."""
    stage = scene(redis)
    fill(stage, 1)
    redis.hset(stage.keys.task("t1"), "batched", 1)
    assert ["b: t1 is PENDING and its batched is '1'"] == audit(redis, stage.keys, ["t1"])
    assert ["t1: it is PENDING and its batched is 1"] == [
        f"{problem.task_id}: {problem.what}" for problem in Doctor(stage.store).audit()
    ]


def test_a_task_costs_redis_less_in_a_batch(redis: Redis) -> None:
    """Its claim and its end in fewer commands than alone, and one call for all."""
    stage = scene(redis)
    calls = {1: 0.0, MOST: 0.0}
    for most in calls:
        stage.start_over()
        fill(stage, *range(4 * MOST))
        redis.config_resetstat()
        reply, ended = stage.store.claim(wish("00", most)), 0
        while isinstance(reply, Claimed):
            ended += len(members(reply))
            _, reply = finish(stage, members(reply), wish(f"{ended:04x}", most))
        told = redis.info("commandstats")
        calls[most] = sum(stat["calls"] for name, stat in told.items() if name != "cmdstat_config|resetstat") / ended
    assert calls[MOST] < 0.9 * calls[1]
    assert State.SUCCESS == fields(stage, f"t{4 * MOST - 1}", "state")[0]


def test_one_that_can_neither_be_run_nor_ended_costs_the_others_nothing(redis: Redis) -> None:
    """They were started with it, and are run."""
    stage = scene(redis)
    fill(stage, 1, 2, 3)
    redis.set(stage.keys.params("t2"), "{")
    redis.delete(stage.keys.retention)
    redis.set(stage.keys.retention, "no index")
    assert ["t1", "t3"] == ids(stage.store.claim(wish()))
    assert State.PROCESSING == redis.hget(stage.keys.task("t2"), "state"), "its lease tells the watchdog"
    redis.delete(stage.keys.retention)

"""What a claim gives out, in which order, and what it passes over."""

from dataclasses import replace

import pytest
from audit import audit
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.messages import Claim, Claimed, NothingToClaim, PlainJob
from ghostless.lua.loader import WAKE_HINTS
from ghostless.statemachine import STORED, Event, State
from redis import Redis
from scripts.seeding import ID, QUEUE, TYPE, Scene, claimed, finish, put, scene, submission, wish
from scripts.snapshot import difference, snapshot


def submit_to(stage: Scene, queue: str, *task_ids: str) -> None:
    """Submit tasks to a queue."""
    for task_id in task_ids:
        wish = submission(task_id)
        stage.store.submit(type(wish)(**{name: getattr(wish, name) for name in wish.__slots__} | {"queue": queue}))


def take(stage: Scene, *queues: str, number: int = 1) -> list[str]:
    """Claim a number of times; return the ids, or why there was none."""
    replies = [stage.store.claim(Claim.new(f"w{index}", queues, [TYPE])) for index in range(number)]
    return [reply.held.task_id if isinstance(reply, Claimed) else reply.why for reply in replies]


def test_queues_are_served_in_the_order_of_the_worker(backend: Redis) -> None:
    """The first queue is emptied before the second, each from its oldest task."""
    stage = scene(backend)
    submit_to(stage, "low", "l1")
    submit_to(stage, "high", "h1", "h2")
    assert ["h1", "h2", "l1", "empty"] == take(stage, "high", "low", number=4)
    assert [] == audit(backend, stage.keys, ["l1", "h1", "h2"])


def test_a_paused_queue_gives_out_nothing(backend: Redis) -> None:
    """Submits are accepted and wait; other queues are served; resumed, the tasks come in their order (B36)."""
    stage = scene(backend)
    submit_to(stage, "high", "h1")
    stage.store.pause_queue("high")
    submit_to(stage, "high", "h2")
    submit_to(stage, "low", "l1")
    assert ["l1", "empty"] == take(stage, "high", "low", number=2)
    stage.store.pause_queue("high")
    stage.store.resume_queue("high")
    assert ["h1", "h2", "empty"] == [*take(stage, "high", number=2), *take(stage, "other")]
    assert [] == audit(backend, stage.keys, ["l1", "h1", "h2"])


def test_suspended_workers_get_nothing(backend: Redis) -> None:
    """rq's suspension is looked at inside the claim, so that no worker takes one more task."""
    stage = scene(backend)
    put(stage, State.PENDING)
    backend.set("rq:suspended", 1)
    before = snapshot(backend)
    assert NothingToClaim("suspended") == stage.store.claim(wish("w", "aa"))
    assert {} == difference(before, snapshot(backend))


@pytest.mark.parametrize("state", [state for state in STORED if state is not State.PENDING])
def test_a_ticket_of_a_task_that_is_not_pending_starts_nothing(backend: Redis, state: State) -> None:
    """Cancelled between submit and start, or held already: its ticket is dropped and the next one taken (B29)."""
    stage = scene(backend)
    put(stage, state)
    submit_to(stage, QUEUE, "t2")
    backend.lpush(stage.keys.rq_queue(QUEUE), ID, ID)
    before = stage.task
    assert ["t2"] == take(stage, QUEUE)
    assert before == stage.task
    assert [] == audit(backend, stage.keys, [ID, "t2"])


@pytest.mark.parametrize(("task_id", "push", "kept"), [("t1", "rpush", -1), ("t4", "lpush", 0)])
def test_a_ticket_is_looked_for_from_the_nearer_end(redis: Redis, task_id: str, push: str, kept: int) -> None:
    """Half of a long queue is walked for a cancel, at most: of two tickets the one that is far away stays."""
    stage = scene(redis)
    for number in range(1, 5):
        stage.store.submit(submission(f"t{number}"))
        redis.zadd(stage.keys.pending(QUEUE), {f"t{number}": number})
    getattr(redis, push)(stage.keys.rq_queue(QUEUE), task_id)
    stage.store.cancel(task_id, "tester")
    assert (task_id, 4) == (stage.queue[kept], len(stage.queue))


def test_one_claim_passes_over_a_bounded_number_of_tickets(redis: Redis) -> None:
    """Fifty stale tickets end one call, which says that there may be more; the next call goes on."""
    stage = scene(redis)
    put(stage, State.PENDING)
    redis.lpush(stage.keys.rq_queue(QUEUE), *(f"gone{number}" for number in range(75)))
    assert ["more", ID] == take(stage, QUEUE, number=2)
    assert [] == audit(redis, stage.keys, [ID])


def test_the_data_of_plain_jobs_is_not_read(redis: Redis) -> None:
    """It may be megabytes: neither who passes over such jobs asks for it, nor the doctor."""
    stage = scene(redis)
    for number in range(20):
        redis.hset(stage.keys.rq_job(f"plain{number}"), mapping={"origin": QUEUE, "data": "x" * 10_000})
        redis.rpush(stage.keys.rq_queue(QUEUE), f"plain{number}")
    redis.config_resetstat()
    sent = redis.info("stats")["total_net_output_bytes"]
    assert NothingToClaim("empty") == stage.store.claim(replace(Claim.new("w", [QUEUE], [TYPE]), tasks_only=True))
    assert redis.info("commandstats")["cmdstat_hget"]["calls"] < 10
    assert [] == list(Doctor(stage.store).audit())
    assert redis.info("stats")["total_net_output_bytes"] - sent < 100_000


def test_a_plain_job_is_handed_out_as_rq_does(redis: Redis) -> None:
    """An rq job that is no task moves to rq's intermediate list, and can be put back to the head of its queue."""
    stage = scene(redis)
    redis.hset(stage.keys.rq_job("plain"), mapping={"origin": QUEUE, "data": "x"})
    redis.rpush(stage.keys.rq_queue(QUEUE), "plain")
    put(stage, State.PENDING)
    plain = stage.store.claim(wish("w", "aa"))
    assert PlainJob(QUEUE, "plain") == plain
    assert plain == stage.store.claim(wish("w", "aa"))  # the same, when the reply was lost
    assert ["plain"] == redis.lrange(f"rq:queue:{QUEUE}:intermediate", 0, -1)
    assert [ID] == stage.queue
    stage.store.put_back(plain)
    assert (["plain", ID], 0) == (stage.queue, redis.exists(f"rq:queue:{QUEUE}:intermediate"))


def test_who_runs_tasks_only_passes_over_plain_jobs(backend: Redis) -> None:
    """Plain jobs stay where they are for whoever runs them, and tasks behind them are found, also bad tickets."""
    stage = scene(backend)
    for job in ("p1", "p2"):
        backend.hset(stage.keys.rq_job(job), mapping={"origin": QUEUE, "data": "x"})
    backend.rpush(stage.keys.rq_queue(QUEUE), "p1", "gone", "p2")
    put(stage, State.PENDING)
    submit_to(stage, QUEUE, "t2")
    claims = [replace(Claim.new("w", [QUEUE], types), tasks_only=True) for types in (["other"], [TYPE], [TYPE])]
    replies = [stage.store.claim(claim) for claim in claims]
    assert NothingToClaim("empty") == replies[0], "it parked both tasks"
    assert [ID, "t2"] == [reply.held.task_id for reply in replies[1:] if isinstance(reply, Claimed)]
    assert ["p1", "p2"] == stage.queue
    assert NothingToClaim("empty") == stage.store.claim(replace(Claim.new("w", [QUEUE], [TYPE]), tasks_only=True))
    assert [] == audit(backend, stage.keys, [ID, "t2"])


def test_very_many_plain_jobs_are_no_reason_to_ask_again(backend: Redis) -> None:
    """A claim is bounded; where it saw nothing but plain jobs, another one would see the same."""
    stage = scene(backend)
    for number in range(120):
        backend.hset(stage.keys.rq_job(f"p{number}"), mapping={"origin": QUEUE, "data": "x"})
        backend.rpush(stage.keys.rq_queue(QUEUE), f"p{number}")
    submit_to(stage, "low", "l1")
    reply = stage.store.claim(replace(Claim.new("w", [QUEUE, "low"], [TYPE]), tasks_only=True))
    assert isinstance(reply, Claimed)
    assert "l1" == reply.held.task_id
    assert NothingToClaim("empty") == stage.store.claim(replace(Claim.new("w", [QUEUE], [TYPE]), tasks_only=True))


def test_a_claim_hands_out_all_that_a_worker_needs(redis: Redis) -> None:
    """The record, the params and the checkpoint of an earlier attempt, and the right to write."""
    stage = scene(redis)
    put(stage, State.PENDING, owner="ann")
    redis.set(stage.keys.checkpoint(ID), '{"step":2}')
    got = claimed(stage.store)
    assert ((ID, 1, "aa11"), {"a": 1}, {"step": 2}) == (
        (got.held.task_id, got.held.attempt, got.held.token),
        got.params,
        got.checkpoint,
    )
    assert ("demo.add", QUEUE, "ann", State.PROCESSING, "w1") == (
        got.task.type,
        got.task.queue,
        got.task.owner,
        got.task.state,
        got.task.worker_id,
    )
    assert got.task.started_at + got.task.policy.timeout == got.task.timeout_at


def test_hints_for_idle_workers_are_capped_and_end_with_the_queue(redis: Redis) -> None:
    """However many tasks come, at most a hundred hints wait; an emptied queue leaves none."""
    stage = scene(redis)
    stage.store.submit_many([submission(f"t{number}") for number in range(WAKE_HINTS + 20)])
    assert WAKE_HINTS == redis.llen(stage.keys.wake(QUEUE))
    take(stage, QUEUE, number=WAKE_HINTS + 21)
    assert 0 == redis.exists(stage.keys.wake(QUEUE))


def test_a_started_attempt_begins_with_a_clean_progress(redis: Redis) -> None:
    """What an earlier attempt said of its progress is not shown for the next one."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    stage.store.progress(stage.held, 0.7, "nearly")
    assert ("0.7", "nearly") == (stage.task["progress"], stage.task["message"])
    finish(stage, Event.SUSPEND)
    claimed(stage.store, wish("w2", "cc"))
    assert set() == {"progress", "message", "progress_at"} & stage.task.keys()

"""What there is when an operation begins, made by legal moves where there are such."""

import time
from dataclasses import replace
from datetime import datetime

from faults.world import OTHER_TYPE, QUEUE, TYPE, World
from ghostless.jobs.messages import Claimed, Ending, Finished
from ghostless.jobs.recurrence import Recurrence
from ghostless.jobs.schedules import Schedule
from ghostless.statemachine import Event, Reason, State
from redis import Redis
from rq_scheduler import Scheduler as RqScheduler


def nothing(world: World) -> None:
    """Start with an empty database."""


def a_waiting_task(world: World) -> None:
    """Submit a task."""
    world.submit("t1")


def two_waiting_tasks(world: World) -> None:
    """Submit two tasks."""
    world.submit("t1")
    world.submit("t2")


def a_delayed_task(world: World) -> None:
    """Submit a task that waits for its time."""
    world.submit("t1", delay=0.5)


def a_running_task(world: World) -> None:
    """Start a task on a worker that is never heard of again."""
    world.submit("t1")
    assert world.begin("aa11")


def a_pausing_task(world: World) -> None:
    """Ask a running task to pause."""
    a_running_task(world)
    world.client.pause("t1")


def a_paused_task(world: World) -> None:
    """Pause a waiting task."""
    world.submit("t1")
    world.client.pause("t1")


def a_failed_task(world: World) -> None:
    """Let a task fail for good."""
    a_running_task(world)
    end(world, world.client.store.claim(world.claim("aa11")), Event.FAIL, Reason.EXCEPTION, retryable=False)


def a_task_with_dependents(world: World) -> None:
    """Submit a task, one that waits for it, and one that waits for both."""
    world.submit("t1")
    world.submit("t2", depends_on=["t1"])
    world.submit("t3", depends_on=["t1", "t2"])


def ends_that_were_not_told(world: World) -> None:
    """End t1, of which t2 is still to be told, and t3, of which nobody knows that t4 waits for it."""
    redis, keys = world.client.store.redis, world.client.store.keys
    for task_id, waiting in (("t1", "t2"), ("t3", "t4")):
        world.submit(task_id)
        world.submit(waiting, depends_on=[task_id])
        redis.hdel(keys.task(task_id), "dependents")
    place = redis.zrange(keys.dependents("t1"), 0, -1, withscores=True)
    redis.delete(keys.dependents("t1"), keys.dependents("t3"))
    end(world, world.begin("bb22"))
    world.client.cancel("t3")
    redis.hset(keys.task("t1"), "dependents", 1)
    redis.zadd(keys.dependents("t1"), dict(place))
    redis.zadd(keys.settling, {"t1": 1})


def damage(world: World) -> None:
    """Take t1 out of the index of its state, and delete the record of t2 only."""
    two_waiting_tasks(world)
    redis, keys = world.client.store.redis, world.client.store.keys
    redis.zrem(keys.state(State.PENDING), "t1")
    redis.delete(keys.task("t2"))


def entries_out_of_order(world: World) -> None:
    """Take t1 out of the index of its state, and let t2 stand in one of another owner."""
    two_waiting_tasks(world)
    redis, keys = world.client.store.redis, world.client.store.keys
    redis.zrem(keys.state(State.PENDING), "t1")
    redis.zadd(keys.owned("another"), {"t2": 1})


def a_task_in_a_paused_queue(world: World) -> None:
    """Pause the queue in which a task waits."""
    world.submit("t1")
    world.client.pause_queue(QUEUE)


def a_task_past_its_retention(world: World) -> None:
    """Complete a task whose retention is over."""
    world.submit("t1")
    end(world, world.begin("bb22"))
    world.client.store.redis.zadd(world.client.store.keys.retention, {"t1": 1})


def a_popped_ticket(world: World) -> None:
    """Take a task's ticket from the queue as a stock rq worker does."""
    world.submit("t1")
    redis, keys = world.client.store.redis, world.client.store.keys
    redis.lpop(keys.rq_queue(QUEUE))
    redis.hset(keys.rq_job("t1"), "status", "started")


def parked_tasks(world: World) -> None:
    """Let a worker that does not serve their type meet two tasks."""
    two_waiting_tasks(world)
    assert world.begin("aa11", OTHER_TYPE) is None


def work_for_a_watchdog(world: World) -> None:
    """Leave something to do for each of its duties: t1 is lost, t2 due, the ticket of t3 gone, t4 to be purged."""
    redis, keys = world.client.store.redis, world.client.store.keys
    for task_id in ("t1", "t4"):
        world.submit(task_id)
    assert world.begin("aa11")
    claimed = world.begin("bb22")
    assert claimed
    end(world, claimed)
    world.submit("t2", delay=0.001)
    world.submit("t3")
    redis.lrem(keys.rq_queue(QUEUE), 1, "t3")
    redis.hset(keys.task("t3"), "unticketed_at", 1)
    seconds, micros = redis.time()
    now = seconds * 1000 + micros // 1000
    redis.delete(keys.heartbeat("t1"))
    redis.zadd(keys.deadlines, {"t1": 1})
    redis.hset(keys.watchdog, mapping={"swept_at": now, "judge_from": now - 1})
    redis.pexpire(keys.watchdog, 4000)
    redis.zadd(keys.retention, {"t4": 1})


def work_for_several_rounds(world: World) -> None:
    """Leave something for each duty of a watchdog, and t5, which is due a little later."""
    work_for_a_watchdog(world)
    world.submit("t5", delay=0.4)


def a_registered_worker_with_a_task(world: World) -> None:
    """Enter a worker into rq's registry, and give it a task."""
    a_running_task(world)
    redis, key = world.client.store.redis, world.client.store.keys.rq_worker(world.worker)
    redis.hset(key, mapping={"incarnation": "life", "queues": QUEUE, "birth": "2026-01-01T00:00:00Z"})
    redis.sadd(world.client.store.keys.rq_workers, key)


def a_schedule(world: World) -> None:
    """Register a schedule whose run is not due."""
    assert world.client.schedules.put(Schedule("tidy", TYPE, Recurrence(every=3_600_000), params_of(world)))


def a_paused_schedule(world: World) -> None:
    """Pause a schedule."""
    a_schedule(world)
    world.client.schedules.pause("tidy")


def a_due_schedule(world: World) -> None:
    """Register a schedule whose run has been due for a moment, and a plain job of rq-scheduler that is due."""
    connection = Redis.from_url(world.url, protocol=2)
    RqScheduler(queue_name="plain", connection=connection).enqueue_at(datetime(2026, 1, 1), time.sleep, 0)
    connection.close()
    a_schedule(world)
    there = world.client.schedules.get("tidy")
    due = there.recurrence.start - 100
    late = replace(there, due=due, recurrence=replace(there.recurrence, start=due))
    assert world.client.schedules.advance(there, late)


def a_task_that_fails_first(world: World) -> None:
    """Submit a task that fails in its first attempt, and one that does not."""
    world.submit("t1", failures=1)
    world.submit("t2")


def two_long_tasks(world: World) -> None:
    """Submit two tasks that last longer than the test."""
    world.submit("t1", seconds=60)
    world.submit("t2", seconds=60)


def params_of(world: World) -> dict[str, str]:
    """Return the params of a task."""
    return {"trace": str(world.folder)}


def end(
    world: World, claimed: object, event: Event = Event.COMPLETE, reason: Reason = Reason.POLICY, **wishes: bool
) -> None:
    """End an attempt as its worker does."""
    assert isinstance(claimed, Claimed)
    ending = Ending(event, reason, text="1", **wishes)
    world.client.store.finish(claimed.held, ending, f"worker:{world.worker}", fraction=0.0)


def work_together(world: World) -> None:
    """Start two tasks in one call, and complete both in one that asks for more."""
    store, claim = world.client.store, replace(world.claim("bb22"), together=((TYPE, 2),))
    first = store.claim(claim)
    assert isinstance(first, Claimed)
    batch = [first, *first.followers]
    assert 2 == len(batch)
    for claimed in batch:
        world.note(claimed)
    done = [Finished(claimed.held, Ending(Event.COMPLETE, Reason.POLICY, text="1")) for claimed in batch]
    store.finish_each(done, f"worker:{world.worker}", world.claim("cc33"))

"""For each duty of the watchdog: something that is due for it, how to tell that it was done, and its own key."""

from collections.abc import Callable
from dataclasses import dataclass

from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.bulk_actions import BulkActions
from ghostless.jobs.keys import Keys
from ghostless.statemachine import Event, Policy, State
from helpers import expect
from scripts.seeding import BY_PERSON, QUEUE, Scene, claimed, submission, wish

HOUR = 3_600_000


@dataclass(frozen=True)
class Duty:
    """A duty, its script, how something comes to be due for it, and a check that it was done.

    `own_key` is a key that no other duty needs; some have none.
    """

    name: str
    script: str
    arrange: Callable[[Scene], None]
    check: Callable[[Scene], None]
    own_key: Callable[[Keys], str] | None = None


def submit(stage: Scene, name: str, **changes: object) -> None:
    """Submit a task into a queue of its own."""
    stage.store.submit(submission(name, queue=f"{QUEUE}-{name}", **changes))


def state(stage: Scene, name: str) -> str | None:
    """Return the state of a task."""
    return stage.redis.hget(stage.keys.task(name), "state")


def events(stage: Scene, name: str) -> list[str]:
    """Return the events of a task."""
    return [entry["event"] for _, entry in stage.redis.xrange(stage.keys.history) if entry["task"] == name]


# sweep_deadlines


def lose_a_worker(stage: Scene) -> None:
    """Let the lease of a running task be over."""
    submit(stage, "lost")
    claimed(stage.store, wish("w1", "aa11", queues=(f"{QUEUE}-lost",)))
    stage.redis.delete(stage.keys.heartbeat("lost"))
    stage.redis.zadd(stage.keys.deadlines, {"lost": 0})
    now = stage.now()
    stage.redis.hset(stage.keys.watchdog, mapping={"swept_at": now, "judge_from": now - 1})
    stage.redis.pexpire(stage.keys.watchdog, 60_000)


def is_taken_away(stage: Scene) -> None:
    """Check that the task waits for its next attempt."""
    assert state(stage, "lost") == State.RETRY_WAITING


# release_due


def let_time_come(stage: Scene) -> None:
    """Let the time of a task have come."""
    submit(stage, "timed", delay=1)


def is_released(stage: Scene) -> None:
    """Check that it waits in its queue."""
    assert state(stage, "timed") == State.PENDING


# requeue_missing


def lose_a_ticket(stage: Scene) -> None:
    """Lose the ticket of a task so long ago that the watchdog has seen it before."""
    submit(stage, "unticketed")
    stage.redis.delete(stage.keys.rq_job("unticketed"), stage.keys.rq_queue(f"{QUEUE}-unticketed"))
    stage.redis.hset(stage.keys.task("unticketed"), "unticketed_at", 1)


def has_a_ticket(stage: Scene) -> None:
    """Check that it has one."""
    assert stage.redis.lrange(stage.keys.rq_queue(f"{QUEUE}-unticketed"), 0, -1) == ["unticketed"]


# settle_dependents and recheck_blocked


def _block(stage: Scene, name: str, dependency: str) -> None:
    submit(stage, dependency, delay=HOUR)
    submit(stage, name, depends_on=(dependency,))


def end_without_a_word(stage: Scene) -> None:
    """Let what a task waits for be cancelled by a script that could not tell it any more."""
    _block(stage, "untold", "ended")
    stage.redis.hdel(stage.keys.task("ended"), "dependents")
    stage.store.cancel("ended", BY_PERSON)
    stage.redis.hset(stage.keys.task("ended"), "dependents", 1)
    stage.redis.zadd(stage.keys.settling, {"ended": 0})


def is_told(stage: Scene) -> None:
    """Check that the task was cancelled too."""
    assert state(stage, "untold") == State.CANCELLED


def end_forgotten(stage: Scene) -> None:
    """Let what a task waits for be cancelled while nothing told who waits for it."""
    _block(stage, "forgotten", "over")
    stage.redis.hdel(stage.keys.task("over"), "dependents")
    stage.redis.delete(stage.keys.dependents("over"))
    stage.store.cancel("over", BY_PERSON)


def is_remembered(stage: Scene) -> None:
    """Check that the task was cancelled too."""
    assert state(stage, "forgotten") == State.CANCELLED


# work_off_bulk_actions


def wish_for_many(stage: Scene) -> None:
    """Accept a bulk action."""
    submit(stage, "many", type="demo.many")
    BulkActions(stage.store).begin(BulkRequest("cancel", BulkFilter(type="demo.many")))


def is_carried_out(stage: Scene) -> None:
    """Check that it was carried out."""
    assert state(stage, "many") == State.CANCELLED


# purge


def let_retention_end(stage: Scene) -> None:
    """Let the retention of a task be over."""
    submit(stage, "old", policy=Policy(retention=1))
    stage.store.cancel("old", BY_PERSON)


def is_purged(stage: Scene) -> None:
    """Check that it is gone, and its end known."""
    assert state(stage, "old") is None
    expect(stage.redis.exists(stage.keys.tombstone("old")))


# audit and prune


def lose_an_entry(stage: Scene) -> None:
    """Lose a task's place among those in its state."""
    submit(stage, "unlisted")
    stage.redis.zrem(stage.keys.state(State.PENDING), "unlisted")


def is_listed(stage: Scene) -> None:
    """Check that it stands there, and that its history says how it came there."""
    assert stage.redis.zscore(stage.keys.state(State.PENDING), "unlisted") is not None
    assert Event.REPAIR in events(stage, "unlisted")


def stand_elsewhere(stage: Scene) -> None:
    """Let a task stand among those of another owner."""
    submit(stage, "strayed")
    stage.redis.zadd(stage.keys.owned("another"), {"strayed": 1})


def stands_there_no_more(stage: Scene) -> None:
    """Check that it was taken out."""
    assert stage.redis.zscore(stage.keys.owned("another"), "strayed") is None


# look_at_server


def evict(stage: Scene) -> None:
    """Let Redis be set up to evict keys, and forget how often its settings were read."""
    stage.redis.config_set("maxmemory-policy", "allkeys-lru")
    stage.redis.config_resetstat()


def is_looked_at(stage: Scene) -> None:
    """Check that its settings were read."""
    assert "cmdstat_config|get" in stage.redis.info("commandstats")


DUTIES = (
    Duty("sweep_deadlines", "sweep", lose_a_worker, is_taken_away, lambda keys: keys.deadlines),
    Duty("release_due", "release", let_time_come, is_released),
    Duty(
        *("requeue_missing", "requeue", lose_a_ticket, has_a_ticket),
        lambda keys: keys.rq_queue(f"{QUEUE}-unticketed"),
    ),
    Duty("settle_dependents", "settle", end_without_a_word, is_told, lambda keys: keys.settling),
    Duty("recheck_blocked", "recheck", end_forgotten, is_remembered, lambda keys: keys.blocked_cursor),
    Duty("work_off_bulk_actions", "work_bulk", wish_for_many, is_carried_out, lambda keys: keys.bulks_running),
    Duty("purge", "purge", let_retention_end, is_purged),
    Duty("audit", "patrol", lose_an_entry, is_listed, lambda keys: keys.patrol),
    Duty("prune", "prune", stand_elsewhere, stands_there_no_more, lambda keys: keys.prune),
    Duty("look_at_server", "", evict, is_looked_at),
)

"""One case for each kind of violation that the doctor can tell: what breaks it, and its lines."""

from collections.abc import Callable

from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.bulk_actions import BulkActions
from ghostless.jobs.client import Client
from ghostless.jobs.keys import CALLBACKS, LISTED_SINCE
from ghostless.jobs.messages import Held
from ghostless.jobs.rq_keys import QUEUES
from ghostless.statemachine import Event, State
from scripts.seeding import (
    DEPENDENCY,
    ID,
    OWNER,
    PLACE,
    QUEUE,
    TOKEN,
    Scene,
    claimed,
    end_forgotten,
    finish,
    park,
    submission,
)

Act = Callable[[Scene], object]

HOST = "https://example.com/"


def history(stage: Scene, at: int) -> str:
    """Return the id of one of the task's entries."""
    return stage.task[f"h{at}"]


def rewrite(at: int, **changes: str) -> Act:
    """Let an entry of the history tell something else."""

    def act(stage: Scene) -> None:
        entry_id = history(stage, at)
        ((_, fields),) = stage.redis.xrange(stage.keys.history, entry_id, entry_id)  # type: ignore[misc]
        stage.redis.xdel(stage.keys.history, entry_id)
        new = stage.redis.xadd(stage.keys.history, {**fields, **changes})
        stage.redis.hset(stage.keys.task(ID), f"h{at}", new)

    return act


def poison(name: Callable[[Scene], str]) -> Act:
    """Put a text where something else must be."""
    return lambda stage: stage.redis.set(name(stage), "poison")


def delete(name: Callable[[Scene], str]) -> Act:
    """Remove a key."""
    return lambda stage: stage.redis.delete(name(stage))


def bulk_action(stage: Scene) -> str:
    """Begin a bulk action; return its id."""
    wish = BulkRequest("cancel", BulkFilter(ids=("none",)))
    return BulkActions(stage.store).begin(wish, "tester").bulk_id


def delivery(stage: Scene) -> str:
    """Let a task end whose callback waits to be told; return the key of its deliveries."""
    client = Client(stage.store.settings, stage.redis)
    client.listeners.create(CALLBACKS)
    stage.store.submit(submission("called", callback_url=HOST))
    stage.store.cancel("called", "tester")
    client.deliveries.plan(client.history("called")[-1])
    return stage.keys.deliveries("called")


def complete_listing(stage: Scene) -> None:
    """Let it be known that each task has its entry in the listings."""
    stage.redis.hset(stage.keys.limits, LISTED_SINCE, stage.now())


def lose_ticket(stage: Scene) -> None:
    """Lose the task's ticket so long ago that nobody is on the way with it."""
    stage.redis.lrem(stage.keys.rq_queue(QUEUE), 0, ID)
    stage.redis.hset(stage.keys.task(ID), "unticketed_at", 1)


def succeed_untold(stage: Scene) -> None:
    """Let what the task waits for succeed while nothing told who waits for it."""
    stage.redis.hdel(stage.keys.task(DEPENDENCY), "dependents")
    stage.redis.delete(stage.keys.dependents(DEPENDENCY))
    stage.store.retry(DEPENDENCY, "tester")
    stage.redis.zadd(stage.keys.due, {DEPENDENCY: 0}, xx=True)
    stage.store.release("watchdog")
    stage.held = claimed(stage.store).held
    finish(stage, Event.COMPLETE)
    stage.held = Held(ID, 1, TOKEN)


CASES: dict[str, tuple[State, Act]] = {
    # Indices
    "not in an index": (State.PENDING, lambda s: s.redis.zrem(s.keys.state(State.PENDING), ID)),
    "at a wrong time": (State.PENDING, lambda s: s.redis.zadd(s.keys.owned(OWNER), {ID: 5})),
    "in an index too many": (State.PENDING, lambda s: s.redis.zadd(s.keys.due, {ID: 5})),
    "an index of another type": (State.PAUSED, poison(lambda s: s.keys.owned(OWNER))),
    "not in its listing": (State.PENDING, lambda s: (complete_listing(s), s.redis.zrem(s.keys.listed(PLACE), ID))),
    "in no listing yet": (State.PENDING, lambda s: s.redis.zrem(s.keys.listed(PLACE), ID)),
    "a listing without a name": (
        State.PENDING,
        lambda s: (complete_listing(s), s.redis.srem(s.keys.listed_places, PLACE)),
    ),
    "its due_at is gone": (State.SCHEDULED, lambda s: s.redis.hdel(s.keys.task(ID), "due_at")),
    "a queue without a name": (State.PENDING, lambda s: s.redis.hdel(s.keys.queues, QUEUE)),
    "parked, and its type not named": (
        State.PENDING,
        lambda s: (park(s), s.redis.delete(s.keys.parked_types(QUEUE))),
    ),
    "types of another type": (State.PENDING, lambda s: (park(s), poison(lambda s: s.keys.parked_types(QUEUE))(s))),
    "a parked type without tasks": (State.PENDING, lambda s: s.redis.sadd(s.keys.parked_types(QUEUE), "demo.sub")),
    "a member without a task": (State.PENDING, lambda s: s.redis.zadd(s.keys.due, {"gone": 1})),
    # Dependencies
    "what it waits for does not know": (State.BLOCKED, lambda s: s.redis.hdel(s.keys.task(DEPENDENCY), "dependents")),
    "what it waits for is damaged": (State.BLOCKED, lambda s: s.redis.hset(s.keys.task(DEPENDENCY), "state", "X")),
    "what does not know of it is damaged": (
        State.BLOCKED,
        lambda s: (
            s.redis.hset(s.keys.task(DEPENDENCY), "state", "X"),
            s.redis.hdel(s.keys.task(DEPENDENCY), "dependents"),
        ),
    ),
    "what it waits for ended untold": (State.BLOCKED, end_forgotten),
    "unmet of another type": (State.BLOCKED, poison(lambda s: s.keys.unmet(ID))),
    "unmet of no use": (State.PENDING, lambda s: s.redis.sadd(s.keys.unmet(ID), "x")),
    "unmet is gone": (State.BLOCKED, delete(lambda s: s.keys.unmet(ID))),
    "unmet and depends_on are gone": (State.BLOCKED, lambda s: s.redis.delete(s.keys.unmet(ID), s.keys.depends_on(ID))),
    "waits for a stranger": (State.BLOCKED, lambda s: s.redis.sadd(s.keys.unmet(ID), "stranger")),
    "waits for nothing": (State.BLOCKED, lambda s: (succeed_untold(s), s.redis.delete(s.keys.unmet(ID)))),
    "waits for nothing, and cannot go on": (
        State.BLOCKED,
        lambda s: (succeed_untold(s), s.redis.delete(s.keys.unmet(ID)), poison(lambda _: QUEUES)(s)),
    ),
    # Fields, leases, values
    "a value of another type": (State.PENDING, lambda s: s.redis.hset(s.keys.error(ID), "x", "y")),
    "a field that stayed": (State.PAUSED, lambda s: s.redis.hset(s.keys.task(ID), "worker_id", "w")),
    "its timeout_at is gone": (State.PROCESSING, lambda s: s.redis.hdel(s.keys.task(ID), "timeout_at")),
    "held by nobody": (State.PROCESSING, lambda s: s.redis.hdel(s.keys.task(ID), "worker_id")),
    "a lease of another type": (
        State.PROCESSING,
        lambda s: (s.redis.delete(s.keys.heartbeat(ID)), s.redis.rpush(s.keys.heartbeat(ID), "x")),
    ),
    "a lease that stayed": (State.PAUSED, lambda s: s.redis.set(s.keys.heartbeat(ID), "w1 1", ex=60)),
    "a lease of another": (State.PROCESSING, lambda s: s.redis.set(s.keys.heartbeat(ID), "w9 1", ex=60)),
    "a lease without end": (State.PROCESSING, lambda s: s.redis.persist(s.keys.heartbeat(ID))),
    "a value that would expire": (State.PENDING, lambda s: s.redis.expire(s.keys.params(ID), 60)),
    "a value that is gone": (State.PENDING, delete(lambda s: s.keys.params(ID))),
    "a tombstone too early": (State.PENDING, lambda s: s.redis.set(s.keys.tombstone(ID), "x", ex=60)),
    "a damaged record": (State.PENDING, lambda s: s.redis.hset(s.keys.task(ID), "failures", "many")),
    # Tickets
    "no ticket": (State.PENDING, lose_ticket),
    "no ticket since a moment ago": (State.PENDING, lambda s: s.redis.lrem(s.keys.rq_queue(QUEUE), 0, ID)),
    "no ticket, and none can be made": (
        State.PENDING,
        lambda s: (lose_ticket(s), poison(lambda _: QUEUES)(s)),
    ),
    "two tickets": (State.PENDING, lambda s: s.redis.rpush(s.keys.rq_queue(QUEUE), ID)),
    "an empty ticket": (State.PENDING, delete(lambda s: s.keys.rq_job(ID))),
    "a ticket that stayed": (
        State.PAUSED,
        lambda s: s.redis.hset(s.keys.rq_job(ID), mapping={"origin": QUEUE, "status": "queued", "data": "x"}),
    ),
    "tickets of another type": (State.PAUSED, poison(lambda s: s.keys.rq_queue(QUEUE))),
    "a ticket of nothing": (State.PAUSED, lambda s: s.redis.rpush(s.keys.rq_queue(QUEUE), "nothing")),
    # The history
    "a history of another type": (State.PENDING, lambda s: (lose_ticket(s), poison(lambda s: s.keys.history)(s))),
    "an entry that is gone": (State.PROCESSING, lambda s: s.redis.xdel(s.keys.history, history(s, 1))),
    "an illegal step": (State.PROCESSING, rewrite(2, to="SUCCESS")),
    "an entry of another task": (State.PROCESSING, rewrite(2, task="another")),
    "an entry of another attempt": (State.PROCESSING, rewrite(2, attempt="7")),
    "an unknown reason": (State.PENDING, rewrite(1, reason="whim")),
    "nobody did it": (State.PENDING, rewrite(1, actor="")),
    "an entry of another queue": (State.PENDING, rewrite(1, queue="another")),
    "entries in another order": (State.PROCESSING, rewrite(1)),
    "a state without a step": (State.PAUSED, rewrite(2, event="CANCEL", to="CANCELLED")),
    "another attempt": (State.PAUSED, lambda s: s.redis.hset(s.keys.task(ID), "attempt", 2)),
    "an entry that no task names": (State.PROCESSING, lambda s: s.redis.xadd(s.keys.history, {"task": ID})),
    # What is gone, and what is counted
    "a record that is gone": (State.PENDING, delete(lambda s: s.keys.task(ID))),
    "a wrong count": (State.PENDING, lambda s: s.redis.hincrby(s.keys.ledger, "submitted", 1)),
    "a note in quarantine": (State.PENDING, lambda s: s.redis.hset(s.keys.quarantine, f"{s.keys.due} {ID}", "no task")),
    # Keys
    "an unknown key": (State.PENDING, poison(lambda s: "ghostless:cache")),
    "a key that would expire": (State.PENDING, lambda s: s.redis.expire(s.keys.ledger, 60)),
    "a key without end": (State.PENDING, lambda s: s.redis.set(s.keys.tombstone("gone"), "SUCCESS 1")),
    "a key of another type": (State.PENDING, poison(lambda s: s.keys.types)),
    "no number": (State.PENDING, lambda s: s.redis.hset(s.keys.ledger, "stale_writes", "many")),
    # Bulk actions and callbacks
    "a bulk action that would expire": (State.PAUSED, lambda s: s.redis.expire(s.keys.bulk(bulk_action(s)), 99)),
    "a bulk action that is over and without end": (
        State.PAUSED,
        lambda s: (b := bulk_action(s), BulkActions(s.store).stop(b), s.redis.persist(s.keys.bulk(b))),
    ),
    "a bulk action without a turn": (State.PAUSED, lambda s: (bulk_action(s), s.redis.delete(s.keys.bulks_running))),
    "a bulk action without a record": (State.PAUSED, lambda s: s.redis.delete(s.keys.bulk(bulk_action(s)))),
    "a delivery without a turn": (
        State.PAUSED,
        lambda s: (delivery(s), s.redis.delete(s.keys.due_receivers, s.keys.due_deliveries("example.com"))),
    ),
    "a delivery without a record": (State.PAUSED, lambda s: s.redis.delete(delivery(s))),
    "a delivery of what was purged": (
        State.PAUSED,
        lambda s: (
            s.redis.zadd(s.keys.due_deliveries("x.example"), {"none 1-1": 1}),
            s.redis.zadd(s.keys.due_receivers, {"x.example": 1}),
        ),
    ),
}

"""Puts a task into any state by legal moves, and calls any verb on it the way the product does."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.bulk_actions import BulkActions
from ghostless.jobs.deliveries import Taken
from ghostless.jobs.errors import BulkActionNotFound, StaleAttempt, TaskNotFound
from ghostless.jobs.keys import Keys
from ghostless.jobs.messages import Archived, Claim, Claimed, Ending, Held, PlainJob, Submission, Swept
from ghostless.jobs.scripts import Scripts
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.upkeep import Upkeep
from ghostless.statemachine import FINAL, RUNNING, WAITING_FOR_TIME, Event, Policy, Reason, State
from redis import Redis
from redis.exceptions import ResponseError
from scripts import listening

ID, QUEUE, TYPE, WORKER, TOKEN, NEXT_TOKEN = "t1", "q", "demo.add", "w1", "aa11", "bb22"
OTHER_TYPE = "demo.sub"
OWNER = "ann:[a-z]*"
"""An owner's name is any printable text, and part of the name of an index."""
PLACE = f"{QUEUE}:{TYPE}"
"""Where the tasks of this queue and type are listed and parked."""
DEPENDENCY, CALLED = "dependency", "called"
CLAIM = Claim(WORKER, (QUEUE,), TOKEN, (TYPE,))
PLAIN = PlainJob(QUEUE, "plain")
PATIENT = Policy(backoff_base=1_000_000, backoff_cap=1_000_000)
BY_PERSON, BY_WORKER, BY_WATCHDOG, BY_POOL = "tester", f"worker:{WORKER}", "watchdog", "pool:p"


class SpiedStore(Store):
    """The store, which also keeps what its last script was sent and what it replied."""

    def __init__(self, redis: Redis, settings: Settings = Settings()) -> None:  # noqa: B008
        super().__init__(redis, settings)
        self.reply: Any = None
        self.sent: tuple[Any, ...] = ()
        self._scripts = _SpiedScripts(redis, self.keys, self)

    def send_again(self) -> Any:
        """Send the very same call again, as redis-py does when the reply was lost."""
        return self._scripts.call(*self.sent)

    @property
    def answer(self) -> list[Any]:
        """What the last script answered, without what it claimed next; for a watchdog's step, its numbers."""
        if isinstance(self.reply, int):
            return [self.reply]
        return self.reply[0] if isinstance(self.reply[0], list) else self.reply

    @property
    def word(self) -> str:
        """The word that the last script answered with; how many tasks moved, for a watchdog's step."""
        return self.answer[0]


class _SpiedScripts(Scripts):
    def __init__(self, redis: Redis, keys: Keys, store: SpiedStore) -> None:
        super().__init__(redis, keys)
        self._store = store

    def call(self, *arguments: Any) -> Any:
        self._store.sent = arguments
        self._store.reply = super().call(*arguments)
        return self._store.reply


@dataclass
class Scene:
    """One task in one database, and what is needed to act on it."""

    redis: Redis
    store: SpiedStore
    held: Held = Held(ID, 1, TOKEN)  # noqa: RUF009
    taken: Taken | None = None

    @property
    def keys(self) -> Keys:
        """The key names of the database."""
        return self.store.keys

    @property
    def task(self) -> dict[str, str]:
        """The task's hash."""
        return self.redis.hgetall(self.keys.task(self.held.task_id))  # type: ignore[return-value]

    @property
    def history(self) -> list[tuple[str, str, str]]:
        """The event, the source and the target of every entry of the database."""
        return [(entry["event"], entry["from"], entry["to"]) for _, entry in self.redis.xrange(self.keys.history)]

    @property
    def queue(self) -> list[str]:
        """The ids in the queue's list."""
        return self.redis.lrange(self.keys.rq_queue(QUEUE), 0, -1)  # type: ignore[return-value]

    def start_over(self) -> None:
        """Empty the database."""
        self.redis.flushall()
        self.held = Held(ID, 1, TOKEN)

    def now(self) -> int:
        """The server's time in ms."""
        seconds, microseconds = self.redis.time()  # type: ignore[misc]
        return seconds * 1000 + microseconds // 1000


def scene(redis: Redis, settings: Settings = Settings()) -> Scene:  # noqa: B008
    """Return an empty scene."""
    return Scene(redis, SpiedStore(redis, settings))


def submission(task_id: str = ID, policy: Policy = PATIENT, **changes: Any) -> Submission:
    """Return a small task, which has an owner unless told otherwise."""
    return replace(Submission(task_id, TYPE, QUEUE, policy, '{"a":1}', "fingerprint", owner=OWNER), **changes)


def wish(worker_id: str, token: str, *types: str, queues: tuple[str, ...] = (QUEUE,)) -> Claim:
    """Return the claim of a worker that serves these types; the type of the seeded tasks when none is named."""
    return Claim(worker_id, queues, token, types or (TYPE,))


def ending(event: Event, reason: Reason = Reason.EXCEPTION, **changes: Any) -> Ending:
    """Return how an attempt ended, with the texts that such an end has."""
    text = '{"sum":3}' if event is Event.COMPLETE else "Traceback: it broke"
    return Ending(event, Reason.POLICY if event is Event.COMPLETE else reason, "said so", text, **changes)


def claimed(store: Store, claim: Claim = CLAIM) -> Claimed:
    """Claim a task that must be there."""
    reply = store.claim(claim)
    assert isinstance(reply, Claimed), reply
    return reply


def finish(scene: Scene, event: Event, reason: Reason = Reason.EXCEPTION, claim: Claim | None = None, **changes: Any):
    """End the attempt as its worker does, with the middle of the jitter."""
    return scene.store.finish(scene.held, ending(event, reason, **changes), BY_WORKER, claim, fraction=0.5)


def put(scene: Scene, state: State, policy: Policy = PATIENT, **changes: Any) -> Held:
    """Bring a new task into a state by the moves that lead there."""
    store = scene.store
    delay = 1_000_000 if state is State.SCHEDULED else 0
    if state is State.BLOCKED:
        store.submit(submission(DEPENDENCY, delay=1_000_000))
        changes = {"depends_on": (DEPENDENCY,)} | changes
    store.submit(submission(policy=policy, delay=delay, **changes))
    if state in RUNNING or state in (State.RETRY_WAITING, State.SUCCESS, State.FAILED, State.TIMEOUT_CANCELLED):
        scene.held = claimed(store).held
    {
        State.PAUSING: lambda: store.pause(ID, BY_PERSON),
        State.PAUSED: lambda: store.pause(ID, BY_PERSON),
        State.CANCELLING: lambda: store.cancel(ID, BY_PERSON),
        State.CANCELLED: lambda: store.cancel(ID, BY_PERSON),
        State.RETRY_WAITING: lambda: finish(scene, Event.FAIL),
        State.FAILED: lambda: finish(scene, Event.FAIL, retryable=False),
        State.SUCCESS: lambda: finish(scene, Event.COMPLETE),
        State.TIMEOUT_CANCELLED: lambda: finish(scene, Event.TIMEOUT, Reason.DEADLINE, retryable=False),
    }.get(state, lambda: None)()
    assert scene.task["state"] == state
    return scene.held


def step(scene: Scene, walk: Literal["patrol", "prune"], actor: str = BY_WATCHDOG) -> Swept:
    """Let one of the watchdogs' walks go on at once, whenever its next step is due."""
    scene.redis.hdel(getattr(scene.keys, walk), "at")
    return getattr(Upkeep(scene.store), walk)(actor)


# What makes an index say that a task's turn has come, whatever the task says.


def make_due(scene: Scene) -> None:
    """Put the task at the very start of `due`."""
    scene.redis.zadd(scene.keys.due, {ID: 0})


def make_lost(scene: Scene) -> None:
    """Let the task's lease be over, after a watchdog that swept all the time."""
    now = scene.now()
    scene.redis.delete(scene.keys.heartbeat(ID))
    scene.redis.zadd(scene.keys.deadlines, {ID: 0})
    scene.redis.hset(scene.keys.watchdog, mapping={"swept_at": now, "judge_from": now - 1})
    scene.redis.pexpire(scene.keys.watchdog, 60_000)


def make_ticketless(scene: Scene) -> None:
    """Lose the task's ticket so long ago that the watchdog has seen it before."""
    scene.redis.delete(scene.keys.rq_job(ID))
    scene.redis.lrem(scene.keys.rq_queue(QUEUE), 0, ID)
    scene.redis.zadd(scene.keys.pending(QUEUE), {ID: float(scene.task["entered_at"])})
    if scene.task["state"] == State.PENDING:
        scene.redis.hset(scene.keys.task(ID), "unticketed_at", 1)


def make_outdated(scene: Scene) -> None:
    """Let the retention of the task be over."""
    scene.redis.zadd(scene.keys.retention, {ID: 0})


def end_untold(scene: Scene) -> None:
    """Let what a BLOCKED task waits for be cancelled by a script that could not tell it any more."""
    name = scene.keys.task(DEPENDENCY)
    if scene.redis.hdel(name, "dependents"):
        scene.store.cancel(DEPENDENCY, BY_PERSON)
        scene.redis.hset(name, "dependents", 1)
        scene.redis.zadd(scene.keys.settling, {DEPENDENCY: 0})


def end_forgotten(scene: Scene) -> None:
    """Let what a BLOCKED task waits for be cancelled while nothing in the index told who waits for it."""
    if scene.redis.hdel(scene.keys.task(DEPENDENCY), "dependents"):
        scene.redis.delete(scene.keys.dependents(DEPENDENCY))
        scene.store.cancel(DEPENDENCY, BY_PERSON)


def archived(scene: Scene) -> Archived:
    """Return that the task was archived as it is now."""
    task: dict[str, str] = {}
    with suppress(ResponseError):  # of another type: that cannot be archived
        task = scene.task
    return Archived("20270131-here-0af3c2.jsonl.gz", {ID: task.get(f"h{task.get('entries')}", "")})


def push_ticket(scene: Scene) -> None:
    """Put a ticket of the task at the head of its queue, unless one is there."""
    scene.redis.delete(scene.keys.wake(QUEUE))
    if ID not in scene.queue:
        scene.redis.lpush(scene.keys.rq_queue(QUEUE), ID)


def pop_ticket(scene: Scene) -> None:
    """Take the task's ticket as a stock rq worker does."""
    scene.redis.lrem(scene.keys.rq_queue(QUEUE), 0, ID)
    if scene.redis.exists(scene.keys.rq_job(ID)):
        scene.redis.hset(scene.keys.rq_job(ID), "status", "started")


def park(scene: Scene) -> None:
    """Let a worker that does not serve the task's type meet it."""
    if scene.task["state"] == State.PENDING:
        scene.store.claim(wish("w9", "ee99", OTHER_TYPE))
        assert not scene.queue


def leave_parked(scene: Scene) -> None:
    """Park the task; one in another state leaves a member where it would be."""
    park(scene)
    if scene.task["state"] != State.PENDING:
        scene.redis.zadd(scene.keys.parked(PLACE), {ID: 1})
        scene.redis.sadd(scene.keys.parked_types(QUEUE), TYPE)


def submit_another_type(scene: Scene) -> None:
    """Let a task of another type wait behind the task."""
    scene.store.submit(submission("t2", type=OTHER_TYPE))


def unlist(scene: Scene) -> None:
    """Lose the task's entry among those in its state."""
    scene.redis.zrem(scene.keys.state(scene.task["state"]), ID)


def list_elsewhere(scene: Scene) -> None:
    """Let the task stand in the index of another owner's tasks."""
    scene.redis.zadd(scene.keys.owned("another"), {ID: 1})


def add_unnamed_entry(scene: Scene) -> None:
    """Leave an entry of a task that is gone in the history."""
    scene.redis.xadd(scene.keys.history, {"task": "gone", "event": "SUBMIT", "from": "", "to": "PENDING"})


def lose_count(scene: Scene) -> None:
    """Let the ledger know of one task more than there are."""
    scene.redis.hincrby(scene.keys.ledger, "submitted", 1)


def take_plain(scene: Scene) -> None:
    """Let a worker have taken a plain rq job that it did not begin yet."""
    job = {"origin": QUEUE, "status": "queued", "data": "some call"}
    scene.redis.hset(scene.keys.rq_job(PLAIN.job_id), mapping=job)
    scene.redis.rpush(scene.keys.rq_intermediate(QUEUE), PLAIN.job_id)


def end_untold_of(scene: Scene) -> None:
    """Let another task, which has a callback, end while nobody planned to tell it."""
    listening.announce_callbacks(scene.store)
    scene.store.submit(submission(CALLED, callback_url=listening.URL))
    scene.store.cancel(CALLED, BY_PERSON)
    scene.taken = listening.untold(scene.store, CALLED)


def end_with_a_callback(scene: Scene) -> None:
    """Let another task end whose callback is to be told now."""
    end_untold_of(scene)
    listening.plan(scene.store, CALLED)


def take_delivery(scene: Scene) -> None:
    """Let somebody have taken what is to be told."""
    end_with_a_callback(scene)
    [scene.taken] = listening.take(scene.store)


def nothing(scene: Scene) -> None:
    """Leave everything as it is."""


@dataclass(frozen=True)
class Carrier:
    """A verb, what must be prepared for it, and its call."""

    verb: str
    call: Callable[[Scene], Any]
    state: State | None = State.PROCESSING  # one in which the call moves something
    prepare: Callable[[Scene], None] = nothing


def _finishing(event: Event, reason: Reason = Reason.EXCEPTION, state: State = State.PROCESSING) -> Carrier:
    return Carrier("finish", lambda scene: finish(scene, event, reason), state)


CARRIERS: dict[Event, tuple[Carrier, ...]] = {
    Event.SUBMIT: (Carrier("submit", lambda s: s.store.submit(submission()), None),),
    Event.RELEASE: (Carrier("release", lambda s: s.store.release(BY_WATCHDOG), State.RETRY_WAITING, make_due),),
    Event.START: (
        Carrier("claim", lambda s: s.store.claim(wish("w2", NEXT_TOKEN)), State.PENDING, push_ticket),
        Carrier("start", lambda s: s.store.start(ID, "w2", NEXT_TOKEN), State.PENDING, pop_ticket),
        Carrier("claim", lambda s: s.store.claim(wish("w2", NEXT_TOKEN)), State.PENDING, leave_parked),
        Carrier("start", lambda s: s.store.start(ID, "w2", NEXT_TOKEN), State.PENDING, park),
    ),
    Event.HEARTBEAT: (Carrier("heartbeat", lambda s: s.store.heartbeat(s.held)),),
    Event.PROGRESS: (
        Carrier("progress", lambda s: s.store.progress(s.held, 0.5, "half")),
        Carrier("checkpoint", lambda s: s.store.checkpoint(s.held, '{"step":1}')),
        Carrier("log", lambda s: s.store.log(s.held, ["one", "two"])),
    ),
    Event.STAGE: (Carrier("stage", lambda s: s.store.stage(s.held, BY_WORKER, "watermark")),),
    Event.COMPLETE: (_finishing(Event.COMPLETE),),
    Event.FAIL: (_finishing(Event.FAIL),),
    Event.TIMEOUT: (
        _finishing(Event.TIMEOUT, Reason.DEADLINE),
        Carrier("sweep", lambda s: s.store.sweep(BY_WATCHDOG), prepare=make_lost),
        Carrier("lose", lambda s: s.store.lose(ID, s.held.attempt, WORKER, BY_POOL, "it was killed", is_dead=True)),
    ),
    Event.RETRY: (Carrier("retry", lambda s: s.store.retry(ID, BY_PERSON), State.FAILED),),
    Event.CANCEL: (
        Carrier("cancel", lambda s: s.store.cancel(ID, BY_PERSON)),
        Carrier("cancel", lambda s: s.store.cancel(ID, BY_PERSON), State.PENDING, park),
    ),
    Event.STOPPED: (_finishing(Event.STOPPED, Reason.USER, State.CANCELLING),),
    Event.PAUSE: (
        Carrier("pause", lambda s: s.store.pause(ID, BY_PERSON)),
        Carrier("pause", lambda s: s.store.pause(ID, BY_PERSON), State.PENDING, park),
    ),
    Event.SUSPEND: (
        _finishing(Event.SUSPEND, Reason.SHUTDOWN),
        _finishing(Event.SUSPEND, Reason.UNKNOWN_TYPE),
    ),
    Event.RESUME: (Carrier("resume", lambda s: s.store.resume(ID, BY_PERSON), State.PAUSED),),
    Event.REQUEUE: (Carrier("requeue", lambda s: s.store.requeue(BY_WATCHDOG, QUEUE), State.PENDING, make_ticketless),),
    Event.REPAIR: (
        Carrier("repair", lambda s: Upkeep(s.store).compare([ID], actor=BY_PERSON), State.PENDING, unlist),
        Carrier("patrol", lambda s: Upkeep(s.store).patrol(BY_WATCHDOG), State.PENDING, unlist),
        Carrier("prune", lambda s: Upkeep(s.store).prune(BY_WATCHDOG), State.PENDING, list_elsewhere),
    ),
}
"""The scripts that carry each event. GIVE_UP only ever follows a TIMEOUT in the same script."""

BULK = BulkRequest("cancel", BulkFilter(type=TYPE), idempotency_key="k1")


def begin_bulk(scene: Scene) -> None:
    """Accept a bulk action for the task."""
    BulkActions(scene.store).begin(BULK)


def bulk_of(action: str, state: State) -> Carrier:
    """Return the page of a bulk action that moves the task."""

    def begin(scene: Scene) -> None:
        BulkActions(scene.store).begin(BulkRequest(action, BulkFilter(type=TYPE)))

    return Carrier("work_bulk", lambda s: BulkActions(s.store).work_off(), state, begin)


BEGIN_BULK = Carrier("begin_bulk", begin_bulk, State.PENDING)
STOP_BULK = Carrier("stop_bulk", lambda s: BulkActions(s.store).stop(BULK.id_of_key() or ""), State.PENDING, begin_bulk)
WORK_BULK = (
    *(bulk_of("cancel", State.PENDING), bulk_of("pause", State.PROCESSING)),
    *(bulk_of("resume", State.PAUSED), bulk_of("retry", State.FAILED)),
)
PURGE = Carrier("purge", lambda s: s.store.purge(), State.SUCCESS, make_outdated)
PURGE_ARCHIVED = Carrier("purge", lambda s: s.store.purge(archived(s)), State.SUCCESS, make_outdated)
PUT_BACK = Carrier("put_back", lambda s: s.store.put_back(PLAIN), State.PENDING, take_plain)
SETTLE = Carrier("settle", lambda s: s.store.settle(), State.BLOCKED, end_untold)
RECHECK = Carrier("recheck", lambda s: s.store.recheck(BY_WATCHDOG), State.BLOCKED, end_forgotten)
UNPARK = Carrier("unpark", lambda s: s.store.unpark([TYPE]), State.PENDING, park)
UNNAMED = Carrier(
    "unnamed", lambda s: Upkeep(s.store).leaf_through("0-0", deletes=True), State.PENDING, add_unnamed_entry
)
SUBSCRIBE = Carrier("subscribe", lambda s: listening.groups_of(s.store).create(listening.GROUP), State.PENDING)
LISTEN = Carrier("listen", lambda s: listening.listen(s.store), prepare=lambda s: listening.let_another_die(s.store))
DISMISS = Carrier(
    "dismiss",
    lambda s: listening.consumer_of(s.store).dismiss(0, leaving=True),
    prepare=lambda s: listening.let_it_be_idle(s.store),
)
DISPATCH = Carrier("dispatch", lambda s: listening.take(s.store), State.PENDING, end_with_a_callback)
REVISE = (
    Carrier(
        *("revise", lambda s: listening.deliveries_of(s.store).note(s.taken, s.taken.delivery, 0)),
        *(State.PENDING, end_untold_of),
    ),
    Carrier("revise", lambda s: listening.note(s.store, s.taken), State.PENDING, take_delivery),
)
RECOUNT = Carrier("recount", lambda s: Upkeep(s.store).account(corrects=True), State.PENDING, lose_count)
PARK = Carrier("claim", lambda s: s.store.claim(wish("w2", NEXT_TOKEN, OTHER_TYPE)), State.PENDING, submit_another_type)

ALL: tuple[Carrier, ...] = (
    *(carrier for carriers in CARRIERS.values() for carrier in carriers),
    *(PURGE, PUT_BACK, UNPARK, PARK, SETTLE, RECHECK, UNNAMED, RECOUNT, BEGIN_BULK, STOP_BULK, *WORK_BULK),
    *(SUBSCRIBE, LISTEN, DISMISS, DISPATCH, *REVISE),
)
"""Every call that changes something, with a state in which it does."""


HAND_OUT = {"listen", "dispatch"}
"""Verbs that answer with what they hand out, behind two other values."""


def set_up(scene: Scene, carrier: Carrier, state: State | None = None) -> None:
    """Prepare a database in which the carrier's call has something to do."""
    if (state or carrier.state) is not None:
        put(scene, state or carrier.state)  # type: ignore[arg-type]
    carrier.prepare(scene)


def fire(scene: Scene, carrier: Carrier) -> str:
    """Make the call; return the word of the script's answer, `moved` or `kept` where that is a number, or a list."""
    with suppress(StaleAttempt, TaskNotFound, BulkActionNotFound):
        carrier.call(scene)
    reply = scene.store.reply
    if isinstance(reply, int):
        return "moved" if reply else "kept"
    if carrier.verb in HAND_OUT:
        return "moved" if reply[2:] else "kept"
    if isinstance(reply[0], int):
        return "moved" if reply[1] else "kept"
    return scene.store.word


def ever_held(state: State) -> bool:
    """Tell whether `put` brings a task into this state by way of an attempt."""
    return state in RUNNING or state in FINAL - {State.CANCELLED} or state in WAITING_FOR_TIME - {State.SCHEDULED}

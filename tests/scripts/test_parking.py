"""Tasks of types that a worker does not serve: parked, not lost, not burnt, and holding nobody."""

import pytest
from audit import audit
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.messages import Claim, Claimed
from ghostless.lua import BATCH, LISTED_FROM
from ghostless.statemachine import Event, Reason, State
from redis import Redis
from scripts.seeding import (
    ID,
    OTHER_TYPE,
    OWNER,
    QUEUE,
    TYPE,
    Scene,
    claimed,
    finish,
    make_ticketless,
    park,
    put,
    scene,
    submission,
    wish,
)
from scripts.snapshot import difference, snapshot

THIRD_TYPE = "demo.mul"


def submit(stage: Scene, *ids: str, task_type: str = TYPE, queue: str = QUEUE) -> list[str]:
    """Submit tasks of one type, one after another."""
    for task_id in ids:
        stage.store.submit(submission(task_id, type=task_type, queue=queue))
    return list(ids)


def submit_at_times(stage: Scene, types: dict[str, str]) -> list[str]:
    """Submit a task for each id, of its type, each at a time of its own."""
    for number, (task_id, task_type) in enumerate(types.items(), start=1):
        submit(stage, task_id, task_type=task_type)
        stage.redis.hset(stage.keys.task(task_id), "entered_at", number)
        for index in (stage.keys.state(State.PENDING), stage.keys.pending(QUEUE), stage.keys.owned(OWNER)):
            stage.redis.zadd(index, {task_id: number})
        stage.redis.zadd(stage.keys.listed(f"{QUEUE}:{task_type}"), {task_id: LISTED_FROM[State.PENDING] + number})
    return list(types)


def numbered(letter: str, number: int) -> list[str]:
    """Return ids that sort in the order of their numbers."""
    return [f"{letter}{index:03}" for index in range(number)]


def take(stage: Scene, *types: str, number: int = 1, queue: str = QUEUE) -> list[str]:
    """Claim a number of times for workers that serve these types; return the ids, or why there was none."""
    replies = [stage.store.claim(Claim.new("w", [queue], types)) for _ in range(number)]
    return [reply.held.task_id if isinstance(reply, Claimed) else reply.why for reply in replies]


def place(stage: Scene, task_type: str = TYPE, queue: str = QUEUE) -> str:
    """Return the key in which tasks of a type are parked."""
    return stage.keys.parked(f"{queue}:{task_type}")


def fields(stage: Scene, task_id: str) -> dict[str, str]:
    """Return a task's hash."""
    return stage.redis.hgetall(stage.keys.task(task_id))  # type: ignore[return-value]


# Parking and taking


def test_a_claim_passes_over_the_types_it_does_not_serve(backend: Redis) -> None:
    """One call gets the task behind them; they stay PENDING, their history and their attempts as they were."""
    stage = scene(backend)
    others = submit(stage, *numbered("b", 20), task_type=OTHER_TYPE)
    submit(stage, "a")
    before = fields(stage, "b007")
    assert ["a"] == take(stage, TYPE)
    assert others == backend.zrange(place(stage, OTHER_TYPE), 0, -1)
    after = fields(stage, "b007")
    assert stage.now() - 10_000 < int(after.pop("parked_at")) <= stage.now()
    assert before == after
    assert ["empty"] == take(stage, TYPE)
    assert [] == audit(backend, stage.keys, [*others, "a"])


def test_parked_tasks_are_taken_in_their_order_before_what_came_later(backend: Redis) -> None:
    """The oldest of all served types first, then the list; who serves none of them gets nothing."""
    stage = scene(backend)
    ids = submit_at_times(stage, {"t3": OTHER_TYPE, "t2": THIRD_TYPE, "t1": OTHER_TYPE})
    assert ["empty"] == take(stage, TYPE)
    submit(stage, "t0", task_type=OTHER_TYPE)
    assert [*ids, "t0", "empty"] == take(stage, OTHER_TYPE, THIRD_TYPE, number=5)
    assert set() == backend.smembers(stage.keys.parked_types(QUEUE))
    assert [] == audit(backend, stage.keys, [*ids, "t0"])


def test_a_type_is_served_only_under_its_whole_name(backend: Redis) -> None:
    """A name that holds a served one, or a part of it, is another type."""
    stage = scene(backend)
    names = ["demo", "demo.add", "demo.add.more", "x.demo.add", "add"]
    for number, name in enumerate(names):
        submit(stage, f"t{number}", task_type=name)
    assert ["t1", "empty"] == take(stage, "demo.add", number=2)
    assert {*names} - {"demo.add"} == backend.smembers(stage.keys.parked_types(QUEUE))


def test_one_claim_parks_a_bounded_number(redis: Redis) -> None:
    """Fifty tasks of another type end one call, which says that there may be more; the next one goes on."""
    stage = scene(redis)
    ids = submit(stage, *numbered("b", 75), task_type=OTHER_TYPE) + submit(stage, "a")
    assert ["more"] == take(stage, TYPE)
    assert (50, 26) == (redis.zcard(place(stage, OTHER_TYPE)), redis.llen(stage.keys.rq_queue(QUEUE)))
    assert ["a"] == take(stage, TYPE)
    assert [] == audit(redis, stage.keys, ids)


def test_what_is_parked_leaves_a_hint_for_who_serves_it(redis: Redis) -> None:
    """The worker that parks a task took its hint; another one is there, also when the list is empty."""
    stage = scene(redis)
    put(stage, State.PENDING)
    redis.delete(stage.keys.wake(QUEUE))
    assert ["empty"] == take(stage, OTHER_TYPE)
    assert 1 == redis.llen(stage.keys.wake(QUEUE))
    assert [ID, "empty"] == take(stage, TYPE, number=2)
    assert 0 == redis.exists(stage.keys.wake(QUEUE))


def test_a_paused_queue_parks_nothing_and_gives_out_nothing_parked(backend: Redis) -> None:
    """A claim changes nothing in it, whatever types it serves; resumed, all come in their order."""
    stage = scene(backend)
    submit(stage, "b1", task_type=OTHER_TYPE)
    take(stage, TYPE)
    submit(stage, "b2", task_type=OTHER_TYPE)
    stage.store.pause_queue(QUEUE)
    before = snapshot(backend)
    assert ["empty", "empty"] == [*take(stage, TYPE), *take(stage, OTHER_TYPE)]
    assert {} == difference(before, snapshot(backend))
    stage.store.resume_queue(QUEUE)
    assert ["b1", "b2"] == take(stage, OTHER_TYPE, number=2)
    assert [] == audit(backend, stage.keys, ["b1", "b2"])


def test_a_ticket_in_a_strange_queue_is_parked_in_its_own(redis: Redis) -> None:
    """A list that was renamed, say: the task is parked where who serves its queue looks."""
    stage = scene(redis)
    put(stage, State.PENDING)
    redis.rename(stage.keys.rq_queue(QUEUE), stage.keys.rq_queue("strange"))
    assert ["empty"] == take(stage, OTHER_TYPE, queue="strange")
    assert [ID] == redis.zrange(place(stage), 0, -1)
    assert [] == audit(redis, stage.keys, [ID])


@pytest.mark.parametrize(("queue", "task_type"), [("other", TYPE), (QUEUE, OTHER_TYPE)])
def test_a_task_in_a_strange_parking_place_is_not_started_from_there(redis: Redis, queue: str, task_type: str) -> None:
    """The task says what its queue and its type are; a wrong place is put right and starts nothing."""
    stage = scene(redis)
    put(stage, State.PENDING)
    redis.zadd(place(stage, task_type, queue), {ID: 1})
    redis.sadd(stage.keys.parked_types(queue), task_type)
    assert ["empty"] == take(stage, task_type, queue=queue)
    assert State.PENDING == stage.task["state"]
    assert 0 == redis.exists(place(stage, task_type, queue))
    assert [] == audit(redis, stage.keys, [ID])


def test_a_parked_task_that_lost_its_mark_is_started_all_the_same(redis: Redis) -> None:
    """The field only tells where the task stands; the member that stays is removed by the next look."""
    stage = scene(redis)
    put(stage, State.PENDING)
    park(stage)
    redis.hdel(stage.keys.task(ID), "parked_at")
    assert [ID, "empty"] == take(stage, TYPE, number=2)
    assert [] == audit(redis, stage.keys, [ID])


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_the_last_parked_task_takes_its_type_with_it(backend: Redis, verb: str) -> None:
    """A person's verb takes a task out of the parking; nothing is left of it there."""
    stage = scene(backend)
    submit(stage, ID, "t2")
    park(stage)
    getattr(stage.store, verb)(ID, "tester")
    assert {TYPE} == backend.smembers(stage.keys.parked_types(QUEUE))
    getattr(stage.store, verb)("t2", "tester")
    assert 0 == backend.exists(stage.keys.parked_types(QUEUE), place(stage))
    assert [] == audit(backend, stage.keys, [ID, "t2"])


def test_a_parked_task_that_was_paused_goes_to_the_list_when_resumed(backend: Redis) -> None:
    """It is no more parked than any other task of its type, and has a ticket again."""
    stage = scene(backend)
    put(stage, State.PENDING)
    park(stage)
    stage.store.pause(ID, "tester")
    assert "parked_at" not in stage.task
    stage.store.resume(ID, "tester")
    assert [ID] == stage.queue
    assert [] == audit(backend, stage.keys, [ID])


# A worker that turns out not to know the type


def test_an_attempt_at_an_unknown_type_uses_nothing_up_and_does_not_come_back(backend: Redis) -> None:
    """SUSPEND and RESUME say why; the task is parked, whoever claimed it, until a claim serves its type."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    finish(stage, Event.SUSPEND, Reason.UNKNOWN_TYPE)
    entries = [entry for _, entry in backend.xrange(stage.keys.history) if entry["task"] == ID]
    assert [("SUSPEND", "unknown_type"), ("RESUME", "unknown_type")] == [
        (entry["event"], entry["reason"]) for entry in entries[-2:]
    ]
    assert (State.PENDING, "1", []) == (stage.task["state"], stage.task["attempt"], stage.queue)
    assert stage.task["entered_at"] == stage.task["parked_at"]
    assert set() == {"failures", "timeouts", "losses"} & stage.task.keys()
    assert ["empty", ID] == [*take(stage, OTHER_TYPE), *take(stage, TYPE)]
    assert [] == audit(backend, stage.keys, [ID])


@pytest.mark.parametrize(("state", "end"), [(State.PAUSING, State.PAUSED), (State.CANCELLING, State.CANCELLED)])
def test_a_persons_wish_outlives_an_unknown_type(backend: Redis, state: State, end: State) -> None:
    """A pause or a cancel that was asked for meanwhile holds, and nothing is parked."""
    stage = scene(backend)
    put(stage, state)
    finish(stage, Event.SUSPEND, Reason.UNKNOWN_TYPE)
    assert end == stage.task["state"]
    assert [] == audit(backend, stage.keys, [ID])


# Giving back


def test_parked_tasks_are_given_back_to_the_head_of_their_queues_in_their_order(backend: Redis) -> None:
    """All that was parked of these types, in whatever queue, in bounded calls; other types stay."""
    stage = scene(backend)
    ids = submit(stage, *numbered("b", 2 * BATCH + 50), task_type=OTHER_TYPE)
    others = [*submit(stage, "c", task_type=THIRD_TYPE), *submit(stage, "d", task_type=OTHER_TYPE, queue="far")]
    assert ["more", "more", "empty", "empty"] == [*take(stage, TYPE, number=3), *take(stage, TYPE, queue="far")]
    submit(stage, "a")
    assert len(ids) + 1 == stage.store.unpark([OTHER_TYPE, "demo.none"])
    assert ([*ids, "a"], ["d"]) == (stage.queue, backend.lrange(stage.keys.rq_queue("far"), 0, -1))
    assert {THIRD_TYPE} == backend.smembers(stage.keys.parked_types(QUEUE))
    assert 0 < backend.llen(stage.keys.wake(QUEUE))
    assert [] == audit(backend, stage.keys, [*ids, *others, "a"])
    assert 0 == stage.store.unpark([OTHER_TYPE])


def test_several_types_are_given_back_in_one_order(backend: Redis) -> None:
    """That in which they came, whatever their types and ids are."""
    stage = scene(backend)
    ids = submit_at_times(stage, {"t3": OTHER_TYPE, "t2": THIRD_TYPE, "t1": OTHER_TYPE})
    take(stage, TYPE)
    assert 3 == stage.store.unpark([THIRD_TYPE, OTHER_TYPE])
    assert ids == stage.queue
    assert [] == audit(backend, stage.keys, ids)


def test_a_task_is_given_back_once_though_it_is_parked_again(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker beside that does not serve the type cannot keep the caller busy for ever."""
    stage = scene(redis)
    submit(stage, *numbered("b", BATCH + 1))
    take(stage, OTHER_TYPE, number=2)
    unpark, calls = stage.store._unpark, []

    def and_park_again(types: list[str]) -> object:
        assert len(calls) < 10
        calls.append(types)
        swept = unpark(types)
        take(stage, OTHER_TYPE, number=2)
        return swept

    monkeypatch.setattr(stage.store, "_unpark", and_park_again)
    assert BATCH + 1 == stage.store.unpark([TYPE]), "each is counted once"
    assert 2 == len(calls)


def test_a_damaged_queue_keeps_no_other_from_getting_its_tasks_back(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """What is wrong is told, and the others have their turn."""
    stage = scene(redis)
    submit(stage, "b1", queue="bad")
    submit(stage, ID)
    take(stage, OTHER_TYPE, queue="bad")
    take(stage, OTHER_TYPE)
    redis.set(stage.keys.rq_queue("bad"), "text")
    assert 1 == stage.store.unpark([TYPE])
    assert [ID] == stage.queue
    assert stage.keys.rq_queue("bad") in caplog.text
    redis.delete(stage.keys.rq_queue("bad"))
    assert [] == audit(redis, stage.keys, [ID, "b1"])


# The watchdog


def test_the_watchdog_takes_no_parked_task_for_one_whose_ticket_is_gone(redis: Redis) -> None:
    """However long it waits there is no REQUEUE, and its queue is not forgotten."""
    stage = scene(redis)
    put(stage, State.PENDING)
    park(stage)
    before = snapshot(redis)
    for _ in range(3):
        assert 0 == stage.store.requeue("watchdog", QUEUE).moved
    assert {} == difference(before, snapshot(redis))


def test_the_watchdog_finds_a_lost_entry_of_a_published_type(redis: Redis) -> None:
    """Without it no claim would look at what is parked; a type that nobody publishes has nobody to claim it."""
    stage = scene(redis)
    put(stage, State.PENDING)
    park(stage)
    redis.delete(stage.keys.parked_types(QUEUE))
    stage.store.publish_types({TYPE: {}, OTHER_TYPE: {}})
    stage.store.requeue("watchdog", QUEUE)
    assert {TYPE} == redis.smembers(stage.keys.parked_types(QUEUE))
    assert [] == audit(redis, stage.keys, [ID])
    assert [ID] == take(stage, TYPE)


@pytest.mark.parametrize("name", ["types", "parked_types"])
def test_damage_beside_the_queue_does_not_stop_new_tickets(redis: Redis, name: str) -> None:
    """What is wrong with the types is told; a task whose ticket is gone gets a new one all the same."""
    stage = scene(redis)
    put(stage, State.PENDING)
    make_ticketless(stage)
    damaged = stage.keys.types if name == "types" else stage.keys.parked_types(QUEUE)
    redis.set(damaged, "text")
    swept = stage.store.requeue("watchdog", QUEUE)
    assert (1, True) == (swept.moved, damaged in swept.problems[0])
    redis.delete(damaged)
    assert [] == audit(redis, stage.keys, [ID])


def test_the_watchdog_removes_an_entry_without_tasks(redis: Redis) -> None:
    """So that a queue in which nothing waits is forgotten."""
    stage = scene(redis)
    redis.sadd(stage.keys.parked_types(QUEUE), TYPE)
    redis.hset(stage.keys.queues, QUEUE, "running")
    stage.store.requeue("watchdog", QUEUE)
    assert {} == snapshot(redis)


def test_tasks_are_given_back_also_when_the_entry_of_their_type_was_lost(redis: Redis) -> None:
    """Publishing looks into every queue for every one of its types."""
    stage = scene(redis)
    put(stage, State.PENDING)
    park(stage)
    redis.delete(stage.keys.parked_types(QUEUE))
    assert 1 == stage.store.unpark([TYPE])
    assert [] == audit(redis, stage.keys, [ID])


# Reading


def test_parked_tasks_are_counted_and_listed_as_pending(redis: Redis, client: Client) -> None:
    """In the counts of states and queues and in every listing they are what they are: PENDING."""
    stage = Scene(redis, client.store)  # type: ignore[arg-type]
    ids = [*submit(stage, *numbered("b", 5), task_type=OTHER_TYPE), *submit(stage, "c1", task_type=THIRD_TYPE)]
    take(stage, TYPE)
    ids += submit(stage, "a1", "a2")
    assert 8 == client.counts()[State.PENDING]
    assert {QUEUE: 8, "other": 0} == client.reads.pending([QUEUE, "other"])
    assert {QUEUE: {OTHER_TYPE: 5, THIRD_TYPE: 1}, "other": {}} == {
        queue: waiting.parked for queue, waiting in client.reads.waiting([QUEUE, "other"]).items()
    }
    seen, cursor = [], None
    while True:
        page = client.list(Filter(state=State.PENDING, queue=QUEUE), limit=3, cursor=cursor)
        seen += [task.id for task in page.tasks]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(ids) == sorted(seen)
    assert {QUEUE: "running"} == client.reads.queues()


def test_a_parked_task_says_since_when(redis: Redis, client: Client) -> None:
    """Its record shows it, as another version of the record, until it leaves."""
    stage = scene(redis)
    put(stage, State.PENDING)
    before = client.get(ID)
    park(stage)
    parked = client.get(ID)
    assert (None, int(stage.task["parked_at"])) == (before.parked_at, parked.to_dict()["parked_at"])
    assert before.version != parked.version
    stage.store.unpark([TYPE])
    assert before == client.get(ID)
    assert claimed(stage.store, wish("w2", "cc")).task.parked_at is None

"""Which ended tasks are to be told of, which deliveries are handed out, and what their records say."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from audit import audit
from ghostless.benchmarks.observed import counted_trips
from ghostless.jobs import deliveries as module
from ghostless.jobs.callbacks import plan, wanted
from ghostless.jobs.client import Client
from ghostless.jobs.consumer import Consumer, Heard
from ghostless.jobs.deliveries import KEPT, LEASE, OWNERS_SHARE, SHARE, Deliveries, Listed, Taken
from ghostless.jobs.delivery import DeliveryState, Try
from ghostless.jobs.errors import CorruptRecord, DeliveryNotFound, InvalidTask
from ghostless.jobs.keys import CALLBACKS
from ghostless.jobs.settings import Settings
from ghostless.statemachine import FINAL, Event, Policy, State
from redis import Redis
from scripts.seeding import ID, Scene, claimed, finish, make_outdated, put, scene, submission
from scripts.snapshot import difference, snapshot
from scripts.test_full_redis import full

URL = "https://example.com/hook"
SETTINGS = Settings(callback_secret=("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",))
DAY = 86_400_000
FAILED = Try(0, 9, 503)


@pytest.fixture
def stage(backend: Redis) -> Scene:
    """A store on a database in which a listener has told that it delivers callbacks."""
    stage = scene(backend)
    Client(SETTINGS, backend).listeners.create(CALLBACKS)
    return stage


@pytest.fixture
def client(stage: Scene) -> Client:
    """The core."""
    return Client(SETTINGS, stage.redis)


@pytest.fixture
def deliveries(client: Client) -> Deliveries:
    """What is to be told."""
    return client.deliveries


def listen(client: Client) -> Heard:
    """Return what a listener's handler of callbacks is handed."""
    [subscription] = wanted(SETTINGS)
    consumer = Consumer(client.listeners, CALLBACKS, "one", 60.0)
    heard = consumer.listen(subscription.wanted, 99, subscription.needed)
    assert heard
    consumer.done([handed.entry.id for handed in heard.handed] or ["0-1"])
    return heard


def plan_all(client: Client) -> None:
    """Plan what is to be told, as a listener does."""
    is_all = False
    while not is_all:
        heard = listen(client)
        is_all = heard.is_all
        for handed in heard.handed:
            plan(handed.entry, client)


def end(stage: Scene, client: Client, number: int = 1, host: str = "example.com", owner: str = "") -> None:
    """Let so many tasks end, and plan that they are told of."""
    for each in range(number):
        task_id = f"{host}{each}{owner}".replace(".", "-")
        stage.store.submit(submission(task_id, callback_url=f"https://{host}/hook", owner=owner))
        stage.store.cancel(task_id, "tester")
    plan_all(client)


def take(deliveries: Deliveries, most: int = 99, **under_way: int) -> list[Taken]:
    """Take what is due."""
    return deliveries.take(most, under_way)


def tell(deliveries: Deliveries, taken: Taken, outcome: Try = FAILED, fraction: float = 0.5) -> bool:
    """Write down what came of a try."""
    return deliveries.note(taken, *taken.delivery.tried(replace(outcome, at=taken.now()), 0, fraction))


def make_due(stage: Scene) -> None:
    """Let the time of every delivery have come."""
    for host in stage.redis.zrange(stage.keys.due_receivers, 0, -1):
        stage.redis.zadd(stage.keys.due_receivers, {host: 1})
        for member in stage.redis.zrange(stage.keys.due_deliveries(host), 0, -1):
            stage.redis.zadd(stage.keys.due_deliveries(host), {member: 1})


@pytest.mark.parametrize("state", sorted(FINAL))
def test_the_end_of_a_task_with_a_callback_is_planned(stage: Scene, client: Client, state: State) -> None:
    """Whichever end it is, once; and of no other task."""
    put(stage, state, callback_url=URL)
    plan_all(client)
    [listed] = client.deliveries_of(ID)
    assert f"task.{state.lower()}" == listed.delivery.type
    assert (ID, listed.delivery.id) == (listed.delivery.entry.task, stage.task[f"h{stage.task['entries']}"])
    assert [] == audit(stage.redis, stage.keys, [ID])


def test_a_task_without_a_callback_is_never_handed_out(stage: Scene, client: Client) -> None:
    """What has none costs the listener nothing."""
    for number in range(3):
        stage.store.submit(submission(f"plain{number}"))
        stage.store.cancel(f"plain{number}", "tester")
    assert () == listen(client).handed
    assert [] == client.deliveries_of("plain0")


def test_a_failure_that_is_retried_is_no_end(stage: Scene, client: Client) -> None:
    """Nor is a timeout; an operator's retry leads to another end, which is told again."""
    stage.store.submit(submission(policy=Policy(max_retries=1, backoff_base=0), callback_url=URL))
    for _ in range(2):
        stage.held = claimed(stage.store).held
        finish(stage, Event.FAIL)
        stage.store.release("watchdog")
        stage.redis.delete(stage.keys.claim("w1"))
    plan_all(client)
    assert ["task.failed"] == [listed.delivery.type for listed in client.deliveries_of(ID)]
    stage.store.retry(ID, "tester")
    stage.store.cancel(ID, "tester")
    plan_all(client)
    assert ["task.failed", "task.cancelled"] == [listed.delivery.type for listed in client.deliveries_of(ID)]


def test_a_task_that_cannot_start_is_told_of(stage: Scene, client: Client) -> None:
    """It is cancelled in the call that submits it, since what it depends on failed."""
    put(stage, State.FAILED)
    stage.store.submit(submission("t2", depends_on=(ID,), callback_url=URL))
    plan_all(client)
    assert ["task.cancelled"] == [listed.delivery.type for listed in client.deliveries_of("t2")]


def test_planning_again_changes_nothing(stage: Scene, client: Client, deliveries: Deliveries) -> None:
    """Neither while it waits nor when it is delivered: an entry may be handled twice."""
    end(stage, client)
    [taken] = take(deliveries)
    before = snapshot(stage.redis)
    deliveries.plan(taken.delivery.entry)
    tell(deliveries, taken, Try(0, 1, 200))
    deliveries.plan(taken.delivery.entry)
    names = {stage.keys.deliveries("example-com0"), stage.keys.due_deliveries("example.com"), stage.keys.due_receivers}
    assert names == difference(before, snapshot(stage.redis)).keys()
    assert [] == take(deliveries)


def test_a_callback_is_refused_while_nobody_delivers_any(backend: Redis) -> None:
    """It would wait for ever, and nobody would say so. A submit that is repeated is answered all the same."""
    stage = scene(backend)
    client = Client(SETTINGS, backend)
    stage.store.publish_types({"demo.add": {"queue": "q", "policy": Policy().pack(), "schema": {}, "description": ""}})
    before = snapshot(backend)
    assert "unserved" == stage.store.submit(submission(callback_url=URL)).word
    assert {} == difference(before, snapshot(backend))
    client.listeners.create(CALLBACKS)
    assert "moved" == stage.store.submit(submission(callback_url=URL)).word
    client.listeners.remove(CALLBACKS)
    assert "already" == stage.store.submit(submission(callback_url=URL)).word
    assert "unserved" == stage.store.submit(submission("t2", callback_url=URL)).word


def test_what_is_taken_is_nobody_elses_for_a_lease(
    stage: Scene, client: Client, deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is handed out again; of two that tried it the first to say so notes what came of it."""
    end(stage, client)
    monkeypatch.setattr(module, "LEASE", 0)
    [first] = take(deliveries)
    monkeypatch.setattr(module, "LEASE", LEASE)
    [second] = take(deliveries)
    assert [] == take(deliveries)
    assert tell(deliveries, second, Try(0, 1, 200))
    assert not tell(deliveries, first)
    [listed] = client.deliveries_of("example-com0")
    assert (DeliveryState.DELIVERED, [200], None) == (
        listed.delivery.state,
        [each.status for each in listed.delivery.tries],
        listed.next_at,
    )
    make_due(stage)
    assert [] == take(deliveries)


def test_no_host_gets_more_than_its_share(stage: Scene, client: Client, deliveries: Deliveries) -> None:
    """What is under way counts; the others have their turn, however much waits for the one that hangs."""
    end(stage, client, 130, "hangs.example")
    end(stage, client, 2, "other.example")
    assert {"hangs.example": 1, "other.example": 2} == _hosts(deliveries.take(16, {"hangs.example": SHARE - 1}))
    assert {} == _hosts(deliveries.take(16, {"hangs.example": SHARE}))
    assert {"hangs.example": SHARE} == _hosts(take(deliveries, 16))
    assert 2 == deliveries.overview().hosts


def test_hosts_take_turns(stage: Scene, client: Client, deliveries: Deliveries) -> None:
    """Where there is one place only, what waits for one comes not before what waits for others, be it ever so old."""
    end(stage, client, 5, "a.example")
    end(stage, client, 2, "b.example")
    stage.redis.zadd(stage.keys.due_receivers, {"a.example": 1, "b.example": 2})
    served: list[str] = []
    for _ in range(4):
        served += [each.delivery.receiver.host for each in take(deliveries, 1)]
        time.sleep(0.002)  # a turn is a time in ms
    assert ["a.example", "b.example"] * 2 == served


def test_an_owner_gets_his_share_whatever_hosts_he_names(stage: Scene, client: Client, deliveries: Deliveries) -> None:
    """One whose hosts all hang holds up no other, neither at a host of his own nor at one that both use."""
    end(stage, client, 3, "shared.example", owner="ann")
    for number in range(OWNERS_SHARE):
        end(stage, client, 1, f"{number}.example", owner="ann")
    end(stage, client, 1, "bob.example", owner="bob")
    end(stage, client, 1, "shared.example", owner="bob")
    make_due(stage)
    taken = deliveries.take(64, {}, {})
    owners = [each.delivery.entry.owner for each in taken]
    assert {"ann": OWNERS_SHARE, "bob": 2} == {owner: owners.count(owner) for owner in ("ann", "bob")}
    make_due(stage)
    taken = deliveries.take(64, {}, {"ann": OWNERS_SHARE})
    assert {"bob.example": 1, "shared.example": 1} == _hosts(taken)


def _hosts(taken: list[Taken]) -> dict[str, int]:
    hosts = [each.delivery.receiver.host for each in taken]
    return {host: hosts.count(host) for host in hosts}


def test_no_more_is_taken_than_there_are_places(stage: Scene, client: Client, deliveries: Deliveries) -> None:
    """The rest stays due."""
    end(stage, client, 3)
    assert [2, 1, 0] == [len(take(deliveries, 2)) for _ in range(3)]


def test_a_failed_try_comes_again_with_growing_pauses_for_a_day(
    stage: Scene, client: Client, deliveries: Deliveries
) -> None:
    """Each try is noted with its time; then it is given up, kept for 7 days, and can be asked for again."""
    end(stage, client)
    [taken] = take(deliveries)
    tell(deliveries, taken)
    [listed] = client.deliveries_of("example-com0")
    assert DeliveryState.WAITING is listed.delivery.state
    assert -1 == stage.redis.pttl(stage.keys.deliveries("example-com0"))
    assert 0 < (listed.next_at or 0) - taken.now() <= 5_000
    make_due(stage)
    [taken] = take(deliveries)
    late = replace(taken, delivery=replace(taken.delivery, since=taken.at - DAY))
    assert tell(deliveries, late)
    [listed] = client.deliveries_of("example-com0")
    assert (DeliveryState.GIVEN_UP, None, 2) == (listed.delivery.state, listed.next_at, len(listed.delivery.tries))
    assert 0 < stage.redis.pttl(stage.keys.deliveries("example-com0")) <= 7 * DAY
    assert DeliveryState.WAITING is deliveries.redeliver("example-com0", listed.delivery.id).delivery.state
    assert -1 == stage.redis.pttl(stage.keys.deliveries("example-com0"))
    [taken] = take(deliveries)
    assert tell(deliveries, taken, Try(0, 5, 200))
    [listed] = client.deliveries_of("example-com0")
    assert [503, 503, 200] == [each.status for each in listed.delivery.tries]
    assert [] == audit(stage.redis, stage.keys)


def test_what_waits_for_long_can_be_asked_for_now(stage: Scene, client: Client, deliveries: Deliveries) -> None:
    """What is due soon may be under way, and is left alone."""
    end(stage, client)
    [taken] = take(deliveries)
    assert LEASE >= (deliveries.redeliver("example-com0", taken.delivery.id).next_at or 0) - taken.at > 0
    assert [] == take(deliveries)
    after, _ = taken.delivery.tried(replace(FAILED, at=taken.at), 0, 0.5)
    assert deliveries.note(taken, after, 3_600_000)
    deliveries.redeliver("example-com0", taken.delivery.id)
    deliveries.redeliver("example-com0", taken.delivery.id)
    assert 1 == len(take(deliveries))
    with pytest.raises(DeliveryNotFound):
        deliveries.redeliver("example-com0", "1-1")


def test_a_place_that_was_lost_is_found_again_by_asking(stage: Scene, client: Client, deliveries: Deliveries) -> None:
    """A delivery that waits and that nothing would hand out any more."""
    end(stage, client)
    stage.redis.delete(stage.keys.due_deliveries("example.com"))
    [listed] = client.deliveries_of("example-com0")
    assert listed.next_at is None
    deliveries.redeliver("example-com0", listed.delivery.id)
    assert 1 == len(take(deliveries))


def planned_often(client: Client, number: int) -> None:
    """Let a task end so many times, as one that an operator retries again and again."""
    [entry] = [listed.delivery.entry for listed in client.deliveries_of("example-com0")]
    for each in range(1, number):
        client.deliveries.plan(replace(entry, id=f"{entry.at}-{each + 10}"))


def test_deliveries_are_read_together(redis: Redis) -> None:
    """However many a task has, they take the same few round trips, and so does the look for stranded ones."""
    stage = scene(redis)
    client = Client(SETTINGS, redis)
    client.listeners.create(CALLBACKS)
    end(stage, client)
    planned_often(client, 40)
    redis.delete(stage.keys.due_deliveries("example.com"))
    with counted_trips() as trips:
        assert 40 == len(client.deliveries.of_task("example-com0"))
        assert 2 == trips.number
        assert 40 == len(client.deliveries.stranded("example-com0", repairs=False))
        assert 5 == trips.number


def test_the_oldest_make_room(stage: Scene, client: Client, deliveries: Deliveries) -> None:
    """Of a task that ends again and again the newest records are kept; what waits is never dropped."""
    end(stage, client)
    [waits] = client.deliveries_of("example-com0")
    planned_often(client, KEPT)
    for taken in [each for _ in range(KEPT) for each in take(deliveries)]:
        if taken.delivery.id != waits.delivery.id:
            tell(deliveries, taken, Try(0, 1, 200))
    entry = waits.delivery.entry
    for each in range(3):
        deliveries.plan(replace(entry, id=f"{entry.at + 1}-{each}"))
    kept = [listed.delivery.id for listed in client.deliveries_of("example-com0")]
    assert KEPT == len(kept)
    assert [waits.delivery.id, f"{entry.at}-14", f"{entry.at + 1}-2"] == [kept[0], kept[1], kept[-1]]


def test_a_record_that_was_lost_is_made_anew(stage: Scene, client: Client, deliveries: Deliveries) -> None:
    """From the history of its task, when it is due; the receiver knows it by the same id."""
    end(stage, client)
    [before] = client.deliveries_of("example-com0")
    stage.redis.delete(stage.keys.deliveries("example-com0"))
    assert [] == take(deliveries)
    [taken] = take(deliveries)
    assert before.delivery == taken.delivery
    assert [] == audit(stage.redis, stage.keys)


def test_the_records_of_a_task_stay_while_one_of_them_waits(
    stage: Scene, client: Client, deliveries: Deliveries
) -> None:
    """However long nobody delivers, also when another of its ends was told meanwhile."""
    put(stage, State.FAILED, callback_url=URL)
    plan_all(client)
    stage.store.retry(ID, "tester")
    stage.store.cancel(ID, "tester")
    plan_all(client)
    first, second = take(deliveries)
    assert tell(deliveries, first, Try(0, 1, 200))
    assert -1 == stage.redis.pttl(stage.keys.deliveries(ID))
    assert tell(deliveries, second, Try(0, 1, 200))
    assert 0 < stage.redis.pttl(stage.keys.deliveries(ID)) <= 7 * DAY
    assert [] == audit(stage.redis, stage.keys, [ID])


def test_a_purged_task_is_told_of_all_the_same(stage: Scene, client: Client, deliveries: Deliveries) -> None:
    """Its callback goes with it, its deliveries stay for their time."""
    put(stage, State.CANCELLED, callback_url=URL)
    plan_all(client)
    make_outdated(stage)
    assert 1 == stage.store.purge().moved
    assert not stage.redis.exists(stage.keys.callback(ID))
    [taken] = take(deliveries)
    assert tell(deliveries, taken, Try(0, 1, 200))
    assert [DeliveryState.DELIVERED] == [listed.delivery.state for listed in client.deliveries_of(ID)]
    assert [] == audit(stage.redis, stage.keys)


def damages(stage: Scene) -> Iterator[str]:
    """Damage the delivery of a task in one way after the other; yield what is then told."""
    name, due = stage.keys.deliveries("example-com0"), stage.keys.due_deliveries("example.com")
    [(field, record)] = stage.redis.hgetall(name).items()
    for text in ("{}", record.replace("https", "ftp"), record.replace(f'"{field}"', '"one-1"'), record[:-9]):
        stage.redis.hset(name, field, text)
        yield "passed over"
    stage.redis.delete(name, stage.keys.callback("example-com0"))
    yield "the record of its callback's delivery is gone"
    stage.redis.set(name, "of another type")
    yield f"{name}: expected hash"
    stage.redis.delete(name, due)
    stage.redis.set(due, "of another type")
    yield f"{due}: expected zset"


def test_what_is_damaged_holds_up_no_other(
    stage: Scene, client: Client, deliveries: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once, and not looked at again."""
    end(stage, client)
    due = stage.keys.due_deliveries("example.com")
    members = stage.redis.zrange(due, 0, -1)
    for told in damages(stage):
        caplog.clear()
        stage.redis.zadd(stage.keys.due_receivers, {"example.com": 1})
        if stage.redis.type(due) != "string":
            stage.redis.zadd(due, dict.fromkeys(members, 1))
        end(stage, client, 1, "sound.example")
        assert {"sound.example"} >= _hosts(take(deliveries)).keys()
        assert told in caplog.text
        caplog.clear()
        take(deliveries)
        assert "" == caplog.text


@pytest.mark.parametrize("kind", ["list", "string"])
def test_a_wrong_type_is_named_and_nothing_is_written(redis: Redis, kind: str) -> None:
    """Of the index or of the records, for whoever reads or writes them."""
    stage = scene(redis)
    client = Client(SETTINGS, redis)
    client.listeners.create(CALLBACKS)
    end(stage, client)
    [taken] = take(client.deliveries)
    due = stage.keys.due_deliveries("example.com")
    for name in (due, stage.keys.due_receivers, stage.keys.deliveries("example-com0")):
        held = redis.dump(name)
        redis.delete(name)
        redis.set(name, "x") if kind == "string" else redis.rpush(name, "x")
        before = snapshot(redis)
        calls = [lambda: tell(client.deliveries, taken), lambda: client.deliveries.plan(taken.delivery.entry)]
        calls += [lambda: client.deliveries.redeliver("example-com0", taken.delivery.id)]
        for call in calls:
            with pytest.raises(CorruptRecord, match=f"{name}: expected"):
                call()
        assert {} == difference(before, snapshot(redis))
        redis.delete(name)
        redis.restore(name, 0, held)  # type: ignore[arg-type]


def test_a_full_redis_stops_no_delivery(redis: Redis) -> None:
    """What is due is handed out, what came of it is noted, what ended is planned: as the ends of tasks are written."""
    stage = scene(redis)
    client = Client(SETTINGS, redis)
    client.listeners.create(CALLBACKS)
    end(stage, client, 2)
    stage.store.submit(submission(callback_url=URL))
    stage.store.cancel(ID, "tester")
    with full(redis):
        plan_all(client)
        one, two, three = take(client.deliveries)
        assert tell(client.deliveries, one, Try(0, 1, 200))
        assert tell(client.deliveries, two)
        assert tell(client.deliveries, three, replace(FAILED, status=410))
        client.deliveries.redeliver(three.delivery.entry.task, three.delivery.id)
        assert 1 == len(take(client.deliveries))
    assert [] == audit(redis, stage.keys)


def listed_of(client: Client, task_id: str) -> Listed:
    """Return the only delivery of a task."""
    [listed] = client.deliveries_of(task_id)
    return listed


@pytest.mark.parametrize(("status", "state"), [(200, "delivered"), (299, "delivered"), (410, "gone")])
def test_an_answer_that_ends_it(stage: Scene, client: Client, deliveries: Deliveries, status: int, state: str) -> None:
    """Taken, or wanted no more."""
    end(stage, client)
    tell(deliveries, take(deliveries)[0], Try(0, 1, status))
    assert state == listed_of(client, "example-com0").delivery.state
    assert 0 == deliveries.overview().hosts


def test_an_invalid_url_is_refused_by_the_client(client: Client, stage: Scene) -> None:
    """With the field named."""
    with pytest.raises(InvalidTask, match="callback_url: expected"):
        client.submit("demo.add", {}, callback_url="http://example.com/")

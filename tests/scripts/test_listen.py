"""What a consumer group of the history hands to its listeners, and how a group stands."""

from collections.abc import Callable

import pytest
from ghostless.jobs.consumer import Consumer, Heard
from ghostless.jobs.errors import CorruptRecord, GroupNotFound, RedisFull
from ghostless.jobs.groups import BEGINNING, PARKED_MOST, Groups
from ghostless.jobs.model import Entry
from ghostless.jobs.settings import Settings
from ghostless.statemachine import Event, State
from helpers import eventually
from redis import Redis
from scripts.seeding import Scene, finish, make_outdated, put, scene, submission
from scripts.test_full_redis import full

GROUP = "listener:tell"
EVERYTHING = tuple(Event)


@pytest.fixture
def stage(backend: Redis) -> Scene:
    """A store on an empty database."""
    return scene(backend)


@pytest.fixture
def groups(stage: Scene) -> Groups:
    """What is known of the groups, with the one of these tests."""
    found = Groups(stage.redis, Settings())
    found.create(GROUP)
    return found


Named = Callable[..., Consumer]


@pytest.fixture
def consumer(stage: Scene, groups: Groups) -> Named:
    """Make a listener's consumer; with a lease of 0 s it takes whatever others hold."""

    def make(name: str = "one", lease: float = 60.0) -> Consumer:
        return Consumer(groups, GROUP, name, lease)

    return make


def events(heard: Heard | None) -> list[str]:
    """Return the events that were handed out."""
    assert heard
    return [handed.entry.event for handed in heard.handed]


def ids(heard: Heard | None) -> list[str]:
    """Return the ids of the entries that were handed out."""
    assert heard
    return [handed.entry.id for handed in heard.handed]


def pending(stage: Scene) -> int:
    """Return how many entries are handed out and not done with."""
    return stage.redis.xpending(stage.keys.history, GROUP)["pending"]


def beats(stage: Scene) -> set[str]:
    """Return the fields in which consumers tell that they are alive."""
    return {field for field in stage.redis.hkeys(stage.keys.listener(GROUP)) if field.startswith("beat:")}


def test_each_entry_is_handed_to_one_of_a_group_in_order(stage: Scene, consumer: Named) -> None:
    """What one was handed the other is not; what is done with is forgotten."""
    for number in range(4):
        stage.store.submit(submission(f"t{number}"))
    first = consumer("one").listen(EVERYTHING, 3)
    second = consumer("two").listen(EVERYTHING, 3)
    assert first
    assert second
    assert ["t0", "t1", "t2"] == [handed.entry.task for handed in first.handed]
    assert (["t3"], True, False) == ([handed.entry.task for handed in second.handed], second.is_all, first.is_all)
    consumer("one").done(ids(first))
    consumer("two").done(ids(second))
    assert 0 == pending(stage)
    assert [] == events(consumer().listen(EVERYTHING, 3))


def test_a_new_group_begins_with_what_comes_next_or_with_the_oldest(stage: Scene) -> None:
    """A first start does not fire for the whole past unless it is told to; a second one changes nothing."""
    groups = Groups(stage.redis, Settings())
    stage.store.submit(submission("past"))
    assert groups.create("new")
    assert groups.create("old", BEGINNING)
    assert not groups.create("new", BEGINNING)
    stage.store.submit(submission("now"))
    seen = {name: Consumer(groups, name, "c", 60.0).listen(EVERYTHING, 9) for name in ("new", "old")}
    assert {"new": ["now"], "old": ["past", "now"]} == {
        name: [handed.entry.task for handed in heard.handed] for name, heard in seen.items() if heard
    }


def test_a_group_that_is_gone_is_told(stage: Scene, consumer: Named) -> None:
    """After FLUSHALL there is neither a history nor a group: the listener is told so, and whatever it holds is gone."""
    one = consumer()
    stage.redis.flushall()
    assert one.listen(EVERYTHING, 9) is None
    one.renew(["1-1"])
    one.begin("1-1", 1)
    one.give_back(["1-1"])
    stage.store.submit(submission())
    assert one.listen(EVERYTHING, 9) is None


def test_what_is_not_wanted_is_done_with_at_once(stage: Scene, consumer: Named) -> None:
    """Only events and states that a subscription names leave Redis; the others are never pending."""
    put(stage, State.PROCESSING)
    finish(stage, Event.COMPLETE)
    heard = consumer().listen((Event.START, State.SUCCESS), 9)
    assert ["START", "COMPLETE"] == events(heard)
    assert 2 == pending(stage)


def test_what_was_not_renewed_for_a_lease_is_taken_over(stage: Scene, consumer: Named) -> None:
    """By whoever asks; how often the handler was begun comes with it, and to be handed out is no try."""
    stage.store.submit(submission())
    one, two = consumer("one"), consumer("two", lease=0.1)
    heard = one.listen(EVERYTHING, 9)
    assert heard
    assert [0] == [handed.begun for handed in heard.handed]
    assert [] == events(two.listen(EVERYTHING, 9))
    one.begin(ids(heard)[0], 3)

    def taken() -> Heard:
        again = two.listen(EVERYTHING, 9)
        assert again
        assert again.handed
        return again

    again = eventually(taken)
    assert [3] == [handed.begun for handed in again.handed]
    assert ids(heard) == ids(again)


def test_what_is_given_back_is_the_next_ones_at_once(stage: Scene, consumer: Named) -> None:
    """A listener that stops does not keep others waiting for a lease, and leaves no trace once it holds nothing."""
    stage.store.submit(submission())
    one, two = consumer("one"), consumer("two")
    heard = one.listen(EVERYTHING, 9)
    one.give_back(ids(heard))
    assert ids(heard) == ids(two.listen(EVERYTHING, 9))
    one.dismiss(0, leaving=True)
    assert ["two"] == [row["name"] for row in stage.redis.xinfo_consumers(stage.keys.history, GROUP)]


def test_consumers_that_were_silent_for_long_are_removed_when_they_hold_nothing(stage: Scene, consumer: Named) -> None:
    """So nothing grows with each restart, and nothing that a dead one held is forgotten."""
    stage.store.submit(submission())
    consumer("holds").listen(EVERYTHING, 9)
    consumer("idle").listen(EVERYTHING, 9)
    consumer("one").dismiss(60_000)
    assert {"beat:holds", "beat:idle"} == beats(stage)

    def only_one() -> None:
        consumer("one").dismiss(1)
        assert {"beat:holds"} == beats(stage)

    eventually(only_one)
    assert ["holds"] == [row["name"] for row in stage.redis.xinfo_consumers(stage.keys.history, GROUP)]


def test_an_entry_that_was_purged_after_it_was_handed_out_is_counted_and_forgotten(
    stage: Scene, groups: Groups, consumer: Named
) -> None:
    """It neither comes again and again nor keeps others from coming; whoever holds it may end what he does."""
    put(stage, State.CANCELLED)
    consumer("dead").listen(EVERYTHING, 9)
    held = pending(stage)
    make_outdated(stage)
    stage.store.purge()
    two = consumer("two", lease=0.0)
    stage.store.submit(submission("next"))
    assert ["SUBMIT"] == events(two.listen(EVERYTHING, 9))
    assert (1, held) == (pending(stage), groups.all()[0].missed)


def test_entries_that_were_purged_before_anybody_looked_are_counted(
    stage: Scene, groups: Groups, consumer: Named
) -> None:
    """A listener that is away for longer than a task is kept misses it, and it shows how much."""
    stage.store.submit(submission("before"))
    assert ["SUBMIT"] == events(consumer().listen(EVERYTHING, 9))
    put(stage, State.CANCELLED)
    written = len(stage.redis.xrange(stage.keys.history)) - 1
    make_outdated(stage)
    stage.store.purge()
    stage.store.submit(submission("after"))
    assert ["SUBMIT"] == events(consumer().listen(EVERYTHING, 9))
    assert written == groups.all()[0].missed
    consumer().listen(EVERYTHING, 9)
    assert written == groups.all()[0].missed


def test_a_damaged_entry_is_passed_over(stage: Scene, consumer: Named) -> None:
    """It is told in the log, and keeps nobody behind it waiting."""
    stage.redis.xadd(stage.keys.history, {"event": "START", "attempt": "many"})
    stage.redis.xadd(stage.keys.history, {"nothing": "known"})
    stage.store.submit(submission())
    assert ["SUBMIT"] == events(consumer().listen(EVERYTHING, 9))
    assert 1 == pending(stage)


@pytest.mark.parametrize("field", ["seen", "missed"])
def test_damage_is_told_before_anything_is_handed_out(stage: Scene, consumer: Named, field: str) -> None:
    """A count that is none, and a key of another type, are named."""
    stage.store.submit(submission())
    stage.redis.hset(stage.keys.listener(GROUP), field, "many")
    with pytest.raises(CorruptRecord, match=field):
        consumer().listen(EVERYTHING, 9)
    stage.redis.set(stage.keys.listener(GROUP), "x")
    with pytest.raises(CorruptRecord, match=GROUP):
        consumer().listen(EVERYTHING, 9)
    assert 0 == pending(stage)


def parked_entry(groups: Groups, one: Consumer) -> Entry:
    """Listen, and park what was handed out."""
    heard = one.listen(EVERYTHING, 9)
    assert heard
    entry = heard.handed[0].entry
    one.park(entry, 8, "Traceback\nValueError: no")
    return entry


def test_what_is_parked_is_shown_and_tried_again(stage: Scene, groups: Groups, consumer: Named) -> None:
    """With its error and its tries; a replay makes it the next listener's, as if it were new."""
    stage.store.submit(submission())
    entry = parked_entry(groups, consumer())
    assert 0 == pending(stage)
    [parked], _ = groups.parked(GROUP)
    assert (entry, 8, "Traceback\nValueError: no") == (parked.entry, parked.begun, parked.error)
    assert ([], [], []) == groups.replay(GROUP, ["1-1"])
    assert ([entry.id], [], []) == groups.replay(GROUP)
    assert ([], []) == groups.parked(GROUP)
    heard = consumer("two").listen(EVERYTHING, 9)
    assert heard
    assert [(entry, 0)] == [(handed.entry, handed.begun) for handed in heard.handed]


def test_what_was_purged_cannot_be_tried_again(stage: Scene, groups: Groups, consumer: Named) -> None:
    """It stays parked, for a person to see."""
    put(stage, State.CANCELLED)
    entry = parked_entry(groups, consumer())
    make_outdated(stage)
    stage.store.purge()
    assert ([], [entry.id], []) == groups.replay(GROUP)
    assert [entry] == [parked.entry for parked in groups.parked(GROUP)[0]]


def test_parked_entries_are_bounded(stage: Scene, groups: Groups, consumer: Named) -> None:
    """The newest are kept, and none for ever."""
    stage.store.submit(submission())
    heard, key = consumer().listen(EVERYTHING, 9), stage.keys.parked_entries(GROUP)
    assert heard
    stage.redis.rpush(key, *["x"] * PARKED_MOST)
    consumer().park(heard.handed[0].entry, 1, "")
    assert PARKED_MOST == stage.redis.llen(key)
    assert stage.redis.ttl(key) > 86_400


def test_how_a_group_stands(stage: Scene, groups: Groups, consumer: Named) -> None:
    """Who is alive, what was not looked at yet and how old that is, what is pending, parked and missed."""
    [fresh] = groups.all()
    assert (GROUP, (), 0, 0, 0) == (fresh.name, fresh.listeners, fresh.behind, fresh.pending, fresh.missed)
    stage.store.submit(submission())
    stage.store.submit(submission("t2"))
    consumer().listen(EVERYTHING, 1)

    def later() -> None:
        [status] = groups.all()
        assert (("one",), 1) == (status.listeners, status.pending)
        assert status.behind > 0
        assert status.oldest_pending > 0

    eventually(later)
    assert groups.all()[0].lag == 1


def test_a_group_is_removed_with_all_that_is_its_own(stage: Scene, groups: Groups, consumer: Named) -> None:
    """And one that there is not is refused by its name."""
    stage.store.submit(submission())
    parked_entry(groups, consumer())
    groups.remove(GROUP)
    assert [] == groups.all()
    assert not stage.redis.exists(stage.keys.listener(GROUP), stage.keys.parked_entries(GROUP))
    with pytest.raises(GroupNotFound, match=GROUP):
        groups.remove(GROUP)
    stage.redis.flushall()
    assert [] == groups.all()
    with pytest.raises(GroupNotFound):
        groups.remove("other")


def test_a_full_redis_keeps_nobody_from_listening(redis: Redis) -> None:
    """What is there is handed out, counted, renewed and done with; only parking waits for memory."""
    stage = scene(redis)
    groups = Groups(redis, Settings())
    groups.create(GROUP)
    one = Consumer(groups, GROUP, "one", 60.0)
    stage.store.submit(submission())
    with full(redis):
        heard = one.listen(EVERYTHING, 9)
        one.begin(ids(heard)[0], 1)
        one.renew(ids(heard))
        one.done(ids(heard))
        assert [] == events(one.listen(EVERYTHING, 9))
        one.give_back([])
        with pytest.raises(RedisFull):
            one.park(heard.handed[0].entry, 1, "no")
    assert 0 == pending(stage)

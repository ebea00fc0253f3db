"""What makes one event for many cheap, by counts and not by clocks, and that nobody pays for who is slow."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ghostless.jobs.model import Entry
from ghostless.web import frames, sse
from ghostless.web.cursors import Cursor
from ghostless.web.feeds import READ_AT_ONCE
from ghostless.web.frames import Moment
from ghostless.web.hub import Hub
from ghostless.web.rooms import PENDING_LIMIT, Reset, Room, Subscription
from ghostless.web.sse import Stream, Terms
from ghostless.web.watch import Watch

CLIENTS = 300
HERE = Cursor("e1", (100, 0))


class NoPast:
    """A history without a database."""

    redis = keys = None

    def newest(self) -> Cursor:
        return HERE


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A hub that was started, without threads: tests publish themselves."""
    monkeypatch.setattr(Hub, "_start_feeds", lambda self: self._go_on_from(HERE))
    return Hub(NoPast(), CLIENTS)  # type: ignore[arg-type]


@pytest.fixture
def room() -> Room:
    """A room that nobody is in."""
    return Room(Watch())


def move(number: int) -> Moment:
    """Return a move of a task, later than all before."""
    return Moment(Entry(f"{100 + number}-0", "t", "SUBMIT", "", "PENDING", 0, "a", "user", "", "work", "q", "ann"))


def say(hub: Hub, *numbers: int) -> None:
    hub.publish([move(number) for number in numbers], (100 + numbers[-1], 0))


def following(hub: Hub, watch: Watch, terms: Terms | None = None) -> Callable[[], bytes]:
    """Return what gives the next block of a new stream."""
    blocks = iter(Stream(hub, hub._past, watch, hub.subscribe(watch), terms))
    next(blocks)
    return lambda: next(blocks)


def taken(member: Subscription) -> list[int] | None:
    """Return which moves a member takes; None when it lost some."""
    batch = member.take(HERE)
    return None if batch.lost else [moment.at[0] - 100 for moment in batch.moves.moments]


def test_an_event_is_encoded_once_for_all_who_hear_it(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are, and whatever else each of them follows."""
    encoded: list[str] = []
    view = frames.move_view
    monkeypatch.setattr(frames, "move_view", lambda entry: encoded.append(entry.id) or view(entry))
    watches = (Watch(), Watch(owner="ann"), Watch(queue="q"))
    streams = [following(hub, watches[number % 3]) for number in range(CLIENTS)]
    say(hub, 1)
    assert 1 == len({next_block() for next_block in streams})
    assert ["101-0"] == encoded


def test_what_waits_is_one_block_and_joined_once_for_all(hub: Hub) -> None:
    """A client that was busy gets all at once, in one write; and those who lack the same get the very same bytes."""
    streams = [following(hub, Watch()) for _ in range(CLIENTS)]
    for number in range(1, 11):
        say(hub, number)
    blocks = [next_block() for next_block in streams]
    assert {10} == {block.count(b"event: task\n") for block in blocks}
    assert 1 == len({id(block) for block in blocks})


def test_a_move_looks_once_at_all_who_listen_to_the_same(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is for them is asked once, not once for each; and who was called already is not called again."""
    asked: list[Any] = []
    called: list[Any] = []
    accepts, call = Watch.accepts, Subscription.call
    monkeypatch.setattr(Watch, "accepts", lambda self, subject: asked.append(self) or accepts(self, subject))
    monkeypatch.setattr(Subscription, "call", lambda self: called.append(self) or call(self))
    for _ in range(CLIENTS):
        hub.subscribe(Watch(owner="ann"))
    say(hub, 1, 2, 3)
    assert 3 == len(asked)
    assert CLIENTS == len(called)


def test_who_lost_together_cost_no_more_than_one(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a burst each move is matched and encoded once for all, and they get the very same bytes, by parts."""
    many, encoded, asked = PENDING_LIMIT + 50, list[str](), list[Any]()
    view, accepts = frames.move_view, Watch.accepts
    streams = [following(hub, Watch(owner="ann")) for _ in range(CLIENTS)]
    for number in range(1, many + 1):
        say(hub, number)
    monkeypatch.setattr(frames, "move_view", lambda entry: encoded.append(entry.id) or view(entry))
    monkeypatch.setattr(Watch, "accepts", lambda self, subject: asked.append(self) or accepts(self, subject))
    told = [(next_block(), next_block()) for next_block in streams]
    assert (many, many) == (len(encoded), len(asked))
    assert 1 == len({(id(first), id(second)) for first, second in told})
    assert [PENDING_LIMIT, 50] == [block.count(b"event: task\n") for block in told[0]]


def test_a_stream_at_its_end_leaves_the_rest_to_the_next_one(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes slowly holds no stream open beyond its time, and is told nothing behind what was left out."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)  # the streams' own; all others' goes on
    monkeypatch.setattr(sse, "time", clock)
    next_block = following(hub, Watch(), Terms(seconds=60))
    for number in range(1, 2 * PENDING_LIMIT):
        say(hub, number)
    assert PENDING_LIMIT == next_block().count(b"event: task\n")
    clock.now = 61.0
    assert re.fullmatch(rb"retry: \d+\n\n", next_block())


def test_the_clock_looks_after_clients(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in each interval, whatever their streams do meanwhile; and after nobody for whom that was not asked."""
    looks: list[float] = []
    monkeypatch.setattr(sse, "HEARTBEAT", 0.0)
    next_block = following(hub, Watch(), Terms(peer=SimpleNamespace(hang_up_if_gone=looks.append)))  # type: ignore[arg-type]
    hub.subscribe(Watch())
    assert [True] * 3 == [b": still here" in next_block() for _ in range(3)]
    assert [] == looks
    ticks = iter((True, True, False))
    monkeypatch.setattr(hub, "paused", lambda _seconds: next(ticks))
    hub._keep_time()
    assert [0.0, 0.0] == looks
    monkeypatch.setattr(sse, "HEARTBEAT", 3_600.0)
    ticks = iter((True, False))
    following(hub, Watch(), Terms(peer=SimpleNamespace(hang_up_if_gone=looks.clear)))  # type: ignore[arg-type]
    hub._keep_time()
    assert 3 == len(looks)


def test_a_burst_read_at_once_overflows_no_room(room: Room) -> None:
    """One read of the history brings less than what a room keeps, also for who did not take the one before it."""
    member = room.enter()
    for number in range(2 * READ_AT_ONCE):
        room.push(move(number))
    assert list(range(2 * READ_AT_ONCE)) == taken(member)


def test_only_who_is_slow_loses_something(room: Room) -> None:
    """Those beside it take each move as it comes; it learns that it lost some, and is told the next ones again."""
    fast, slow = room.enter(), room.enter()
    for number in range(1, PENDING_LIMIT + 2):
        room.push(move(number))
        assert [number] == taken(fast)
    assert taken(slow) is None
    room.push(move(500))
    assert [500] == taken(slow) == taken(fast)


def test_a_room_keeps_what_somebody_lacks_and_no_more(room: Room) -> None:
    """Nothing when all took it, or left; and never more than the limit."""
    fast, slow, away = room.enter(), room.enter(), room.enter()
    room.push(move(1))
    room.push(move(2))
    room.leave(away)
    room.leave(away)
    assert [1, 2] == taken(fast) == taken(slow)
    assert ([], (0, frames.NO_MOVES)) == (room._moments, room._taken)
    for number in range(3, 3 + 2 * PENDING_LIMIT):
        room.push(move(number))
        taken(fast)
    assert PENDING_LIMIT == len(room._moments)
    room.leave(slow)
    assert [] == room._moments


def test_for_who_left_nothing_waits(room: Room) -> None:
    """A look after the end takes nothing from those who are still there."""
    member, away = room.enter(), room.enter()
    room.leave(away)
    room.push(move(1))
    assert [] == taken(away)
    assert [1] == taken(member)


def test_who_comes_late_hears_only_what_comes_then(room: Room) -> None:
    """What waits for others is not for a new member, which has read from Redis up to here."""
    first = room.enter()
    room.push(move(1))
    second = room.enter()
    room.push(move(2))
    assert [2] == taken(second)
    assert [1, 2] == taken(first)


def test_after_a_reset_nothing_is_lost_that_came_before(room: Room) -> None:
    """What waited belonged to a history that is no more, also for who had lost some of it."""
    fast, slow = room.enter(), room.enter()
    room.drop()
    taken(fast)
    room.reset(Reset("epoch", HERE))
    room.push(move(1))
    for member in (fast, slow):
        batch = member.take(HERE)
        assert ("epoch", False, 1) == (batch.reset and batch.reset.reason, batch.lost, len(batch.moves.moments))

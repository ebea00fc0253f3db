"""Who is called of the workers that wait for a task, and that no call is lost."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ghostless.web.claiming import Waiter, WaitingRoom
from ghostless.web.hub import HubClosed


class SilentHub:
    """A hub that tells of nothing until it is closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    @property
    def alive(self) -> bool:
        return not self.closed.is_set()

    @contextmanager
    def subscribed(self, _watch: Any) -> Iterator[None]:
        """Listen."""
        yield

    def take(self, _inbox: None, _seconds: float) -> Any:
        """Wait for what does not come."""
        self.closed.wait(20)
        raise HubClosed


@pytest.fixture
def hub() -> Iterator[SilentHub]:
    """The hub, which ends with the test."""
    hub = SilentHub()
    yield hub
    hub.closed.set()


@pytest.fixture
def room(hub: SilentHub) -> WaitingRoom:
    """A room whose thread listens already, and calls nobody by itself."""
    room = WaitingRoom(hub)  # type: ignore[arg-type]
    with room.waiting("other", ()) as first:
        assert first.wait(10), "who comes first looks again when the thread listens"
        first.found_nothing()
    return room


def called(*waiters: Waiter) -> list[bool]:
    """Tell who is called."""
    return [waiter.signal.is_set() for waiter in waiters]


def test_the_first_in_line_who_serves_it_is_called(room: WaitingRoom) -> None:
    """One of them; the next task calls the next one, and a task that nobody serves calls nobody."""
    with (
        room.waiting("q", ("a",)) as first,
        room.waiting("q", ("a", "b")) as second,
        room.waiting("q", ("a",)) as third,
        room.waiting("r", ("a",)) as elsewhere,
    ):
        room.call("q", "b")
        assert [False, True, False, False] == called(first, second, third, elsewhere)
        room.call("q", "a")
        room.call("q", "a")
        assert [True, True, True, False] == called(first, second, third, elsewhere)
        room.call("q", "a")
        room.call("q", "c")
        assert not elsewhere.signal.is_set()


def test_a_call_that_comes_too_late_goes_to_the_next(room: WaitingRoom) -> None:
    """Called just when its wait ended, or when its worker hung up: another one looks instead."""
    with room.waiting("q", ("a",)) as next_one:
        for looked in (False, True):
            with room.waiting("q", ("a",)) as second:
                next_one.signal.set()  # so that the other one is called
                room.call("q", "a")
                assert second.signal.is_set()
                next_one.signal.clear()
                assert not looked or second.wait(0)
            assert next_one.signal.is_set()


def test_who_takes_a_task_lets_the_next_look_for_more(room: WaitingRoom) -> None:
    """One who found nothing does not."""
    with room.waiting("q", ("a",)) as next_one:
        next_one.signal.set()
        with room.waiting("q", ("a",)) as second:
            room.call("q")
            next_one.signal.clear()
            assert second.wait(0)
            second.found_nothing()
        assert not next_one.signal.is_set()


def test_nobody_waits_for_calls_that_will_not_come(room: WaitingRoom, hub: SilentHub) -> None:
    """When the hub is closed everybody is called to be sent away, and nobody stands in line afterwards."""
    with room.waiting("q", ("a",)) as waiter:
        hub.closed.set()
        assert waiter.wait(10)
        assert waiter.closed
    assert 0 == len(room)

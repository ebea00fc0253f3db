"""How many clients one process serves, and one token or address in it."""

import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from flask import Flask, g
from ghostless.jobs.errors import InvalidSetting
from ghostless.web.limits import THREADS_PLAIN, Limits, Share, TooManyListeners
from ghostless.web.listening import Listening
from ghostless.web.serve import spare_the_collector
from ghostless.web.watch import Watch


def test_each_holds_his_share() -> None:
    """One more is refused, whatever others hold; what was given back can be taken again."""
    share = Share("address", 2)
    with ExitStack() as held:
        for name in ("a", "a", "b"):
            held.enter_context(share.taken(name))
        with pytest.raises(TooManyListeners, match="2 streams and long polls are open for this address"):
            held.enter_context(share.taken("a"))
        held.enter_context(share.taken("b"))
    with share.taken("a"):
        pass
    assert not share._held


def test_a_share_of_none_is_none() -> None:
    """The limit 0 turns streams and long polls off."""
    with pytest.raises(TooManyListeners), Share("token", 0).taken("a"):
        pass


def test_a_share_is_exact_whoever_asks_at_once() -> None:
    """Of many threads exactly so many get in."""
    share = Share("token", 7)

    def enter(held: ExitStack) -> bool:
        try:
            held.enter_context(share.taken("a"))
        except TooManyListeners:
            return False
        return True

    with ExitStack() as held, ThreadPoolExecutor(20) as pool:
        assert 7 == sum(pool.map(enter, [held] * 100))


def test_threads_bound_the_streams() -> None:
    """Each stream holds a thread; some are kept for plain requests, and fewer than that are a mistake."""
    assert 46 == Limits(10_000, 9_000).with_threads(50).subscribers
    assert 10 == Limits(20, 10).with_threads(500).subscribers
    with pytest.raises(InvalidSetting, match="threads"):
        Limits(10_000, 9_000).with_threads(THREADS_PLAIN)


class Broken:
    """A hub that fails when it is left."""

    def subscribe(self, _watch: Watch) -> object:
        return object()

    def unsubscribe(self, _inbox: object) -> None:
        raise ArithmeticError

    def take_place(self) -> None:
        pass

    def leave_place(self) -> None:
        raise ZeroDivisionError


def test_what_was_held_is_given_back_whatever_fails() -> None:
    """A fault of one part must not let an address or a token run out of places for ever."""
    desk: Any = SimpleNamespace(hub=Broken(), addresses=Share("address", 1), tokens=Share("token", 1))
    with Flask("test").test_request_context(environ_base={"REMOTE_ADDR": "::1"}):
        g.caller = SimpleNamespace(credential=SimpleNamespace(token=SimpleNamespace(id="a")))
        listening = Listening(desk, Watch())
        listening.__enter__()
    with pytest.raises(ZeroDivisionError):
        listening.close()
    assert ({}, {}) == (desk.addresses._held, desk.tokens._held)


def test_the_garbage_of_the_start_is_not_kept() -> None:
    """What is never looked at again is what is in use."""
    threshold, garbage = gc.get_threshold(), Broken()
    garbage.itself = garbage  # type: ignore[attr-defined]
    left = ref(garbage)
    del garbage
    try:
        spare_the_collector()
        assert left() is None
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)

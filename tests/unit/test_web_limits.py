"""How many clients one process serves, and one token or address in it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from ghostless.jobs.errors import InvalidSetting
from ghostless.web.limits import THREADS_PLAIN, Limits, Share, TooManyListeners


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

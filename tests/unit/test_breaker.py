"""The circuit breaker of setups, on a clock of its own."""

from ghostless.jobs.breaker import FIRST_PAUSE, LONGEST_PAUSE, Breaker


class Clock:
    """A clock that stands still unless it is moved on."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_three_failures_in_a_row_set_a_type_aside() -> None:
    """Two failures change nothing; the third one does, with the last reason; other types go on."""
    breaker = Breaker(Clock())
    assert [0, 0, FIRST_PAUSE] == [breaker.failed("a", why) for why in ("one", "two", "three")]
    breaker.failed("b", "one")
    assert {"a": "three"} == breaker.set_aside


def test_a_setup_that_passes_is_forgiven() -> None:
    """Failures count only in a row."""
    breaker = Breaker(Clock())
    for _ in range(5):
        assert 0 == breaker.failed("a", "one")
        assert 0 == breaker.failed("a", "two")
        breaker.passed("a")
    assert {} == breaker.set_aside


def test_after_the_pause_there_is_one_try_and_a_pause_twice_as_long() -> None:
    """The pauses double up to their longest, for ever; one success begins anew."""
    clock = Clock()
    breaker = Breaker(clock)
    pauses = [breaker.failed("a", "no GPU", at_once=True)]
    for _ in range(2000):
        clock.now += pauses[-1] - 1
        assert ["a"] == list(breaker.set_aside)
        clock.now += 1
        assert {} == breaker.set_aside
        pauses.append(breaker.failed("a", "no GPU"))
    assert [300, 600, 1200, 2400, 3600, 3600] == pauses[:6]
    assert LONGEST_PAUSE == pauses[-1]
    breaker.passed("a")
    assert 0 == breaker.failed("a", "no GPU")

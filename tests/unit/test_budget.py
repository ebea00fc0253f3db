"""Budgets, backoff and the packed policy, as pure functions."""

from dataclasses import fields, replace

import pytest
from ghostless.statemachine import LOSSES, Event, Policy, Reason, Used, backoff, counter_for, may_retry
from ghostless.statemachine.budget import BUDGETS
from hypothesis import given, settings
from hypothesis import strategies as st

quick = settings(deadline=None, derandomize=True)
numbers = st.integers(min_value=0, max_value=10**12)
policies = st.builds(Policy, *[numbers] * len(fields(Policy)))


@quick
@given(policies)
def test_a_policy_survives_being_packed(policy: Policy) -> None:
    """What was packed, in one or in two, is read back the same."""
    assert policy == Policy.unpack(policy.pack()) == Policy.unpack(*policy.pack_in_two())


def test_clocks_are_packed_when_one_is_on() -> None:
    """A policy without clocks is as short as before there were any; all three are there once one is."""
    assert ("1800000,3,2,3,2000,600000,604800000", "") == Policy().pack_in_two()
    assert "0,0,1" == Policy(max_runtime=1).pack_in_two()[1]


def test_the_default_policy_is_short() -> None:
    """The packed default fits into the 64 bytes that keep the hash small."""
    assert len(Policy().pack()) <= 64
    assert "1800000,3,2,3,2000,600000,604800000" == Policy().pack()


@pytest.mark.parametrize("packed", ["", ",", "1,,3", "1,2,3,", "a,2,3,4,5,6,7", "1,2,3,4,5,6,-7", "1.5,2,3,4,5,6,7"])
def test_what_is_no_policy_is_refused(packed: str) -> None:
    """Anything but whole numbers is a ValueError."""
    with pytest.raises(ValueError, match="expected whole numbers"):
        Policy.unpack(packed)


def test_a_policy_of_another_version_is_read() -> None:
    """What an older one lacks has its default; what a newer one has more is passed over: deploys roll both ways."""
    assert Policy(timeout=1, max_retries=2) == Policy.unpack("1,2")
    assert Policy(1, 2, 3, 4, 5, 6, 7) == Policy.unpack("1,2,3,4,5,6,7")
    assert Policy(1, 2, 3, 4, 5, 6, 7, 8, 9, 10) == Policy.unpack("1,2,3,4,5,6,7,8,9,10,11,12")


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("event", [Event.FAIL, Event.TIMEOUT])
def test_each_end_adds_to_one_counter(event: Event, reason: Reason) -> None:
    """Losses by their reason; else timeouts after TIMEOUT and failures after FAIL."""
    expected = "losses" if reason in LOSSES else "timeouts" if event is Event.TIMEOUT else "failures"
    assert expected == counter_for(event, reason)
    assert expected in BUDGETS


@pytest.mark.parametrize(
    ("event", "reason", "counter"),
    [
        (Event.FAIL, Reason.EXCEPTION, "failures"),
        (Event.TIMEOUT, Reason.DEADLINE, "timeouts"),
        (Event.TIMEOUT, Reason.STALLED, "timeouts"),
        (Event.FAIL, Reason.CRASHED, "losses"),
    ],
)
def test_a_budget_of_n_allows_n_further_attempts(event: Event, reason: Reason, counter: str) -> None:
    """With n used up there is no other, and the other budgets do not matter."""
    policy = replace(Policy(max_retries=0, max_timeouts=0, max_losses=0), **{BUDGETS[counter]: 2})
    allowed = [may_retry(event, reason, replace(Used(9, 9, 9), **{counter: used}), policy) for used in range(4)]
    assert [True, True, False, False] == allowed


@quick
@given(policies, st.integers(0, 10_000), st.floats(0, 1, exclude_max=True), numbers)
def test_a_backoff_is_never_under_what_was_asked_and_never_over_the_cap(
    policy: Policy, used: int, fraction: float, asked: int
) -> None:
    """asked <= delay <= asked + cap, and with no jitter exactly what was asked for."""
    delay = backoff(used, policy, fraction, asked)
    assert asked <= delay <= asked + policy.backoff_cap
    assert asked == backoff(used, policy, 0.0, asked)


def test_a_backoff_doubles_up_to_its_cap() -> None:
    """The ceiling of the jitter is base * 2**used, and then the cap, however many attempts there were."""
    policy = Policy(backoff_base=1_000, backoff_cap=7_000)
    almost = 1 - 2**-53
    assert [999, 1_999, 3_999, 6_999, 6_999] == [backoff(used, policy, almost) for used in range(5)]
    assert 6_999 == backoff(10**6, policy, almost)

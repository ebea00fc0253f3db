"""The budgets and the backoff are written twice, in Python and in Lua: these tests hold both against each other."""

from dataclasses import fields

import pytest
from ghostless.jobs.keys import Keys, script_names
from ghostless.lua import loader
from ghostless.statemachine import Event, Policy, Reason, Used, backoff, counter_for, may_retry
from ghostless.statemachine.budget import CLOCKS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis


def script(body: str) -> str:
    """Return a script of the product's own parts that does something with a policy."""
    return loader.build(body, script_names(Keys()), "attempt")


BACKOFF = script("""
local answers = {}
for index = 1, #ARGV, 4 do
  local task = {policy = ARGV[index]}
  local used, fraction, asked = tonumber(ARGV[index + 1]), tonumber(ARGV[index + 2]), tonumber(ARGV[index + 3])
  answers[#answers + 1] = string.format("%.0f", backoff(task, used, fraction, asked))
end
return answers
""")
MAY_RETRY = script("""
local task = {policy = ARGV[1]}
task.failures, task.timeouts, task.losses = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local answers = {}
for index = 5, #ARGV, 2 do
  local counter, used, allowed = may_retry(task, ARGV[index], ARGV[index + 1])
  answers[#answers + 1] = counter .. " " .. used .. " " .. tostring(allowed)
end
return answers
""")

quick = settings(deadline=None, max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
limits = st.integers(min_value=0, max_value=1_000)
times = st.integers(min_value=0, max_value=10**12)
policies = st.builds(
    Policy, max_retries=limits, max_timeouts=limits, max_losses=limits, backoff_base=times, backoff_cap=times
)
fractions = st.floats(min_value=0, max_value=1, exclude_max=True, allow_subnormal=False)


@quick
@given(cases=st.lists(st.tuples(policies, limits, fractions, times), min_size=1, max_size=50))
def test_both_backoffs_are_the_same(redis: Redis, cases: list[tuple[Policy, int, float, int]]) -> None:
    """For any policy, count of used retries, random number and asked delay."""
    arguments = [value for policy, used, fraction, asked in cases for value in (policy.pack(), used, fraction, asked)]
    answers = [int(answer) for answer in redis.eval(BACKOFF, 0, *arguments)]
    assert [backoff(used, policy, fraction, asked) for policy, used, fraction, asked in cases] == answers


@quick
@given(policy=policies, used=st.builds(Used, limits, limits, limits))
def test_both_rules_for_a_retry_are_the_same(redis: Redis, policy: Policy, used: Used) -> None:
    """For any policy and use, after FAIL and TIMEOUT for every reason."""
    pairs = [(event, reason) for event in (Event.FAIL, Event.TIMEOUT) for reason in Reason]
    arguments = [policy.pack(), used.failures, used.timeouts, used.losses, *(word for pair in pairs for word in pair)]
    expected = [
        f"{counter_for(*pair)} {getattr(used, counter_for(*pair))} {str(may_retry(*pair, used, policy)).lower()}"
        for pair in pairs
    ]
    assert expected == redis.eval(MAY_RETRY, 0, *arguments)


@pytest.mark.parametrize(
    "packed", ["", ",", "1,2,seven", "1,2,3,4,5,6,7,eight", "1,2,3,4,5,6,-7", "1,,3", "1,2,", "1.5"]
)
def test_both_refuse_the_same_policies(redis: Redis, packed: str) -> None:
    """What is not a row of whole numbers is no policy, on either side."""
    with pytest.raises(ValueError, match="expected whole numbers"):
        Policy.unpack(packed)
    assert 0 == redis.eval(script("return is_packed(ARGV[1]) and 1 or 0"), 0, packed)


@pytest.mark.parametrize("packed", ["7", "1,2,3", "1,2,3,4,5,6,7", "1,2,3,4,5,6,7,8,9"])
def test_both_read_the_policy_of_another_version_alike(redis: Redis, packed: str) -> None:
    """Missing last fields have their defaults, further ones are passed over."""
    text = script("""
assert(is_packed(ARGV[1]))
local read = {}
for index = 2, #ARGV do read[#read + 1] = term({policy = ARGV[1]}, ARGV[index]) end
return read
""")
    terms = [field.name for field in fields(Policy)][:-CLOCKS]
    assert [getattr(Policy.unpack(packed), name) for name in terms] == redis.eval(text, 0, packed, *terms)


def test_a_damaged_term_of_any_length_keeps_the_digits_of_a_time(redis: Redis) -> None:
    """What follows from a term is a time that can be read again: a whole number below 2^53."""
    text = script("return string.format('%.0f', clock() + term({policy = ARGV[1]}, 'timeout'))")
    assert 2**52 < int(redis.eval(text, 0, "9" * 40)) < 2**53

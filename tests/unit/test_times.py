"""Odd values for every time and count, through the decorator, the client and RetryLater (B21).

Each has a documented meaning, or is refused with a message that names the field and its range.
"""

import math
from typing import Any

import pytest
from ghostless.jobs import Context, RetryLater
from ghostless.jobs.catalog import PublishedType
from ghostless.jobs.errors import InvalidHandler, InvalidTask
from ghostless.jobs.failure import describe_error
from ghostless.jobs.registry import Registry
from ghostless.jobs.submission import Request
from ghostless.statemachine import Policy
from odd_values import MEANINGS, ODD, RANGES, SUBMITTED, is_taken

FIELDS = {"backoff": "backoff_base"}
"""Argument of the decorator -> field of the policy, where it has another name."""

DECORATED = sorted(set(RANGES) - {"delay"})


def handler(ctx: Context) -> None:
    """Do nothing."""


@pytest.mark.parametrize("field", DECORATED)
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_through_the_decorator(field: str, value: Any) -> None:
    """Stored in milliseconds, or InvalidHandler with the type, the argument, its range and what came."""
    registry = Registry()
    if is_taken(field, value):
        registry.task("a.type", **{field: value})(handler)
        (found,) = registry
        assert getattr(found.policy, FIELDS.get(field, field)) == MEANINGS[field][value]
        return
    with pytest.raises(InvalidHandler) as refused:
        registry.task("a.type", **{field: value})
    assert str(refused.value) == f"task type 'a.type': {field}: {RANGES[field]}, got {value!r}"


@pytest.mark.parametrize("field", SUBMITTED)
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_through_the_client(field: str, value: Any) -> None:
    """Stored in milliseconds, or InvalidTask with the field, its range and what came; None is the type's own."""
    kind = PublishedType("a.type", "q", Policy(stall_timeout=7_000), {}, "")
    request = Request("a.type", {}, **{field: value})
    if value is None:
        submission = request.checked("tester", lambda name, params: kind)
        assert (submission.policy, submission.delay) == (kind.policy, 0)
    elif is_taken(field, value):
        submission = request.checked("tester", lambda name, params: kind)
        stored = submission.delay if field == "delay" else getattr(submission.policy, field)
        assert stored == MEANINGS[field][value]
    else:
        with pytest.raises(InvalidTask) as refused:
            request.checked("tester", lambda name, params: kind)
        assert str(refused.value) == f"{field}: {RANGES[field]}, got {value!r}"


@pytest.mark.parametrize(
    ("value", "asked"),
    [(-1, 0), (0, 0), (math.nan, 0), (math.inf, 31_622_400_000), ("1h", 0), (0.2, 200), (1e12, 31_622_400_000),
     (True, 0), (None, 0), (31_622_400, 31_622_400_000)],
    ids=repr,
)  # fmt: skip
def test_through_retry_later(value: Any, asked: int) -> None:
    """Less than the range counts as 0, more as the most, no number as 0; the history says what was expected."""
    told = describe_error(RetryLater(value), "exception", "", retryable=True)
    assert told["asked"] == asked
    wrong = f"RetryLater seconds: {RANGES['delay']}, got {value!r}: "
    assert told["message"].startswith(wrong) == (value not in (0, 0.2, 31_622_400) or value is True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"extend_by": 60}, "extend_by: expected a max_runtime beside it, which ends the extensions, got 60"),
        ({"max_runtime": 7200}, "max_runtime: expected an extend_by beside it, which leads up to it, got 7200"),
        ({"extend_by": 9, "max_runtime": 60}, "max_runtime: expected at least the timeout of 1800 s, got 60"),
        (
            {"stall_timeout": 1800},
            "stall_timeout: expected less than the 1800 s that an attempt may run at all, got 1800",
        ),
        (
            {"stall_timeout": 3600, "extend_by": 9, "max_runtime": 3600},
            "stall_timeout: expected less than the 3600 s that an attempt may run at all, got 3600",
        ),
    ],
)
def test_clocks_that_make_no_sense_together(given: dict[str, float], message: str) -> None:
    """What could never take effect is refused where it is written."""
    with pytest.raises(InvalidHandler) as refused:
        Registry().task("a.type", **given)
    assert str(refused.value) == f"task type 'a.type': {message}"


def test_clocks_that_make_sense_together() -> None:
    """A stall timeout may be longer than the timeout when that can be extended; the shortest extension is none."""
    registry = Registry()
    registry.task("a.type", timeout=60, stall_timeout=90, extend_by=60, max_runtime=600)(handler)
    registry.task("b.type", timeout=60, extend_by=60, max_runtime=60)(handler)
    policies = [(kind.policy.stall_timeout, kind.policy.extend_by, kind.policy.max_runtime) for kind in registry]
    assert policies == [(90_000, 60_000, 600_000), (0, 60_000, 60_000)]


def test_a_submit_stays_within_the_types_longest_run() -> None:
    """A timeout beyond the type's `max_runtime` is refused; without one it may be what it wants."""
    kind = PublishedType("a.type", "q", Policy(timeout=60_000, extend_by=9_000, max_runtime=600_000), {}, "")
    assert Request("a.type", {}, timeout=600).checked("t", lambda name, params: kind).policy.timeout == 600_000
    with pytest.raises(InvalidTask) as refused:
        Request("a.type", {}, timeout=600.5).checked("t", lambda name, params: kind)
    assert str(refused.value) == "timeout: expected at most 600 s, the max_runtime of a.type, got 600.5"

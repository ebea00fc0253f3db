"""The checks of what `@task` is given: everything wrong is refused where it is written."""

import inspect
from collections.abc import Mapping
from typing import Final, TypedDict, cast

from ..statemachine import Policy
from . import bounds
from .bounds import Bounds, Seconds
from .errors import InvalidHandler
from .names import NAME
from .values import shown

_TERMS: Final[Mapping[str, tuple[str, Bounds]]] = {
    "timeout": ("timeout", bounds.TIMEOUT),
    "max_retries": ("max_retries", bounds.ATTEMPTS),
    "max_timeouts": ("max_timeouts", bounds.ATTEMPTS),
    "max_losses": ("max_losses", bounds.ATTEMPTS),
    "backoff": ("backoff_base", bounds.BACKOFF),
    "backoff_cap": ("backoff_cap", bounds.BACKOFF),
    "retention": ("retention", bounds.RETENTION),
    "stall_timeout": ("stall_timeout", bounds.CLOCK),
    "extend_by": ("extend_by", bounds.CLOCK),
    "max_runtime": ("max_runtime", bounds.CLOCK),
}
"""Argument of the decorator -> field of the policy, and its range."""


class Terms(TypedDict, total=False):
    """What `@task` may be told of a type beside its name: times in seconds, and numbers of further attempts.

    `stall_timeout` is the longest silence of a handler: an attempt that sends no progress, checkpoint or stage for so
    long is stopped, and counts as timed out. It runs from the first line of the handler on; log lines do not count.
    With `extend_by`, an attempt that reported so at least once before its timeout gets so many seconds more, and so on
    each time, up to `max_runtime` seconds from its start. Each is from 1 to 604800; 0, the default, is none.
    """

    timeout: float
    max_retries: int
    max_timeouts: int
    max_losses: int
    backoff: float
    backoff_cap: float
    retention: float
    stall_timeout: float
    extend_by: float
    max_runtime: float


def check_name(task_type: object, argument: str, value: object) -> None:
    """Refuse what cannot name a task type or a queue. Raises InvalidHandler."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise refusal(task_type, argument, "1 to 64 of the characters A-Z a-z 0-9 . _ -", shown(value))


def policy_of(task_type: str, given: Terms) -> Policy:
    """Return the policy of these terms; those not given have the policy's own defaults. Raises InvalidHandler."""
    values: dict[str, int] = {}
    for argument, value in cast(Mapping[str, float], given).items():
        if argument not in _TERMS:
            raise refusal(task_type, argument, f"one of {', '.join(_TERMS)}", "an argument of this name")
        values[_TERMS[argument][0]] = _checked(task_type, argument, value)
    policy = Policy(**values)
    _check_clocks(task_type, policy)
    return policy


def _checked(task_type: str, argument: str, value: float) -> int:
    _, allowed = _TERMS[argument]
    if value not in allowed:
        raise refusal(task_type, argument, str(allowed), shown(value))
    return round(value * 1000) if isinstance(allowed, Seconds) else int(value)


def _check_clocks(task_type: str, policy: Policy) -> None:
    """Refuse clocks that make no sense together."""
    timeout, stall, extend_by, max_runtime = (
        milliseconds / 1000
        for milliseconds in (policy.timeout, policy.stall_timeout, policy.extend_by, policy.max_runtime)
    )
    if extend_by and not max_runtime:
        raise _clash(task_type, "extend_by", "a max_runtime beside it, which ends the extensions", extend_by)
    if max_runtime and not extend_by:
        raise _clash(task_type, "max_runtime", "an extend_by beside it, which leads up to it", max_runtime)
    if 0 < max_runtime < timeout:
        raise _clash(task_type, "max_runtime", f"at least the timeout of {timeout:.12g} s", max_runtime)
    longest = policy.longest_run / 1000
    if stall >= longest:
        raise _clash(
            task_type, "stall_timeout", f"less than the {longest:.12g} s that an attempt may run at all", stall
        )


def _clash(task_type: str, argument: str, expected: str, seconds: float) -> InvalidHandler:
    return refusal(task_type, argument, expected, f"{seconds:.12g}")


def check_never_retry(task_type: str, value: object) -> None:
    """Refuse what is no tuple of exception classes. Raises InvalidHandler."""
    kinds = cast(tuple[object, ...], value) if isinstance(value, tuple) else (None,)
    if not all(map(_is_exception_class, kinds)):
        raise refusal(task_type, "never_retry", "a tuple of exception classes", shown(cast(object, value)))


def _is_exception_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def check_setup(task_type: str, argument: str, value: object) -> None:
    """Refuse a setup or teardown that is no plain function. Raises InvalidHandler."""
    if value is not None and (not callable(value) or inspect.iscoroutinefunction(value)):
        raise refusal(task_type, argument, "a function that is not async", shown(value))


def refusal(task_type: object, argument: str, expected: str, got: str) -> InvalidHandler:
    """Return the error that says which handler is wrong, and where."""
    return InvalidHandler(f"task type {shown(task_type)}: {argument}: expected {expected}, got {got}")

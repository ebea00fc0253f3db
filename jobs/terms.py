"""The checks of what `@task` is given: everything wrong is refused where it is written."""

import inspect
from collections.abc import Mapping
from typing import Final, cast

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


def check_name(task_type: object, argument: str, value: object) -> None:
    """Refuse what cannot name a task type or a queue. Raises InvalidHandler."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise refusal(task_type, argument, "1 to 64 of the characters A-Z a-z 0-9 . _ -", shown(value))


def policy_of(task_type: str, **given: float) -> Policy:
    """Return the policy in integer milliseconds of the decorator's times in seconds. Raises InvalidHandler."""
    values = {_TERMS[argument][0]: _checked(task_type, argument, value) for argument, value in given.items()}
    _check_clocks(task_type, given)
    return Policy(**values)


def _checked(task_type: str, argument: str, value: float) -> int:
    _, allowed = _TERMS[argument]
    if value not in allowed:
        raise refusal(task_type, argument, str(allowed), shown(value))
    return round(value * 1000) if isinstance(allowed, Seconds) else int(value)


def _check_clocks(task_type: str, given: Mapping[str, float]) -> None:
    """Refuse clocks that make no sense together."""
    timeout, stall = given["timeout"], given["stall_timeout"]
    extend_by, max_runtime = given["extend_by"], given["max_runtime"]
    if extend_by and not max_runtime:
        raise refusal(task_type, "extend_by", "a max_runtime beside it, which ends the extensions", shown(extend_by))
    if max_runtime and not extend_by:
        raise refusal(task_type, "max_runtime", "an extend_by beside it, which leads up to it", shown(max_runtime))
    if 0 < max_runtime < timeout:
        raise refusal(task_type, "max_runtime", f"at least the timeout of {timeout:.12g} s", shown(max_runtime))
    longest = max(timeout, max_runtime)
    if stall >= longest:
        expected = f"less than the {longest:.12g} s that an attempt may run at all"
        raise refusal(task_type, "stall_timeout", expected, shown(stall))


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

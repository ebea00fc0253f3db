"""The checks of what `@task` is given: everything wrong is refused where it is written."""

import inspect
import math
from typing import Final, cast

from ..statemachine import Policy
from .errors import InvalidHandler
from .names import NAME
from .values import shown

LONGEST_ATTEMPT: Final = 7 * 86_400.0
SHORTEST_RETENTION: Final = 60.0
LONGEST_RETENTION: Final = 366 * 86_400.0
MOST_ATTEMPTS: Final = 1000
"""With these bounds the packed policy stays under 64 bytes, which keeps a task's hash small in Redis."""


def check_name(task_type: object, argument: str, value: object) -> None:
    """Refuse what cannot name a task type or a queue. Raises InvalidHandler."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise refusal(task_type, argument, "1 to 64 of the characters A-Z a-z 0-9 . _ -", shown(value))


def policy_of(
    task_type: str,
    *,
    timeout: float,
    max_retries: int,
    max_timeouts: int,
    max_losses: int,
    backoff: float,
    backoff_cap: float,
    retention: float,
) -> Policy:
    """Return the policy in integer milliseconds of times in seconds. Raises InvalidHandler."""

    def count(argument: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_ATTEMPTS:
            raise refusal(task_type, argument, f"a whole number from 0 to {MOST_ATTEMPTS}", shown(value))
        return value

    def milliseconds(argument: str, value: object, least: float, most: float) -> int:
        seconds = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not least <= seconds <= most:
            raise refusal(task_type, argument, f"a number of seconds from {least:g} to {most:g}", shown(value))
        return round(seconds * 1000)

    return Policy(
        timeout=milliseconds("timeout", timeout, 0.001, LONGEST_ATTEMPT),
        max_retries=count("max_retries", max_retries),
        max_timeouts=count("max_timeouts", max_timeouts),
        max_losses=count("max_losses", max_losses),
        backoff_base=milliseconds("backoff", backoff, 0, LONGEST_ATTEMPT),
        backoff_cap=milliseconds("backoff_cap", backoff_cap, 0, LONGEST_ATTEMPT),
        retention=milliseconds("retention", retention, SHORTEST_RETENTION, LONGEST_RETENTION),
    )


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

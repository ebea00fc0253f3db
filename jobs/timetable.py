"""When a task type runs by itself: what `@task(cron=…)` says, checked where it is written."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from .errors import InvalidTask
from .recurrence import MISFIRES, OVERLAPS, Misfire, Overlap, Recurrence
from .terms import refusal
from .values import shown


@dataclass(frozen=True, slots=True)
class Timetable:
    """A cron expression in a time zone, what becomes of missed runs, and whether runs may overlap."""

    cron: str
    tz: str
    misfire: Misfire
    overlap: Overlap


def timetable_of(
    task_type: str, cron: str | None, tz: str | None, misfire: Misfire | None, overlap: Overlap | None
) -> Timetable | None:
    """Return the timetable of these terms; None without a cron expression. Raises InvalidHandler."""
    if cron is None:
        given = {"tz": tz, "misfire": misfire, "overlap": overlap}
        for argument in (name for name, value in given.items() if value is not None):
            raise refusal(task_type, argument, "a cron expression beside it", "none")
        return None
    timetable = Timetable(cron, tz or "UTC", misfire or "once", overlap or "allow")
    _check_choice(task_type, "misfire", timetable.misfire, MISFIRES)
    _check_choice(task_type, "overlap", timetable.overlap, OVERLAPS)
    try:
        Recurrence(timetable.cron, timetable.tz).check()
    except (InvalidTask, TypeError, AttributeError) as error:  # the latter of what is no text
        raise refusal(task_type, "cron", "a cron expression in a time zone", f"{shown(cron)}: {error}") from error
    return timetable


def _check_choice(task_type: str, argument: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise refusal(task_type, argument, f"one of {', '.join(choices)}", shown(value))


def check_runs_alone(task_type: str, handler: Callable[..., Any]) -> None:
    """Refuse a handler that a schedule cannot call, since it has a param without a default. Raises InvalidHandler."""
    for parameter in list(inspect.signature(handler).parameters.values())[1:]:
        if parameter.default is Parameter.empty:
            expected = "a default, since cron runs the handler without params"
            raise refusal(task_type, f"parameter {parameter.name}", expected, "none")

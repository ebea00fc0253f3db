"""Reading what was typed: each function is a click callback that refuses a value by the name of its option."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, cast

import click
from click.core import ParameterSource

from ...statemachine import STORED, State
from ..bounds import Bounds
from ..names import NAME
from ..values import mismatch, not_json


def as_json(ctx: click.Context, param: click.Parameter, text: str | None) -> Any:
    """Read a value as JSON."""
    if text is None:
        return None
    try:
        return json.loads(text, parse_constant=not_json)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"expected JSON, got {text!r:.80} ({error})") from error


def as_params(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Read NAME=VALUE; a value that is not JSON is text."""
    named: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"expected NAME=VALUE, got {text!r:.80}")
        try:
            named[name] = json.loads(value, parse_constant=not_json)
        except (ValueError, RecursionError):
            named[name] = value
    return named


def all_params(params: Any, named: Mapping[str, Any]) -> Any:
    """Return all parameters, those named one by one winning; what is no object is for the core to refuse."""
    if params is None or isinstance(params, dict):
        return {**cast(dict[str, Any], params or {}), **named}
    return params


def as_number(allowed: Bounds) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """Return the callback that reads a number; whether it is in the range is for the core to say."""

    def read(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
        try:
            return None if text is None else allowed.number(text)
        except ValueError as error:
            raise click.BadParameter(f"expected {allowed}, got {text!r:.80}") from error

    return read


def as_moment(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Read an ISO date and time, local when it names no offset, or seconds since 1970; return the latter."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError) as error:
        expected = "a time like 2027-01-31T18:00 or seconds since 1970"
        raise click.BadParameter(f"expected {expected}, got {text!r:.80}") from error


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def as_interval(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Read "90s", "10m", "2h" or "1d"; return ms."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if not found:
        raise click.BadParameter(f"expected an interval like 90s, 10m, 2h or 1d, got {text!r:.80}")
    return int(found[1]) * _UNITS[found[2]] * 1000


def as_state(ctx: click.Context, param: click.Parameter, text: str | None) -> State | None:
    """Read a state, in capitals or not."""
    if text is not None and text.upper() not in STORED:
        raise click.BadParameter(f"expected one of {', '.join(STORED)}, got {text!r:.80}")
    return None if text is None else State(text.upper())


def as_name(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Refuse what cannot be the name of a queue or a worker, so that a slip of the keyboard makes none."""
    if text is not None and (wrong := mismatch(text, NAME)):
        raise click.BadParameter(wrong)
    return text


def as_names(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Check many names."""
    for text in texts:
        as_name(ctx, param, text)
    return texts


def retyped(ctx: click.Context, without: Collection[str]) -> list[str]:
    """Return the words of a command line anew, up to this verb and without some of its parameters."""
    words = [*retyped(ctx.parent, without), ctx.info_name or ""] if ctx.parent else []
    for param in sorted(ctx.command.params, key=lambda param: isinstance(param, click.Argument)):
        name = param.name or ""
        if name not in without and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words += _retyped(param, ctx.params[name])
    return words


def _retyped(param: click.Parameter, value: Any) -> list[str]:
    if isinstance(param, click.Argument):
        return ["--", *value]
    if isinstance(param, click.Option) and param.is_flag:
        return [param.opts[0]]
    return [word for each in (value if param.multiple else [value]) for word in (param.opts[0], str(each))]

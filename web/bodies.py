"""JSON as strangers send it: read once its nesting is known to be bounded, and only where it can be read in one way."""

import json
import re
from itertools import accumulate
from typing import Any

from .kinds import Kind
from .problems import Refusal

DEPTH_LIMIT = 64
"""Most levels of objects and arrays in a body."""

_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_LEVELS = {"[": 1, "{": 1, "]": -1, "}": -1}


class _Unreadable(ValueError):
    """What no JSON may hold, in words that quote nothing of it."""


def parse_json(raw: bytes) -> object:
    """Return what a body says. Raises Refusal (400)."""
    try:
        text = raw.decode("utf-8")
        if is_too_deep(text):
            raise _Unreadable(f"more than {DEPTH_LIMIT} levels of nesting")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except ValueError as error:
        raise Refusal(Kind.NOT_READABLE, _told(error)) from error


def is_too_deep(text: str) -> bool:
    """Tell whether a text has more than `DEPTH_LIMIT` brackets open at once; parsers answer that by recursion."""
    if text.count("[") + text.count("{") <= DEPTH_LIMIT:
        return False
    steps = (_LEVELS[bracket] for bracket in _TEXT.sub("", text) if bracket in _LEVELS)
    return any(depth > DEPTH_LIMIT for depth in accumulate(steps))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Which of two equal names counts differs from parser to parser, so that a check and what follows it may disagree.
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _Unreadable("an object has the same name twice")
    return members


def _refuse_constant(_name: str) -> float:
    raise _Unreadable("NaN and Infinity are no JSON")


def _told(error: ValueError) -> str:
    if isinstance(error, _Unreadable):
        return f"the body is no JSON that is taken: {error}"
    # Never with the error's own text: it may quote the body.
    where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
    return f"the body is not JSON in UTF-8{where}"

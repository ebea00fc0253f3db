"""The check of params by a JSON Schema, whose cost is bounded whatever the schema and the params are.

Alone the schema's and the params' length bound nothing: unions inside of each other are checked in every combination,
and long enums once for every item. So each step is counted, and the check is given up after too many.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import Any, Final, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema_specifications import REGISTRY
from pydantic_core import SchemaError, SchemaValidator, core_schema

STEPS_LIMIT: Final = 200_000
"""Most steps of one check, each of a few microseconds. A list of 90 000 numbers takes nearly all of them."""

_CHEAP: Final = 4
"""Values in a schema's keyword that are looked at in the time of a step."""

_QUOTED: Final = 64
"""Characters of an error's message that are written in the time of a step."""

_AN_ERROR: Final = 3
"""Steps in the time of which an error is made, also where another choice of a union fits."""

_OVER_MEMBERS: Final = frozenset(
    {
        *("items", "contains", "uniqueItems"),
        *("propertyNames", "patternProperties", "additionalProperties"),
    }
)
"""Keywords that go over all members of what is checked, whatever they say of each."""

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]

_left: ContextVar[int] = ContextVar("_left", default=STEPS_LIMIT)


class TooCostly(Exception):
    """The check was given up."""


def first_errors(schema: Mapping[str, Any], params: object, most: int) -> list[ValidationError]:
    """Return the first errors of params, at most so many; those that were found when the check must be given up.

    Raises TooCostly when none was found until then, and whatever jsonschema raises at a schema that is none and at
    numbers that it cannot handle.
    """
    _left.set(STEPS_LIMIT)
    # The registry knows the dialects alone: left out, it would fetch what a schema refers to from anywhere.
    validator = _Bounded(schema, registry=REGISTRY)
    found: list[ValidationError] = []
    try:
        found.extend(islice(validator.iter_errors(cast(Any, params)), most))
    except TooCostly:
        if not found:
            raise
    return found


def _spend(steps: int) -> None:
    left = _left.get() - steps
    _left.set(left)
    if left < 0:
        raise TooCostly


def _counted(name: str, check: Keyword) -> Keyword:
    members = _members if name in _OVER_MEMBERS else _none

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _spend(1 + _size(value) // _CHEAP + members(instance))
        for error in check(validator, value, instance, schema) or ():
            _spend(_AN_ERROR + len(error.message) // _QUOTED)
            yield error

    return counted


def _size(value: Any) -> int:
    """Return how many values there are in a keyword's; those of objects are schemas, which are counted when applied."""
    if isinstance(value, dict):
        return len(cast("dict[str, Any]", value))
    if not isinstance(value, list):
        return 0
    items = cast("list[Any]", value)
    return len(items) + sum(_size(item) for item in items if isinstance(item, list | dict))


def _members(instance: Any) -> int:
    return len(cast("list[Any]", instance)) if isinstance(instance, list | dict) else 0


def _none(_instance: Any) -> int:
    return 0


def _unique_items(validator: Any, wanted: bool, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    """Compare texts, in one pass; jsonschema compares each item with each. 1 and 1.0 pass: the worker decides."""
    if wanted and validator.is_type(instance, "array"):
        texts = [json.dumps(item, sort_keys=True) for item in instance]
        _spend(sum(map(len, texts)) // _QUOTED)
        if len(set(texts)) < len(texts):
            yield ValidationError("the items must differ from each other")


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and _matches(pattern, instance) is False:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, inner in patterns.items():
            for name, member in instance.items():
                if _matches(pattern, name):
                    yield from validator.descend(member, inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Leave the names out that a pattern may be for, and the rest to jsonschema."""
    if validator.is_type(instance, "object"):
        patterns = schema.get("patternProperties", {})
        rest = {
            name: member
            for name, member in instance.items()
            if all(_matches(pattern, name) is False for pattern in patterns)
        }
        plain = {name: value for name, value in schema.items() if name != "patternProperties"}
        yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, inner, rest, plain)


def _matches(pattern: str, text: str) -> bool | None:
    """Tell whether a text matches as pydantic sees it, in linear time; None for a pattern that only `re` knows."""
    _spend(1)
    regex = _regex(pattern)
    return None if regex is None else regex.isinstance_python(text)


@lru_cache(maxsize=1000)
def _regex(pattern: str) -> SchemaValidator | None:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:  # look-around, or a reference back: the worker checks it
        return None


_OWN: Final[Mapping[str, Keyword]] = {
    "uniqueItems": _unique_items,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}

_LEFT_TO_THE_WORKER: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
"""Keywords that jsonschema checks by going over each choice of a union for each member; no model makes them."""

_KEYWORDS: Final = {
    name: _counted(name, check)
    for name, check in {**Draft202012Validator.VALIDATORS, **_OWN}.items()
    if name not in _LEFT_TO_THE_WORKER
}
_Bounded: Final = validators.create(
    Draft202012Validator.META_SCHEMA, _KEYWORDS, type_checker=Draft202012Validator.TYPE_CHECKER
)

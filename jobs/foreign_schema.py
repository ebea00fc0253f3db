"""The check of a JSON Schema that came over HTTP: whoever submits is checked by it, so it must be cheap to apply.

Only a part of JSON Schema is taken. Left out are patterns and `uniqueItems`, references that lead out of the schema or
round in a circle, and what is evaluated dynamically. A worker checks by itself what cannot be said here. What a check
of params may cost is bounded besides (`schema_check`).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from .errors import Fault
from .references import referred_path
from .schema_check import first_errors
from .values import shown

SIZE_LIMIT: Final = 64 * 1024
"""Most bytes of a schema as JSON."""

NODES_LIMIT: Final = 1000
"""Most schemas inside a schema, where one that is referred to counts each time."""

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_ONE: Final = frozenset({"items", "additionalProperties", "not", "if", "then", "else"})
_LIST: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAP: Final = frozenset({"properties", "$defs"})
_PLAIN: Final = frozenset(
    {
        *("type", "enum", "const", "required", "dependentRequired", "$ref", "$schema", "$comment"),
        *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples", "format"),
    }
)
_CHOOSING: Final = frozenset({"anyOf", "oneOf", "not", "if"})
"""Keywords in which the error of `false`, which quotes what it refuses, is made without being counted."""

_TAKEN: Final = _ONE | _LIST | _MAP | _PLAIN

Schema = Mapping[str, Any]


def fault_of(schema: Schema) -> Fault | None:
    """Return what is wrong with a schema, or why it is not taken; None when it can be published.

    `field` is the path to the place, with dots.
    """
    if len(json.dumps(schema)) > SIZE_LIMIT:
        return Fault("schema", f"at most {SIZE_LIMIT} bytes are taken")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return Fault(".".join(["schema", *map(str, error.absolute_path)]), error.message[:500])
    try:
        _Walk(schema).visit("schema", schema, ())
        first_errors(schema, {}, 1)
    except _Refused as refused:
        return refused.fault
    except Exception as error:  # jsonschema has no root for what it raises
        return Fault("schema", f"cannot be applied: {type(error).__name__}: {error}"[:500])
    return None


class _Refused(Exception):
    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(path, message)


class _Walk:
    """Visits every schema inside of one, as often as a check of params may come to it."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._visits = 0

    def visit(self, path: str, schema: Schema | bool, followed: tuple[str, ...]) -> None:
        """Visit a schema and those inside; `followed` are the references that led here. Raises _Refused."""
        self._visits += 1
        if self._visits > NODES_LIMIT:
            raise _Refused("schema", f"at most {NODES_LIMIT} schemas inside it are taken, references followed")
        if isinstance(schema, bool):
            return
        for name, value in schema.items():
            self._check_keyword(f"{path}.{name}", name, value, at_root=schema is self._root)
            for inner_path, inner in _inside(f"{path}.{name}", name, value):
                if inner is False and name in _CHOOSING:
                    raise _Refused(inner_path, 'false is not taken here; say {"not": {}}')
                self.visit(inner_path, inner, followed)
        if "$ref" in schema:
            self._follow(f"{path}.$ref", schema["$ref"], followed)

    @staticmethod
    def _check_keyword(path: str, name: str, value: object, *, at_root: bool) -> None:
        if name not in _TAKEN:
            raise _Refused(path, "this keyword is not taken over HTTP; let the worker check it")
        if name == "$schema" and not (at_root and value == DIALECT):  # a further one would begin a check of its own
            raise _Refused(path, f"expected {DIALECT}, at the top alone, got {shown(value)}")

    def _follow(self, path: str, reference: str, followed: tuple[str, ...]) -> None:
        if reference in followed:
            raise _Refused(path, f"{shown(reference)} leads round in a circle")
        match referred_path(reference):
            case ["$defs", name] if name in self._root.get("$defs", {}):
                self.visit(path, self._root["$defs"][name], (*followed, reference))
            case _:
                raise _Refused(path, f"expected '#/$defs/' and the name of a definition, got {shown(reference)}")


def _inside(path: str, name: str, value: Any) -> Iterator[tuple[str, Schema | bool]]:
    if name in _ONE:
        yield path, value
    elif name in _LIST:
        yield from ((f"{path}.{index}", inner) for index, inner in enumerate(cast("list[Schema | bool]", value)))
    elif name in _MAP:
        yield from ((f"{path}.{key}", inner) for key, inner in cast("dict[str, Schema | bool]", value).items())

"""Params that are nobody's business: those whose schema says `writeOnly`, as pydantic's SecretStr does."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

MASK: Final = "***"
"""What is shown in the place of a secret."""

_CHOICES: Final = ("anyOf", "oneOf", "allOf")

Schema = Mapping[str, Any]


def masked(value: Any, schema: object, root: Schema) -> Any:
    """Return a value with a mask in the place of every secret; `root` is the schema in which `schema` stands."""
    if value is None or not isinstance(schema, dict):
        return value
    here = _resolved(cast(Schema, schema), root)
    if here.get("writeOnly") is True:
        return MASK
    for choice in (choice for name in _CHOICES for choice in here.get(name, ())):
        value = masked(value, choice, root)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: masked(member, _of_member(here, name), root) for name, member in members.items()}
    if isinstance(value, list | tuple):
        items = cast("list[Any] | tuple[Any, ...]", value)
        return [masked(item, _of_item(here, index), root) for index, item in enumerate(items)]
    return value


def has_secrets(schema: Schema) -> bool:
    """Tell whether anything that a schema describes is secret."""
    return '"writeOnly": true' in json.dumps(schema)


def _resolved(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    return {**root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {}), **schema}


def _of_member(schema: Schema, name: str) -> object:
    return schema.get("properties", {}).get(name, schema.get("additionalProperties"))


def _of_item(schema: Schema, index: int) -> object:
    first = schema.get("prefixItems", ())
    return first[index] if index < len(first) else schema.get("items")

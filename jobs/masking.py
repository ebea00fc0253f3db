"""Params that are nobody's business: those whose schema says `writeOnly`, as pydantic's SecretStr does.

What stands where the schema does not say it may, or is reached in a way that is not known here, is masked whole when
the schema around it has a secret: it may be one under another name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, cast

from .references import referred

MASK: Final = "***"
"""What is shown in the place of a secret."""

_SAME_PLACE: Final = ("anyOf", "oneOf", "allOf", "if", "then", "else", "dependentSchemas", "not")
"""Keywords whose schemas are for the same value."""

Schema = Mapping[str, Any]

_UNKNOWN: Final[Schema] = {"writeOnly": True}
"""What stands for a schema that cannot be followed here, behind an anchor say: it may say anything."""


def masked(value: Any, root: Schema) -> Any:
    """Return a value with a mask in the place of every secret; `root` is its schema."""
    return _mask(value, _Schemas(root).place([root])) if has_secrets(root) else value


def has_secrets(schema: Schema) -> bool:
    """Tell whether anything that a schema describes is secret."""
    return '"writeOnly": true' in json.dumps(schema)


def exposed(before: Schema, after: Schema) -> list[str]:
    """Return the names of members that are secret by one schema, and no longer by the one that takes its place."""
    if not has_secrets(before):
        return []
    secret, shown = _names(before)
    still_secret, now_shown = _names(after)
    lost = (secret - still_secret) | (secret & (now_shown - shown))
    return sorted(lost) or ([] if has_secrets(after) else ["params"])


class _Schemas:
    """A schema, and what was found out about those inside of it."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._places: dict[frozenset[int], _Place] = {}
        self._secret: dict[int, bool] = {}

    def place(self, schemas: Iterable[object]) -> "_Place":
        """Return the place for which these schemas are, and those that they refer to."""
        found: dict[int, Schema] = {}
        waiting = list(schemas)
        while waiting:
            schema = waiting.pop()
            key = id(schema)
            if isinstance(schema, Mapping) and key not in found:
                found[key] = cast(Schema, schema)
                waiting.extend(_of_same_place(found[key], self.root))
        return self._places.setdefault(frozenset(found), _Place(self, list(found.values())))

    def is_secret(self, part: object) -> bool:
        """Tell whether there is a secret in any part of a schema, also in what it refers to."""
        key = id(part)
        if key not in self._secret:
            self._secret[key] = self._find(part)
        return self._secret[key]

    def _find(self, part: object) -> bool:
        waiting: list[object] = [part]
        seen: set[int] = set()
        while waiting:
            one = waiting.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if isinstance(one, Mapping):
                schema = cast(Schema, one)
                if schema.get("writeOnly") is True:
                    return True
                waiting += [*schema.values(), *_referred(schema, self.root)]
            elif isinstance(one, list):
                waiting += cast("list[object]", one)
        return False


class _Place:
    """A place in params: all schemas that may be for what stands there."""

    def __init__(self, schemas: _Schemas, here: list[Schema]) -> None:
        self._schemas, self._here = schemas, here
        self._members: dict[str, _Place] = {}

    @cached_property
    def is_secret(self) -> bool:
        """Whether all that stands here is."""
        names = (schema.get(keyword) for schema in self._here for keyword in ("propertyNames", "contentSchema"))
        return any(schema.get("writeOnly") is True for schema in self._here) or any(map(self._schemas.is_secret, names))

    @cached_property
    def has_secrets(self) -> bool:
        """Whether there is a secret here, or anywhere inside."""
        return any(map(self._schemas.is_secret, self._here))

    def member(self, name: str) -> "_Place | None":
        """Return the place of a member; None when the schemas have none, or may have it under another name."""
        if name not in self._named:
            return self._others
        if name not in self._members:
            inner = (one for schema in self._here for one in _of_member(schema, name))
            self._members[name] = self._schemas.place(inner)
        return self._members[name]

    def item(self, index: int) -> "_Place | None":
        """Return the place of an item; None when the schemas have none."""
        return self._first[index] if index < len(self._first) else self._rest

    @cached_property
    def _named(self) -> frozenset[str]:
        return frozenset(name for schema in self._here for name in schema.get("properties", {}))

    @cached_property
    def _others(self) -> "_Place | None":
        if any("properties" in schema and self._schemas.is_secret(schema) for schema in self._here):
            return None
        return self._some([one for schema in self._here for one in _of_member(schema, None)])

    @cached_property
    def _first(self) -> list["_Place | None"]:
        most = max((len(schema.get("prefixItems", ())) for schema in self._here), default=0)
        return [self._some([one for schema in self._here for one in _of_item(schema, n)]) for n in range(most)]

    @cached_property
    def _rest(self) -> "_Place | None":
        return self._some([one for schema in self._here for one in _of_item(schema, len(self._first))])

    def _some(self, inner: list[object]) -> "_Place | None":
        return self._schemas.place(inner) if inner else None


def _mask(value: Any, place: _Place | None) -> Any:
    if value is None:
        return value
    if place is None or place.is_secret:
        return MASK
    if not place.has_secrets:
        return value
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {name: _mask(member, place.member(name)) for name, member in members.items()}
    if isinstance(value, list | tuple):
        items = cast("list[Any] | tuple[Any, ...]", value)
        return [_mask(item, place.item(index)) for index, item in enumerate(items)]
    return value


def _of_same_place(schema: Schema, root: Schema) -> Iterator[object]:
    for keyword in _SAME_PLACE:
        inner = schema.get(keyword, ())
        if keyword == "dependentSchemas" and isinstance(inner, Mapping):
            yield from cast(Schema, inner).values()
        elif isinstance(inner, Mapping):
            yield cast(object, inner)
        elif isinstance(inner, list):
            yield from cast("list[object]", inner)
    yield from _referred(schema, root)


def _referred(schema: Schema, root: Schema) -> Iterator[object]:
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            found = referred(schema[keyword], root)
            yield cast(Schema, found) if isinstance(found, Mapping) else _UNKNOWN


def _of_member(schema: Schema, name: str | None) -> Iterator[object]:
    properties: Schema = schema.get("properties", {})
    if name in properties:
        yield properties[cast(str, name)]
    yield from cast(Schema, schema.get("patternProperties", {})).values()  # whichever the pattern is for
    if name not in properties:
        yield from (
            schema[keyword] for keyword in ("additionalProperties", "unevaluatedProperties") if keyword in schema
        )


def _of_item(schema: Schema, index: int) -> Iterator[object]:
    first: list[object] = schema.get("prefixItems", [])
    if index < len(first):
        yield first[index]
    elif "items" in schema:
        yield schema["items"]
    yield from (schema[keyword] for keyword in ("contains", "unevaluatedItems") if keyword in schema)


def _names(root: Schema) -> tuple[set[str], set[str]]:
    """Return the names of members with a secret in them, and of those without one."""
    schemas, secret, shown = _Schemas(root), set[str](), set[str]()
    waiting: list[object] = [root]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            properties: object = cast(Schema, one).get("properties")
            for name, inner in cast(Schema, properties).items() if isinstance(properties, Mapping) else ():
                (secret if schemas.is_secret(inner) else shown).add(name)
            waiting += cast(Schema, one).values()
        elif isinstance(one, list):
            waiting += cast("list[object]", one)
    return secret, shown

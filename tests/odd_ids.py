"""Ids and names that nothing can have, for each place of the API in which one may stand: paths, bodies and queries."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from flask import Flask
from ghostless.web.described import PATH_PARAMETERS
from ghostless.web.models import ID_PATTERN, NAME_PATTERN
from ghostless.web.openapi import document

TEXTS: Mapping[str, str] = {
    "slash": "a/b",
    "only a slash": "/",
    "up": "..",
    "up and on": "../tasks",
    "encoded dot": "%2e",
    "encoded dots": "%2e%2e",
    "encoded slash": "%2F",
    "encoded nul": "%00",
    "nul": "\0",
    "nul within": "a\0b",
    "300 characters": "x" * 300,
    "emoji": "\U0001f600",
    "line breaks": "a\r\nevil: 1\r\n\r\nevil",
    "line separator": "a\u2028evil",
    "markup": "<script>evil()</script>",
    "quotes": "\"'`;evil",
    "half a character": "\udc80",
    "pattern": "a*?[b]",
}

NAMES: Mapping[str, str] = {
    "given_id": "t",
    "given_name": "work",
    "given_bulk": "b",
    "given_type": "work",
    "delivery_id": "1790000000000-0",
    "file_name": "a.png",
    "file": "client.js",
}
"""What could stand for each variable of a path; a new one is to be added here."""


@dataclass(frozen=True)
class Asked:
    """A request that is fine but for one id or name."""

    method: str
    path: str  # percent-encoded
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The path with the query, as a request line has them."""
        return "?".join([self.path, *(f"{name}={quoted(text)}" for name, text in self.query.items())])

    def __str__(self) -> str:
        return f"{self.method} {self.target} {json.dumps(self.body)}"


def quoted(text: str) -> str:
    """Return a text as it stands in an address; half a character too."""
    return quote(text, safe="", errors="surrogateescape")


def in_paths(app: Flask, text: str) -> Iterator[Asked]:
    """Yield, for each rule of the application and each of its variables, every method that the rule takes."""
    described = _operations(app)
    for rule in app.url_map.iter_rules():
        for odd in sorted(rule.arguments):
            path = _VARIABLE.sub(
                lambda found, odd=odd: quoted(text if found["name"] == odd else _fine(found)), rule.rule
            )
            for method in sorted((rule.methods or set()) - {"OPTIONS"}):  # which looks nothing up
                yield Asked(method, path, _example(described.get((rule.endpoint, method), {})))


def in_bodies(app: Flask, text: str) -> Iterator[Asked]:
    """Yield, for each body that the API describes, its example with this text in each place for an id or a name."""
    schemas = document(app)["components"]["schemas"]
    for path, method, operation in _described(app):
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        for place in _places(body.get("schema", {}), schemas):
            yield Asked(method, path, _with(_example(operation), place, text))
    yield Asked("POST", "/api/tasks", {"type": "work", "depends_on": [text]})  # which the core checks


def in_queries(app: Flask, text: str) -> Iterator[Asked]:
    """Yield the same for each query."""
    for path, method, operation in _described(app):
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "query" and list(_places(parameter["schema"], {})):
                yield Asked(method, path, _example(operation), {parameter["name"]: text})


_VARIABLE = re.compile(r"<(?:any\((?P<choices>[^)]*)\):|\w+:)?(?P<name>\w+)>")
_PATTERNS = (ID_PATTERN, NAME_PATTERN)
_PUBLIC = {PATH_PARAMETERS[variable][0]: name for variable, name in NAMES.items()}

Place = tuple[str | int, ...]


def _fine(variable: re.Match[str]) -> str:
    return variable["choices"].partition(",")[0] if variable["choices"] else NAMES[variable["name"]]


def _operations(app: Flask) -> dict[tuple[str, str], Any]:
    return {
        (operation["operationId"].replace("_", ".", 1), method): operation for _, method, operation in _described(app)
    }


def _described(app: Flask) -> Iterator[tuple[str, str, Any]]:
    for path, operations in document(app)["paths"].items():
        for method, operation in operations.items():
            known = {one["name"]: one["schema"] for one in operation.get("parameters", []) if one["in"] == "path"}
            action = known.get("action", {}).get("enum", [""])[0]
            yield path.format_map(_PUBLIC | {"action": action}), method.upper(), operation


def _example(operation: Mapping[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return next((one["value"] for one in content.get("examples", {}).values()), {})


def _places(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[Place]:
    """Yield where in a value of this schema an id or a name stands."""
    if "$ref" in schema:
        yield from _places(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if schema.get("pattern") in _PATTERNS:
        yield ()
    for choice in schema.get("anyOf", ()):
        yield from _places(choice, schemas)
    for name, inner in schema.get("properties", {}).items():
        yield from ((name, *place) for place in _places(inner, schemas))
    if "items" in schema:
        yield from ((0, *place) for place in _places(schema["items"], schemas))


def _with(value: Any, place: Place, text: str) -> Any:
    if not place:
        return text
    name, *rest = place
    if isinstance(name, int):
        first = value[0] if value else {}
        return [_with(first, tuple(rest), text), *(value or [])[1:]]
    return {**(value or {}), name: _with((value or {}).get(name), tuple(rest), text)}

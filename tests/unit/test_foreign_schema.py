"""Which JSON Schemas are taken from a worker over HTTP: only those by which a check stays cheap and at home."""

import time
from typing import Any

import pytest
from ghostless.jobs.catalog import PublishedType
from ghostless.jobs.foreign_schema import DIALECT, NODES_LIMIT, fault_of
from ghostless.statemachine import Policy
from pydantic import BaseModel, Field


class Size(BaseModel):
    """A model inside another one."""

    width: int = Field(ge=1, le=4096)


class Params(BaseModel):
    """What an ordinary type takes."""

    prompt: str = Field(max_length=500)
    size: Size | None = None
    tags: list[str] = []
    seeds: dict[str, int | float] = {}


def test_what_models_of_params_make_is_taken() -> None:
    """Objects, lists, unions, bounds, enums and references into `$defs`, each definition as often as one likes."""
    assert fault_of(Params.model_json_schema()) is None
    two = {"$ref": "#/$defs/x"}
    assert fault_of({"properties": {"a": two, "b": two}, "$defs": {"x": {"enum": [1, 2]}}}) is None
    assert fault_of({"properties": {"pattern": {"type": "string"}}}) is None, "the name of a param is no keyword"


def doubling(levels: int) -> dict[str, Any]:
    """Return a short schema that takes 2 ** levels steps."""
    definitions = {f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{levels}": {}}}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "objekt"}, "schema.type"),
        ({"properties": {"x": {"minimum": "1"}}}, "schema.properties.x.minimum"),
        ({"properties": {"x": {"pattern": "(a+)+$"}}}, "schema.properties.x.pattern"),
        ({"patternProperties": {"(a+)+$": {}}}, "schema.patternProperties"),
        ({"items": {"uniqueItems": True}}, "schema.items.uniqueItems"),
        ({"anyOf": [{}, {"$ref": "http://127.0.0.1/x"}]}, "schema.anyOf.1.$ref"),
        ({"$ref": "file:///etc/passwd"}, "schema.$ref"),
        ({"$ref": "#"}, "schema.$ref"),
        ({"$ref": "#/$defs/none"}, "schema.$ref"),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, "schema.$defs.a.items.$ref.items.$ref"),
        ({"$dynamicRef": "#x"}, "schema.$dynamicRef"),
        ({"$id": "http://127.0.0.1/x"}, "schema.$id"),
        ({"$schema": "http://127.0.0.1/mine"}, "schema.$schema"),
        ({"items": {"$schema": DIALECT}}, "schema.items.$schema"),
        ({"anyOf": [{}, False]}, "schema.anyOf.1"),
        (doubling(40), "schema"),
        ({"allOf": [{}] * (NODES_LIMIT + 1)}, "schema"),
        ({"enum": ["x" * 70_000]}, "schema"),
    ],
)
def test_what_could_keep_a_server_busy_or_lead_it_elsewhere_is_not_taken(schema: dict[str, Any], place: str) -> None:
    """The fault names the place; finding it takes no time either."""
    started = time.monotonic()
    fault = fault_of(schema)
    assert fault is not None
    assert place == fault.field
    assert time.monotonic() - started < 2


def test_no_check_of_params_fetches_what_a_schema_refers_to() -> None:
    """Whoever published it, by whatever way: nothing can be checked by it, and the server asks no other host."""
    kind = PublishedType("work", "work", Policy(), {"$ref": "http://127.0.0.1:1/schema"}, "")
    assert "Unresolvable" in kind.faults({})[0].message

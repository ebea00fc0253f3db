"""The models of all routes as JSON Schemas of one document, each once."""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

from .models import NoBody
from .operations import Operation
from .views import Problem

Json = dict[str, Any]
Model = type[BaseModel]


class Schemas:
    """What operations take and give, and what is inside of that."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        queries: set[Model] = {one.query for one in operations}
        taken = queries.union(one.body for one in operations) - {NoBody}
        bodies = (answer.body for one in operations for answer in one.answers.values())
        given = {Problem, *(body for body in bodies if inspect.isclass(body))}
        self._references, found = models_json_schema(
            [*_in(taken, "validation"), *_in(given, "serialization")],
            ref_template="#/components/schemas/{model}",
            schema_generator=_Untitled,
        )
        self.definitions: Json = found["$defs"]
        self._parameters = {query: list(self._read(query)) for query in queries}

    def taken(self, model: Model) -> Json:
        """Return the schema of a request's body."""
        return self._references[model, "validation"]

    def given(self, model: Model) -> Json:
        """Return the schema of an answer."""
        return self._references[model, "serialization"]

    def parameters(self, query: Model) -> list[Json]:
        """Return the parameters of a query."""
        return self._parameters[query]

    def _read(self, query: Model) -> Iterator[Json]:
        schema: Json = self.definitions.pop(self.taken(query)["$ref"].rpartition("/")[2])
        for name, told in schema.get("properties", {}).items():
            yield {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", ()),
                "description": told.pop("description", ""),
                "schema": _not_null(told),
            }


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _in(models: Iterable[Model], mode: JsonSchemaMode) -> list[tuple[Model, JsonSchemaMode]]:
    return [(model, mode) for model in sorted(models, key=lambda model: model.__name__)]


def _not_null(schema: Json) -> Json:
    """Return the schema of a parameter, which is left out where a model has null."""
    choices = [choice for choice in cast(list[Json], schema.get("anyOf", [])) if choice != {"type": "null"}]
    told = {name: value for name, value in schema.items() if name != "anyOf" and value is not None}
    return told | (choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {})

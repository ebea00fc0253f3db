"""The API's description (OpenAPI 3.1), made from the routes themselves: `GET /openapi.json`."""

import hashlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, cast

from flask import Blueprint, Flask, Response, current_app, json, request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from werkzeug.routing import Rule

from . import described
from .models import NoBody, NoQuery
from .operations import UNCHANGED, Answer, Operation, View
from .operations import operation as declared
from .problems import PROBLEM
from .views import Problem

JSON = "application/json"

routes = Blueprint("description", __name__)

_VARIABLE = re.compile(r"<(?:any\((?P<choices>[^)]*)\):|[a-z]+:)?(?P<name>\w+)>")
_UNDESCRIBED = frozenset({"HEAD", "OPTIONS"})
_REFERENCE = "#/components/schemas/{model}"

Json = dict[str, Any]


@routes.get("/openapi.json")
@declared(None, headers=("If-None-Match",), answers={200: Answer(JSON, ("ETag",), "This document."), 304: UNCHANGED})
def openapi() -> ResponseReturnValue:
    """Return this description."""
    rendered = current_app.extensions.setdefault("ghostless.openapi", _Rendered())
    answer = Response(rendered.text(current_app), content_type=JSON)
    answer.set_etag(rendered.etag)
    answer.headers["Cache-Control"] = "no-cache"
    return answer.make_conditional(request)


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class _Rendered:
    """The document's text, made at the first request: then all routes are there."""

    def __init__(self) -> None:
        self._text = ""
        self.etag = ""

    def text(self, app: Flask) -> str:
        if not self._text:
            text = json.dumps(document(app))
            self.etag = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
            self._text = text
        return self._text


def document(app: Flask) -> Json:
    """Return the description of every route of an application."""
    found = sorted(_routes(app), key=lambda route: route.path)
    queries = {route.operation.query for route in found}
    schemas = _schemas([route.operation for route in found], queries)
    parameters = {query: list(_parameters(schemas.pop(query.__name__))) for query in queries}
    paths: Json = {}
    for route in found:
        for method in route.methods:
            paths.setdefault(route.path, {})[method.lower()] = route.described(parameters[route.operation.query])
    return {
        "openapi": "3.1.0",
        "info": {"title": described.TITLE, "version": version("ghostless"), "description": described.INTRODUCTION},
        "tags": list({route.tag: {"name": route.tag, "description": route.about} for route in found}.values()),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {f"Problem{status}": _problem(status) for status in described.PROBLEMS},
            "headers": {name: _header(name) for name in described.ANSWER_HEADERS},
            "securitySchemes": described.SECURITY,
        },
    }


def _routes(app: Flask) -> Iterator["_Route"]:
    for rule in app.url_map.iter_rules():
        view = cast(View, app.view_functions[rule.endpoint])
        yield _Route(rule, view, Operation.of(view) or Operation(None, NoQuery, NoBody))


@dataclass(frozen=True, slots=True)
class _Route:
    """One rule of the application, with its view's contract."""

    rule: Rule
    view: Any
    operation: Operation

    @property
    def path(self) -> str:
        """The path, with the public names of its variables."""
        return _VARIABLE.sub(lambda found: "{" + _variable(found)["name"] + "}", self.rule.rule)

    @property
    def methods(self) -> list[str]:
        return sorted((self.rule.methods or set()) - _UNDESCRIBED)

    @property
    def tag(self) -> str:
        return self.rule.endpoint.partition(".")[0]

    @property
    def about(self) -> str:
        return _paragraphs(sys.modules[self.view.__module__].__doc__)[0]

    def described(self, query: Sequence[Json]) -> Json:
        """Return the operation as the document has it; `query` are its parameters there."""
        summary, *rest = _paragraphs(self.view.__doc__)
        told: Json = {"operationId": self.rule.endpoint.replace(".", "_"), "tags": [self.tag], "summary": summary}
        if rest:
            told["description"] = "\n\n".join(rest)
        if parameters := [*self._variables(), *query, *self._headers()]:
            told["parameters"] = parameters
        if self._has_body:
            told["requestBody"] = _body(self.operation.body)
        told["responses"] = self._answers() | self._problems()
        scope = self.operation.scope
        told["security"] = [{name: [str(scope)]} for name in described.SECURITY] if scope else []
        return told

    @property
    def _has_body(self) -> bool:
        return self.operation.body is not NoBody

    def _variables(self) -> list[Json]:
        return [_variable(found) for found in _VARIABLE.finditer(self.rule.rule)]

    def _headers(self) -> list[Json]:
        return [
            {"name": name, "in": "header", "description": meaning, "schema": schema}
            for name, (schema, meaning) in described.REQUEST_HEADERS.items()
            if name in self.operation.headers
        ]

    def _answers(self) -> Json:
        return {str(status): _answer(status, answer) for status, answer in sorted(self.operation.answers.items())}

    def _problems(self) -> Json:
        statuses = {
            *described.OF_EVERY_ROUTE,
            *(described.OF_PATHS if self.rule.arguments else ()),
            *(described.OF_BODIES if "GET" not in self.methods else ()),
            *self.operation.problems,
        }
        return {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in sorted(statuses)}


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n")]


def _variable(found: re.Match[str]) -> Json:
    name, schema, meaning = described.PATH_PARAMETERS.get(found["name"], (found["name"], {"type": "string"}, ""))
    if found["choices"]:
        schema = {**schema, "enum": [choice.strip() for choice in found["choices"].split(",")]}
    return {"name": name, "in": "path", "required": True, "description": meaning, "schema": schema}


def _parameters(schema: Json) -> Iterator[Json]:
    for name, told in schema.get("properties", {}).items():
        description = told.pop("description", "")
        yield {"name": name, "in": "query", "description": description, "schema": _not_null(told)}


def _not_null(schema: Json) -> Json:
    """Return the schema of a parameter, which is left out where a model has null."""
    choices = [choice for choice in schema.get("anyOf", []) if choice != {"type": "null"}]
    told = {name: value for name, value in schema.items() if name != "anyOf" and value is not None}
    return told | (choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {})


def _body(model: type[BaseModel]) -> Json:
    content: Json = {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}
    examples = cast("Sequence[Any]", cast(Json, model.model_config.get("json_schema_extra") or {}).get("examples", ()))
    if examples:
        content["examples"] = {f"example{number}": {"value": one} for number, one in enumerate(examples, 1)}
    required = any(field.is_required() for field in model.model_fields.values())
    return {"required": required, "content": {JSON: content}}


def _answer(status: int, answer: Answer) -> Json:
    told: Json = {"description": answer.meaning or _meaning(status, answer.body)}
    if answer.headers:
        told["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in answer.headers}
    if isinstance(answer.body, str):
        told["content"] = {answer.body: {"schema": {} if answer.body == JSON else {"type": "string"}}}
    elif answer.body:
        told["content"] = {JSON: {"schema": {"$ref": _REFERENCE.format(model=answer.body.__name__)}}}
    return told


def _meaning(status: int, body: type[BaseModel] | str | None) -> str:
    return HTTPStatus(status).description or HTTPStatus(status).phrase if not inspect.isclass(body) else _first(body)


def _first(model: type[BaseModel]) -> str:
    return _paragraphs(model.__doc__)[0]


def _problem(status: int) -> Json:
    told: Json = {
        "description": described.PROBLEMS[status],
        "content": {PROBLEM: {"schema": {"$ref": _REFERENCE.format(model=Problem.__name__)}}},
    }
    if status in (429, 503):
        told["headers"] = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
    return told


def _header(name: str) -> Json:
    schema, meaning = described.ANSWER_HEADERS[name]
    return {"description": meaning, "schema": schema}


def _schemas(operations: Sequence[Operation], queries: Iterable[type[BaseModel]]) -> Json:
    """Return every model that an operation takes or gives, and those inside of them."""
    taken = {one.body for one in operations if one.body is not NoBody}.union(queries)
    given = {answer.body for one in operations for answer in one.answers.values() if inspect.isclass(answer.body)}
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        *((model, "validation") for model in taken),
        *((model, "serialization") for model in {*given, Problem}),
    ]
    modes.sort(key=lambda pair: pair[0].__name__)
    _, found = models_json_schema(modes, ref_template=_REFERENCE, schema_generator=_Untitled)
    return found["$defs"]

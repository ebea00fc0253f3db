"""The API's description (OpenAPI 3.1), made from the routes themselves: `GET /openapi.json`."""

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, cast

from flask import Blueprint, Flask, Response, current_app, json, request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel
from werkzeug.routing import Rule

from . import described
from .models import NoBody, demands_fields
from .operations import UNCHANGED, Operation, Reply, ViewFunction
from .operations import operation as declared
from .problems import PROBLEM
from .schemas import Json, Schemas
from .views import Problem

JSON = "application/json"

routes = Blueprint("description", __name__)

_VARIABLE = re.compile(r"<(?:any\((?P<choices>[^)]*)\):|[a-z]+:)?(?P<name>\w+)>")
_UNDESCRIBED = frozenset({"HEAD", "OPTIONS"})


@routes.get("/openapi.json")
@declared(None, headers=("If-None-Match",), answers={200: Reply(JSON, ("ETag",), "This document."), 304: UNCHANGED})
def openapi() -> ResponseReturnValue:
    """Return this description."""
    answer = Response(f"{json.dumps(described_once(current_app))}\n", content_type=JSON)
    answer.add_etag()
    answer.headers["Cache-Control"] = "no-cache"
    return answer.make_conditional(request)


def described_once(app: Flask) -> Json:
    """Return the description of an application, made at the first request: then all routes are there."""
    if "ghostless.openapi" not in app.extensions:
        app.extensions["ghostless.openapi"] = document(app)
    return cast(Json, app.extensions["ghostless.openapi"])


def document(app: Flask) -> Json:
    """Return the description of every route of an application."""
    found = sorted(_routes(app), key=lambda route: route.path)
    schemas = Schemas([route.operation for route in found])
    paths: Json = {}
    for route in found:
        for method in route.methods:
            paths.setdefault(route.path, {})[method.lower()] = route.described(schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": described.TITLE, "version": version("ghostless"), "description": described.INTRODUCTION},
        "tags": list({route.tag: route.tag_told for route in found}.values()),
        "paths": paths,
        "components": {
            "schemas": schemas.definitions,
            "responses": {
                f"Problem{status}": _problem(status, schemas.given(Problem)) for status in described.PROBLEMS
            },
            "headers": {name: _header(name) for name in described.ANSWER_HEADERS},
            "securitySchemes": described.SECURITY,
        },
    }


def _routes(app: Flask) -> Iterator["_Route"]:
    for rule in app.url_map.iter_rules():
        view = cast(ViewFunction, app.view_functions[rule.endpoint])
        if contract := Operation.of(view):
            yield _Route(rule, view, contract)


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
    def tag_told(self) -> Json:
        """The group of routes it is in; `x-displayName` is how the tools that show such documents call its heading."""
        about = _paragraphs(sys.modules[self.view.__module__].__doc__)[0]
        return {"name": self.tag, "x-displayName": described.TAG_TITLES[self.tag], "description": about}

    def described(self, schemas: Schemas) -> Json:
        """Return the operation as the document has it."""
        summary, *rest = _paragraphs(self.view.__doc__)
        told: Json = {"operationId": self.rule.endpoint.replace(".", "_"), "tags": [self.tag], "summary": summary}
        if rest:
            told["description"] = "\n\n".join(rest)
        if parameters := [
            *self._variables(),
            *schemas.parameters(self.operation.query),
            *self._headers(),
        ]:
            told["parameters"] = parameters
        if self.operation.body is not NoBody:
            told["requestBody"] = _body(self.operation.body, schemas.taken(self.operation.body))
        told["responses"] = self._answers(schemas) | self._problems()
        scope = self.operation.scope
        told["security"] = [{name: [str(scope)]} for name in described.SECURITY] if scope else []
        return told

    def _variables(self) -> list[Json]:
        return [_variable(found) for found in _VARIABLE.finditer(self.rule.rule)]

    def _headers(self) -> list[Json]:
        return [
            {"name": name, "in": "header", "description": meaning, "schema": schema}
            for name, (schema, meaning) in described.REQUEST_HEADERS.items()
            if name in self.operation.headers
        ]

    def _answers(self, schemas: Schemas) -> Json:
        answers = sorted(self.operation.answers.items())
        return {str(status): _answer(status, answer, schemas) for status, answer in answers}

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


def _body(model: type[BaseModel], schema: Json) -> Json:
    content: Json = {"schema": schema}
    examples = cast("Sequence[Any]", cast(Json, model.model_config.get("json_schema_extra") or {}).get("examples", ()))
    if examples:
        content["examples"] = {f"example{number}": {"value": one} for number, one in enumerate(examples, 1)}
    return {"required": demands_fields(model), "content": {JSON: content}}


def _answer(status: int, answer: Reply, schemas: Schemas) -> Json:
    told: Json = {"description": answer.meaning or _meaning(status, answer.body)}
    if answer.headers:
        told["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in answer.headers}
    if isinstance(answer.body, str):
        told["content"] = {answer.body: {"schema": {} if answer.body == JSON else {"type": "string"}}}
    elif answer.body:
        told["content"] = {JSON: {"schema": schemas.given(answer.body)}}
    return told


def _meaning(status: int, body: type[BaseModel] | str | None) -> str:
    if inspect.isclass(body):
        return _paragraphs(body.__doc__)[0]
    return HTTPStatus(status).description or HTTPStatus(status).phrase


def _problem(status: int, schema: Json) -> Json:
    told: Json = {"description": described.PROBLEMS[status], "content": {PROBLEM: {"schema": schema}}}
    if status in (429, 503):
        told["headers"] = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
    return told


def _header(name: str) -> Json:
    schema, meaning = described.ANSWER_HEADERS[name]
    return {"description": meaning, "schema": schema}

"""Holds every answer of an application against its own description."""

from typing import Any

from flask import Flask, Response, request
from ghostless.web.described import ANSWER_HEADERS
from ghostless.web.openapi import document
from jsonschema import Draft202012Validator

PROBLEM = {"$ref": "#/components/schemas/Problem"}


class Contract:
    """What an application answered against its description."""

    def __init__(self, app: Flask) -> None:
        self.document = document(app)
        self.breaches: list[str] = []
        self._app = app
        app.after_request(self._checked)

    def _checked(self, answer: Response) -> Response:
        asked = f"{request.method} {request.path} -> {answer.status_code}"
        self.breaches += [f"{asked}: {fault}" for fault in self._faults(answer)]
        return answer

    def _faults(self, answer: Response) -> list[str]:
        described = self._described()
        if described is None:  # no route: the answer is a problem, or says what is allowed
            return self._wrong(answer, PROBLEM) if answer.status_code >= 400 else []
        told = described["responses"].get(str(answer.status_code))
        if told is None:
            return ["this status is not described"]
        told = self._resolved(told)
        known = {*told.get("headers", {}), *(["Retry-After"] if answer.status_code >= 400 else [])}
        faults = [f"{name} is not described" for name in ANSWER_HEADERS if name in answer.headers and name not in known]
        content = told.get("content")
        if content is None:
            is_sent = answer.status_code not in (204, 304)  # the server leaves the body of these out
            return faults + (["a body is not described"] if is_sent and answer.get_data() else [])
        kind = next((each for each in (answer.mimetype, "*/*") if each in content), None)
        if kind is None:
            return [*faults, f"the content type {answer.mimetype} is not described"]
        schema = content[kind]["schema"]
        return faults + ([] if schema in ({}, {"type": "string"}) else self._wrong(answer, schema))

    def _described(self) -> dict[str, Any] | None:
        """Return the description of the route that was asked; None for a path or a method that there is not."""
        if request.url_rule is None or request.method == "OPTIONS":
            return None
        method = "get" if request.method == "HEAD" else request.method.lower()
        found = [
            operations[method]
            for operations in self.document["paths"].values()
            if operations.get(method, {}).get("operationId") == request.url_rule.endpoint.replace(".", "_")
        ]
        assert found, f"{request.url_rule} is not described"
        return found[0]

    def _resolved(self, told: dict[str, Any]) -> dict[str, Any]:
        name = told.get("$ref", "").rpartition("/")[2]
        return self.document["components"]["responses"][name] if name else told

    def _wrong(self, answer: Response, schema: dict[str, Any]) -> list[str]:
        ends = [] if answer.get_data().endswith(b"\n") else ["the last line has no end"]  # a terminal goes on in it
        return ends + self.wrong(answer.get_json(force=True), schema)

    def wrong(self, value: object, schema: dict[str, Any]) -> list[str]:
        """Return everything in which a value does not fit a schema of the document."""
        whole = schema | {"components": self.document["components"]}
        validator = Draft202012Validator(whole, format_checker=Draft202012Validator.FORMAT_CHECKER)
        return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(value)]

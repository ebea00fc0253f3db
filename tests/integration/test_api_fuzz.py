"""Schemathesis asks each route what its description allows, and what it does not: the answer is always as described.

Streams are left out, since they do not end. The same requests are made each time.
"""

from collections.abc import Iterator

import pytest
import schemathesis
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web.events import EVENT_STREAM
from ghostless.web.openapi import document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi import checks
from web_tools import publish, submitted

EXAMPLES = 40
"""Requests for each route and mode; two modes for some twenty routes take 20 s."""

CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


KNOWN = {"id": ["t0", "t1", "t2"], "name": ["work", "media"]}
"""Names that there are, by the parameter of a path; else hardly a request would get further than a 404."""


def asked_operations() -> Iterator[tuple[str, GenerationMode]]:
    """Yield the operations that end, by method and path: each with what it allows, and with what it forbids, if any."""
    for path, methods in document(create_app(Settings()))["paths"].items():
        for method, operation in methods.items():
            if EVENT_STREAM not in operation["responses"]["200"]["content"]:
                yield f"{method.upper()} {path}", GenerationMode.POSITIVE
                if operation["security"]:
                    yield f"{method.upper()} {path}", GenerationMode.NEGATIVE


ASKED = list(asked_operations())


def cases(operation: APIOperation, mode: GenerationMode) -> st.SearchStrategy[schemathesis.Case]:
    """Return requests of an operation, most of them for what there is."""
    known = [{name: value} for name in KNOWN if f"{{{name}}}" in operation.path for value in KNOWN[name]]
    names = [operation.as_strategy(mode, path_parameters=one) for one in known]
    found = st.one_of(operation.as_strategy(mode), *names)
    return found.map(of_known_type) if mode is GenerationMode.POSITIVE else found


def of_known_type(case: schemathesis.Case) -> schemathesis.Case:
    """Return a submit with a type that is published, and what it takes; any other request as it is."""
    if isinstance(case.body, dict) and "type" in case.body:
        case.body |= {"type": "work", "params": {}, "depends_on": []}
    return case


@pytest.fixture(scope="module")
def api() -> BaseSchema:
    """The description as Schemathesis reads it."""
    return schemathesis.openapi.from_dict(document(create_app(Settings())))


@pytest.fixture
def asked(client: Client, store: Store, api: BaseSchema, monkeypatch: pytest.MonkeyPatch) -> Iterator[BaseSchema]:
    """The same, of an application with a few tasks, whose long polls wait for nothing."""
    monkeypatch.setattr("ghostless.web.waiting.WAIT_LIMIT", 0)
    publish(store)
    for number in range(3):
        submitted(client, id=f"t{number}", owner="ann")
    client.cancel("t2")
    app = create_app(client=client)
    api.app = app
    yield api
    app.extensions["ghostless"].hub.close()


@pytest.mark.parametrize(("label", "mode"), ASKED, ids=str)
def test_whatever_is_asked_is_answered_as_described(asked: BaseSchema, label: str, mode: GenerationMode) -> None:
    """No 5xx; each status, content type, header and body is as the description says, and what it forbids is refused."""
    method, path = label.split()
    operation = asked[path][method.lower()]

    @settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=HealthCheck)
    @given(case=cases(operation, mode))
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    ask()

"""Schemathesis asks each route what its description allows, and what it does not: the answer is always as described.

It asks as one who may do everything, and as one who is bound to an owner. Streams end after their replay, long polls
at once. The same requests are made each time.
"""

from collections.abc import Iterator

import pytest
import schemathesis
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import OF_AN_OWNER
from ghostless.web.openapi import document
from hypothesis import HealthCheck, given, settings
from hypothesis import core as hypothesis_core
from hypothesis import strategies as st
from redis_server import RedisServer
from schemathesis import GenerationMode
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi import checks
from web_tools import publish, submitted

EXAMPLES = 20
"""Requests for each route, mode and caller."""

CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


FOREIGN, HIDDEN = "b0", "nobody-tells-of-this-one"
"""Tasks of another owner: one that is asked for, and one that is not."""

KNOWN = {"id": ["t0", "t1", "t2", FOREIGN], "name": ["work", "media"]}
"""Names that there are, by the parameter of a path; else hardly a request would get further than a 404."""


def asked_operations() -> Iterator[tuple[str, GenerationMode, bool]]:
    """Yield the operations by method and path: each with what it allows, and with what it forbids, if any.

    And whether one asks who is bound to an owner, as far as he may ask this at all.
    """
    for path, methods in document(create_app(Settings()))["paths"].items():
        for method, operation in methods.items():
            scopes = {scope for way in operation["security"] for names in way.values() for scope in names}
            for mode in list(GenerationMode) if scopes else [GenerationMode.POSITIVE]:
                for is_bound in (False, True) if scopes & OF_AN_OWNER else (False,):
                    yield f"{method.upper()} {path}", mode, is_bound


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


@pytest.fixture(scope="module", autouse=True)
def hypothesis_as_it_was() -> Iterator[None]:
    """Schemathesis swaps the printer of failing examples in the whole process; other tests of it want theirs."""
    printer = hypothesis_core.RepresentationPrinter
    yield
    hypothesis_core.RepresentationPrinter = printer


@pytest.fixture(scope="module")
def api(redis_server: RedisServer) -> Iterator[BaseSchema]:
    """The description of an application as Schemathesis reads it, which then asks that one."""
    app = create_app(client=Client(Settings(redis_url=redis_server.url)))
    api = schemathesis.openapi.from_dict(document(app))
    api.app = app
    yield api
    app.extensions["ghostless"].hub.close()


@pytest.fixture
def asked(client: Client, store: Store, api: BaseSchema, monkeypatch: pytest.MonkeyPatch) -> BaseSchema:
    """The same, with a few tasks, where nobody is kept waiting."""
    monkeypatch.setattr("ghostless.web.waiting.WAIT_LIMIT", 0)
    monkeypatch.setattr("ghostless.web.sse.AGE", (0.0, 0.0))
    publish(store)
    for number in range(3):
        submitted(client, id=f"t{number}", owner="ann")
    client.cancel("t2")
    for task_id in (FOREIGN, HIDDEN):
        submitted(client, id=task_id, owner="bob")
    return api


@pytest.mark.parametrize(("label", "mode", "is_bound"), ASKED, ids=str)
def test_whatever_is_asked_is_answered_as_described(
    asked: BaseSchema, client: Client, label: str, mode: GenerationMode, is_bound: bool
) -> None:
    """No 5xx; each status, content type, header and body is as the description says, and what it forbids is refused.

    Who is bound to an owner is told of no task of another one, and the one that he names is as one that never was.
    """
    method, path = label.split()
    operation = asked[path][method.lower()]
    shown = {"Authorization": f"Bearer {client.tokens.add('ann', OF_AN_OWNER, owner='ann')[0]}"} if is_bound else {}

    # Schemathesis holds each event against the schema of the whole stream, which is a text.
    excluded = [checks.response_schema_conformance] if path.endswith("/events") else []

    @settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=HealthCheck)
    @given(case=cases(operation, mode))
    def ask(case: schemathesis.Case) -> None:
        answer = case.call_and_validate(checks=CHECKS, excluded_checks=excluded, headers=shown)
        if is_bound:
            assert HIDDEN not in answer.text
            names_foreign = case.path_parameters.get("id") == FOREIGN
            is_refused = answer.status_code >= 400 if mode is GenerationMode.NEGATIVE else answer.status_code == 404
            assert is_refused or not names_foreign

    ask()

"""`GET /openapi.json`: a valid description of every route, whose examples a server takes."""

import dataclasses
import re
from typing import Any

import pytest
from contract import Contract
from flask import Flask
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.delivery import Try
from ghostless.jobs.explanation import Explanation
from ghostless.jobs.fleet import Member
from ghostless.jobs.groups import GroupStatus
from ghostless.jobs.model import Task
from ghostless.jobs.record import GpuMemory, WorkerRecord
from ghostless.jobs.recurrence import Recurrence
from ghostless.jobs.schedules import Schedule
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import Policy
from ghostless.web import delivery_views, overview_views, views
from openapi_spec_validator import validate
from pydantic import BaseModel
from web_tools import publish


@pytest.fixture(scope="module")
def app() -> Flask:
    """The application; no request of these tests reaches Redis."""
    return create_app(Settings())


@pytest.fixture(scope="module")
def described(app: Flask) -> dict[str, Any]:
    """Its description, as it is served."""
    return app.test_client().get("/openapi.json").json


def operations(described: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return every operation by method and path."""
    return {
        f"{method.upper()} {path}": operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }


def test_it_is_valid(described: dict[str, Any]) -> None:
    """By the specification of OpenAPI 3.1."""
    assert "3.1.0" == described["openapi"]
    validate(described)


def test_every_route_is_in_it_and_nothing_else(app: Flask, described: dict[str, Any]) -> None:
    """Each rule with each of its methods; HEAD and OPTIONS go without saying."""
    routed = {
        f"{method} {re.sub('<.*?>', '{}', re.sub(r'<any.*?>', '{}', rule.rule))}"
        for rule in app.url_map.iter_rules()
        for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    assert routed == {re.sub("{.*?}", "{}", name) for name in operations(described)}


def test_it_is_good_to_read(described: dict[str, Any]) -> None:
    """Each operation has a summary, a tag, an answer and a name of its own; each parameter says what it is."""
    found = operations(described)
    assert len(found) == len({operation["operationId"] for operation in found.values()})
    for name, operation in found.items():
        assert operation["summary"].endswith((".", ":")), name
        assert {tag["name"] for tag in described["tags"]} >= set(operation["tags"]), name
        assert [status for status in operation["responses"] if int(status) < 300], f"{name} declares no answers"
        for parameter in operation.get("parameters", []):
            assert parameter["description"], (name, parameter["name"])
            assert parameter["schema"], (name, parameter["name"])
    assert all(tag["description"] for tag in described["tags"])


def test_scopes_and_problems_are_told(described: dict[str, Any]) -> None:
    """What a token must allow, and each error that a route may give, with what comes with it."""
    submit = operations(described)["POST /api/tasks"]
    assert [{"bearer": ["submit"]}, {"session": ["submit"]}] == submit["security"]
    assert {"400", "403", "409", "413", "415", "422", "500", "503"} <= submit["responses"].keys()
    assert "410" in operations(described)["GET /api/tasks/{id}"]["responses"]
    assert [] == operations(described)["GET /healthz"]["security"]
    assert "Retry-After" in described["components"]["responses"]["Problem503"]["headers"]


def test_it_is_not_sent_twice(app: Flask) -> None:
    """The same version costs the client nothing."""
    first = app.test_client().get("/openapi.json")
    again = app.test_client().get("/openapi.json", headers={"If-None-Match": first.headers["ETag"]})
    assert (200, 304, b"") == (first.status_code, again.status_code, again.data)
    assert "no-cache" == first.headers["Cache-Control"]


def test_every_field_of_a_body_is_explained(described: dict[str, Any]) -> None:
    """What a client is to send, also inside of it."""
    schemas, taken = described["components"]["schemas"], set[str]()
    bodies = [one["requestBody"] for one in operations(described).values() if "requestBody" in one]
    waiting = re.findall("#/components/schemas/([A-Za-z]+)", str(bodies))
    while waiting:
        name = waiting.pop()
        if name not in taken:
            taken.add(name)
            waiting += re.findall("#/components/schemas/([A-Za-z]+)", str(schemas[name].get("properties", {})))
    fields = {f"{name}.{field}": told for name in taken for field, told in schemas[name].get("properties", {}).items()}
    assert {"ClaimBody.types", "BeatOfOne.token", "BulkFilterBody.ids"} <= fields.keys()
    assert [] == sorted(field for field, told in fields.items() if not told.get("description"))


UNKNOWN = {"stale-attempt", "unauthorized", "delivery-not-found", "bulk-action-not-found"}
VARIABLE = re.compile("{([a-z]+)}")
NAMES = {"id": "example", "action": "cancel", "name": "work", "type": "work", "bulk": "none", "delivery": "1-1"}


def test_its_examples_are_accepted(client: Client, store: Store) -> None:
    """Each example of a body is what a server takes, and fits its own schema."""
    publish(store, "work")
    kind = {"queue": "media", "policy": Policy().pack(), "schema": {"type": "object"}, "description": ""}
    store.publish_types({"video.thumbnails": kind})
    client.submit("work", id="example", queue="work")
    app = create_app(client=client)
    contract = Contract(app)
    sent = 0
    for name, operation in operations(contract.document).items():
        for content in operation.get("requestBody", {"content": {}})["content"].values():
            for example in content.get("examples", {}).values():
                method, path = VARIABLE.sub(lambda found: NAMES[found[1]], name).split()
                assert [] == contract.wrong(example["value"], content["schema"]), name
                answer = app.test_client().open(path, method=method, json=example["value"])
                # It names an attempt that nobody holds here, or a token that nobody made.
                is_known = answer.status_code < 400 or answer.json["type"].partition("ghostless:")[2] in UNKNOWN
                assert is_known, (name, example, answer.text)
                sent += 1
    assert sent > 3
    assert [] == contract.breaches


SHOWN = {
    views.TaskView: (Task, {"finished_at"}),
    views.PolicyView: (Policy, set()),
    views.ExplanationView: (Explanation, set()),
    delivery_views.TryView: (Try, set()),
    overview_views.GroupView: (GroupStatus, set()),
    overview_views.WorkerView: (Member, set()),
    overview_views.RecordView: (WorkerRecord, set()),
    overview_views.GpuView: (GpuMemory, set()),
    overview_views.ScheduleView: (Schedule, {"removed"}),
    overview_views.RecurrenceView: (Recurrence, set()),
}
"""The values that an answer shows whole, with the names that only one of the two has."""


@pytest.mark.parametrize("view", SHOWN, ids=lambda view: view.__name__)
def test_an_answer_is_described_field_by_field(view: type[BaseModel]) -> None:
    """A field that is added to what is shown, and not to its description, is noticed."""
    shown, other = SHOWN[view]
    assert other == {field.name for field in dataclasses.fields(shown)} ^ view.model_fields.keys()

"""The application without Redis: making it, its errors, and how requests are read."""

import json
import re
from collections.abc import Iterator

import pytest
from flask import Flask
from ghostless.app import create_app
from ghostless.jobs import errors
from ghostless.jobs.settings import Settings
from ghostless.statemachine import Event
from ghostless.web.models import SubmitBody, _depth_exceeds
from ghostless.web.problems import pointer
from ghostless.web.serve import serve
from ghostless.web.waiting import applied_wait
from pydantic import ValidationError

NOWHERE = "redis://:s3cret@127.0.0.1:1/0"

EXAMPLES: dict[type[errors.GhostlessError], tuple[errors.GhostlessError, int]] = {
    type(error): (error, status)
    for error, status in [
        (errors.RedisUnavailable(OSError("s3cret")), 503),
        (errors.RedisFull("OOM s3cret"), 503),
        (errors.CorruptRecord("s3cret"), 500),
        (errors.TaskNotFound("t"), 404),
        (errors.IllegalMove("t", Event.RESUME, "SUCCESS"), 409),
        (errors.StaleAttempt("t", 1), 409),
        (errors.InvalidTask([errors.Fault("delay", "wrong")]), 422),
        (errors.InvalidParams("work", [errors.Fault("params.n", "wrong")]), 422),
        (errors.UnknownTaskType("wrok", ["work"]), 422),
        (errors.TaskConflict("t"), 409),
        (errors.TooLarge("params", 2, 1), 413),
    ]
}


@pytest.fixture
def app() -> Iterator[Flask]:
    """An application whose Redis is not there."""
    app = create_app(Settings(redis_url=NOWHERE))
    yield app
    app.extensions["ghostless"].hub.close()


def test_making_the_application_needs_no_redis(app: Flask) -> None:
    """A worker process is made before Redis may be up, and under gevent before a socket may be opened."""
    assert 200 == app.test_client().get("/healthz").status_code


def test_without_redis_the_process_is_alive_and_not_ready(app: Flask) -> None:
    """Restarting the web process does not bring Redis back: only readiness depends on it."""
    answer = app.test_client().get("/readyz")
    assert 503 == answer.status_code
    assert "2" == answer.headers["Retry-After"]
    assert "application/problem+json" == answer.content_type
    assert "s3cret" not in answer.text


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_every_error_of_ours_is_told_as_a_problem(app: Flask, kind: type[errors.GhostlessError]) -> None:
    """Each error has its status; what it knows of the inside, which may be secret, stays in the log."""
    error, status = EXAMPLES[kind]

    @app.get("/raise")
    def fail() -> str:
        raise error

    answer = app.test_client().get("/raise")
    document = json.loads(answer.data)
    assert (status, "application/problem+json") == (answer.status_code, answer.content_type)
    assert {"type", "title", "status", "detail"} <= document.keys()
    assert status == document["status"]
    assert re.fullmatch(r"urn:ghostless:[a-z-]+", document["type"])
    assert "s3cret" not in answer.text
    assert (503 == status) == ("Retry-After" in answer.headers)


def test_members_name_what_a_program_needs(app: Flask) -> None:
    """Faults have pointers, an unknown type its near matches, a refused move the state, a purged task its time."""
    told: dict[str, dict[str, object]] = {}
    purged = errors.TaskNotFound("t", purged_at=17)
    for error in [*(error for error, _ in EXAMPLES.values()), purged]:

        @app.get(f"/{id(error)}", endpoint=str(id(error)))
        def fail(error: Exception = error) -> str:
            raise error

    client = app.test_client()
    for kind, (error, _) in EXAMPLES.items():
        told[kind.__name__] = json.loads(client.get(f"/{id(error)}").data)
    assert [{"pointer": "/params/n", "detail": "wrong"}] == told["InvalidParams"]["errors"]
    assert ["work"] == told["UnknownTaskType"]["near"]
    assert ("SUCCESS", "RESUME") == (told["IllegalMove"]["state"], told["IllegalMove"]["event"])
    answer = client.get(f"/{id(purged)}")
    assert (410, 17) == (answer.status_code, json.loads(answer.data)["purged_at"])


def test_a_fault_of_ours_shows_no_trace(app: Flask) -> None:
    """A 500 says nothing of the code or of the values in it."""

    @app.get("/fault")
    def fail() -> str:
        secret = "s3cret"
        raise RuntimeError(secret)

    answer = app.test_client().get("/fault")
    assert (500, "application/problem+json") == (answer.status_code, answer.content_type)
    assert "s3cret" not in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/api/nothing", 404),
        ("GET", "/api//tasks", 404),
        ("DELETE", "/api/tasks", 405),
        ("GET", "/api/tasks/t/cancel", 405),
        ("POST", "/api/tasks/t/explode", 404),
    ],
)
def test_errors_of_routing_are_problems_too(app: Flask, method: str, path: str, status: int) -> None:
    """Clients read one kind of error, whoever found it; a 405 says what is allowed."""
    answer = app.test_client().open(path, method=method)
    assert (status, "application/problem+json") == (answer.status_code, answer.content_type)
    assert (405 == status) == ("Allow" in answer.headers)


def test_every_answer_carries_the_security_headers(app: Flask) -> None:
    """Nothing is sniffed, framed, cached or run, errors included."""
    for path in ("/healthz", "/nothing", "/readyz"):
        headers = app.test_client().get(path).headers
        assert "nosniff" == headers["X-Content-Type-Options"]
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "no-store" == headers["Cache-Control"]


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "nonsense"}, False),
        ({"Origin": "http://localhost"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://proxied.example"}, True),
    ],
)
def test_pages_of_other_sites_change_nothing(app: Flask, headers: dict[str, str], allowed: bool) -> None:
    """A write comes from this origin's pages or from a program; reading is not restricted by this."""
    client = app.test_client()
    for path in ("/api/tasks/t/cancel", "/api/queues/q/pause"):
        # Beyond the guard there is no Redis: 503 means that it let the request pass.
        assert (503 if allowed else 403) == client.post(path, headers=headers).status_code
    assert 503 == client.get("/api/stats", headers=headers).status_code


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_that_a_form_could_send_is_refused(app: Flask, kind: str) -> None:
    """Only JSON is taken: other types can be sent across sites without asking."""
    client = app.test_client()
    for path in ("/api/tasks", "/api/tasks/t/cancel", "/api/queues/q/pause"):
        answer = client.post(path, data=b"{}", headers={"Content-Type": kind})
        assert (415, "application/problem+json") == (answer.status_code, answer.content_type)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (1893456000, 1893456000.0),
        (1893456000.5, 1893456000.5),
        ("2030-01-01T00:00:00Z", 1893456000.0),
        ("2030-01-01T02:00:00+02:00", 1893456000.0),
        ("2030-01-01 00:00:00.250+00:00", 1893456000.25),
    ],
)
def test_run_at_is_seconds_or_a_time_with_its_zone(value: object, seconds: float | None) -> None:
    """Both forms mean the same moment."""
    assert seconds == SubmitBody.model_validate({"type": "t", "run_at": value}).run_at


@pytest.mark.parametrize(
    "value", ["2030-01-01T00:00:00", "2030-01-01", "tomorrow", "1893456000", "", True, [], "9999-12-31T23:59:59-23:59x"]
)
def test_a_time_without_a_zone_is_refused(value: object) -> None:
    """A server must not guess where a client lives."""
    with pytest.raises(ValidationError):
        SubmitBody.model_validate({"type": "t", "run_at": value})


@pytest.mark.parametrize(
    ("asked", "prefer", "seconds"),
    [
        (None, "", None),
        (5, "", 5),
        (0, "wait=9", 0),
        (None, "wait=30", 30),
        (None, "respond-async, wait=30", 30),
        (None, "handling=lenient;x=y , Wait = 7", 7),
        (None, 'wait="8"', 8),
        (None, "wait=3600", 60),
        (3600, "", 60),
        (None, "wait=-1", None),
        (None, "wait=soon", None),
        (None, "await=5", None),
        (None, "wait=5s", None),
    ],
)
def test_a_client_says_how_long_it_waits(asked: int | None, prefer: str, seconds: int | None) -> None:
    """The query goes before the header, both are capped, and a preference that cannot be read is none."""
    assert seconds == applied_wait(asked, prefer)


def test_pointers_are_escaped() -> None:
    """A field's name cannot pretend to be a path (RFC 6901)."""
    assert "/a~1b/c~0d/0" == pointer("a/b", "c~d", 0)


def test_depth_is_measured_without_recursion() -> None:
    """A document may be as deep as the limit and not deeper, in objects and arrays."""
    deep: object = 1
    for _ in range(5):
        deep = {"a": [deep]}
    assert not _depth_exceeds(deep, 11)
    assert _depth_exceeds(deep, 10)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_everybody_is_not_served_by_accident(host: str) -> None:
    """Beyond this host an address is served only when the operator says that anyone may do everything."""
    with pytest.raises(errors.InvalidSetting, match="allow_anonymous"):
        serve(Settings(), host)

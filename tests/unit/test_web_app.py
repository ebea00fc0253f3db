"""The application without Redis: making it, its errors, and how requests are read."""

import json
import re
import resource
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from flask import Flask
from ghostless.app import create_app
from ghostless.jobs import errors
from ghostless.jobs.cli import VERBS
from ghostless.jobs.settings import Settings
from ghostless.statemachine import Event
from ghostless.web import limits, problems
from ghostless.web import serve as serve_module
from ghostless.web.hosts import is_local
from ghostless.web.limits import Limits, raise_file_limit
from ghostless.web.models import SubmitBody
from ghostless.web.problems import pointer
from ghostless.web.serve import Server, demands_tokens
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
    purged = errors.TaskPurged("t", 17)
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
        ("GET", "/nothing", 404),
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
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "nonsense"}, False),
        ({"Origin": "http://localhost"}, True),
        ({"Origin": "https://localhost"}, False),
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


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("LocalHost.:8000", True),
        ("app.localhost:8000", True),
        ("127.0.0.1", True),
        ("127.255.0.9:1", True),
        ("[::1]", True),
        ("[::1]:8000", True),
        ("evil.example", False),
        ("evil.example:8000", False),
        ("localhost.evil.example", False),
        ("notlocalhost", False),
        ("127.0.0.1.evil.example", False),
        ("127.evil.example", False),
        ("192.0.2.1:8000", False),
        ("0.0.0.0:8000", False),
        ("[::]", False),
        ("::1", False),
        ("[localhost]", False),
        ("localhost:80, evil.example", False),
        ("localhost@evil.example", False),
        ("localhost\n", False),
        ("", False),
    ],
)
def test_names_of_this_machine_are_told_from_others(host: str, local: bool) -> None:
    """Only what can lead to no other machine is its name: any other one is its owner's to point at it."""
    assert local == is_local(host)


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/tasks/t/cancel"), ("GET", "/api/tasks"), ("GET", "/api/events"), ("GET", "/healthz"), ("GET", "/")],
)
def test_a_name_that_was_pointed_here_reaches_nothing(app: Flask, method: str, path: str) -> None:
    """A page of another site whose name leads to this machine passes for one of ours: its Host gives it away."""
    hostile = {"Host": "evil.example:8000", "Origin": "http://evil.example:8000", "Sec-Fetch-Site": "same-origin"}
    answer = app.test_client().open(path, method=method, headers=hostile)
    assert (421, "application/problem+json") == (answer.status_code, answer.content_type)
    assert "evil.example:8000" in json.loads(answer.data)["detail"]
    own = {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}
    assert 421 != app.test_client().open(path, method=method, headers=own).status_code


def test_a_server_of_more_than_this_machine_answers_to_any_name() -> None:
    """Its names are the operator's business; he said that anyone may do everything."""
    app = create_app(Settings(redis_url=NOWHERE), local_only=False)
    assert 200 == app.test_client().get("/healthz", headers={"Host": "tasks.example"}).status_code


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


def test_no_text_sends_anybody_to_a_command_that_does_not_exist() -> None:
    """Whoever is told to run `ghostless something` can run it."""
    folder = Path(problems.__file__).parent
    named = {name for file in folder.glob("*.py") for name in re.findall(r"ghostless ([a-z]+)`", file.read_text())}
    assert named <= {verb for section in VERBS.values() for verb in section}


def test_a_dead_watchdog_makes_the_process_not_alive(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was to watch and no longer does is restarted; one that was not to watch needs none."""
    over = threading.Event()
    monkeypatch.setattr(serve_module, "run_watchdog", lambda _settings, _stop: over.wait(20))
    worker = SimpleNamespace(alive=True, wsgi=app)
    client, desk = app.test_client(), app.extensions["ghostless"]
    for watchdog in (False, True):
        Server(Settings(), lambda: app, {}, watchdog=watchdog)._begin(worker)
        assert 200 == client.get("/healthz").status_code
    over.set()
    desk.watchdog.join(5)
    answer = client.get("/healthz")
    assert (503, "urn:ghostless:watchdog-dead") == (answer.status_code, json.loads(answer.data)["type"])
    worker.alive = False


@pytest.mark.parametrize("files", [limits.FILES_LEAST, 60, 256, 1024, 4096, 20_000, 20_040, 1_048_576])
def test_what_is_served_fits_into_the_files_that_may_be_open(files: int) -> None:
    """Each connection with one to Redis and everything else fit in; streams leave room for plain requests."""
    fitting = Limits.of(files)
    assert limits.RESERVED + 2 * fitting.connections <= files
    assert fitting.connections <= 10_000
    assert 0 < fitting.subscribers < fitting.connections
    assert fitting.connections - fitting.subscribers >= min(fitting.connections // 2, limits.PLAIN)


def test_with_files_enough_the_limits_are_the_full_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system knows no limit."""
    assert Limits(10_000, 9_000) == Limits.of(1_048_576)
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert Limits(10_000, 9_000) == Limits.here()


def test_a_process_that_may_open_next_to_no_files_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is raised as far as it goes; when that is not enough the message names it."""
    asked: list[object] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limit: asked.append(limit))
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (20, 50))
    with pytest.raises(errors.InvalidSetting, match="ulimit -n"):
        raise_file_limit()
    assert [(50, 50)] == asked


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_everybody_is_not_served_by_accident(host: str) -> None:
    """Beyond this host everybody shows a token, unless the operator says that anyone may do everything."""
    demanded = partial(demands_tokens, host=host, require_tokens=False)
    assert demanded(Settings(), allow_anonymous=False)
    assert not demanded(Settings(), allow_anonymous=True)
    with pytest.raises(errors.InvalidSetting, match="allow_anonymous"):
        demanded(Settings(require_tokens=True), allow_anonymous=True)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.9", "::1"])
def test_this_machine_needs_no_token_unless_that_is_said(host: str) -> None:
    """By the option or by the setting."""
    demanded = partial(demands_tokens, host=host, allow_anonymous=False)
    assert not demanded(Settings(), require_tokens=False)
    assert demanded(Settings(), require_tokens=True)
    assert demanded(Settings(require_tokens=True), require_tokens=False)

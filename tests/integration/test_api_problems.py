"""Every error of every route is a problem detail, whatever is wrong with the request or with Redis."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from contract import Contract
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.settings import Settings
from ghostless.statemachine import Policy
from ghostless.web import described
from ghostless.web.events import EVENT_STREAM
from ghostless.web.kinds import Kind
from ghostless.web.openapi import document
from proxy import Proxy
from redis import Redis
from redis_server import RedisServer
from web_tools import publish, submitted
from werkzeug.test import TestResponse

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
BULK = BulkRequest("cancel", BulkFilter(ids=("nothing",)), idempotency_key="key")
NAMES = {
    "id": "t",
    "name": "work",
    "type": "work",
    "bulk": BULK.id_of_key(),
    "delivery": "1790000000000-0",
    "file": "client.js",
}
NEEDS_A_FILE = "/api/tasks/{id}/artifacts/{file_name}"  # see test_artifacts.py
WITHOUT_REDIS = {
    *("GET /healthz", "GET /openapi.json", "GET /api/session", "DELETE /api/session"),
    *("GET /", "GET /docs", "GET /login", "GET /tasks/t", "GET /static/client.js"),
}
"""What is answered whatever becomes of Redis."""

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "api.md"


@dataclass(frozen=True)
class Asked:
    """A request that is fine in every way."""

    method: str
    path: str
    body: Any
    is_stream: bool

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.method == "GET"

    def send(self, web: FlaskClient, **options: Any) -> TestResponse:
        """Send it; of a stream the beginning alone is waited for."""
        body = {} if self.reads else {"json": self.body}
        answer = web.open(self.path, **{"method": self.method, **body, **options})
        if self.is_stream:
            answer.close()
        return answer


def requests() -> Iterator[Asked]:
    """Yield a request for each operation, and for each action of those that have some."""
    paths = document(create_app(Settings()))["paths"]
    for path, methods in ((path, paths[path]) for path in paths if path != NEEDS_A_FILE):
        for method, operation in methods.items():
            parameters = {one["name"]: one["schema"] for one in operation.get("parameters", []) if one["in"] == "path"}
            for action in parameters.get("action", {}).get("enum", [""]):
                full = path.format_map({**NAMES, "action": action})
                content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
                body = next((one["value"] for one in content.get("examples", {}).values()), {})
                is_stream = EVENT_STREAM in operation["responses"].get("200", {}).get("content", {})
                yield Asked(method.upper(), full, body, is_stream)


REQUESTS = list(requests())
WRITING = [request for request in REQUESTS if not request.reads]
PATHS = sorted({request.path for request in REQUESTS})


def prepare(client: Client) -> None:
    """Make known what the requests name."""
    publish(client.store)
    kind = {"queue": "work", "policy": Policy().pack(), "schema": {"type": "object"}, "description": ""}
    client.store.publish_types({"video.thumbnails": kind})
    submitted(client, id="t")
    client.bulk.begin(BULK)
    client.store.redis.set(client.store.keys.callback("t"), "https://example.com/")
    client.deliveries.plan(replace(client.history("t")[0], id=NAMES["delivery"]))


@pytest.fixture(autouse=True)
def known(client: Client) -> None:
    """What the requests name is there."""
    prepare(client)


def problem(answer: TestResponse, *statuses: int) -> dict[str, Any]:
    """Check that an answer is a problem with one of these statuses, and return it."""
    assert answer.status_code in statuses, (answer.status_code, answer.text)
    assert "application/problem+json" == answer.content_type
    told = answer.get_json(force=True)
    assert answer.status_code == told["status"]
    assert told["type"].startswith("urn:ghostless:")
    assert told["title"]
    assert told["detail"]
    return told


# What is wrong with the request


@pytest.mark.parametrize("path", PATHS)
def test_a_method_that_there_is_not(web: FlaskClient, path: str) -> None:
    """405, with the methods that there are; OPTIONS names the same."""
    there = {request.method for request in REQUESTS if request.path == path}
    implied = {"OPTIONS"} | ({"HEAD"} if "GET" in there else set())
    for method in set(METHODS) - there:
        answer = web.open(path, method=method)
        problem(answer, 405)
        assert there | implied == set(answer.headers["Allow"].split(", ")), method
    options = web.options(path)
    assert (200, b"") == (options.status_code, options.data)
    assert there | implied == set(options.headers["Allow"].split(", "))


@pytest.mark.parametrize("asked", [request for request in REQUESTS if request.reads], ids=str)
def test_head_is_get_without_the_body(web: FlaskClient, asked: Asked) -> None:
    """The same status and kind of content, and nothing to read."""
    told, whole = asked.send(web, method="HEAD"), asked.send(web)
    assert (whole.status_code, whole.content_type) == (told.status_code, told.content_type)
    assert b"" == told.data


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/task", "/api/tasks/", "/api/tasks/t/", "/api/tasks/t/x/y"])
def test_a_path_that_there_is_not(web: FlaskClient, path: str) -> None:
    """404, and no redirect."""
    for method in METHODS:
        problem(web.open(path, method=method), 404, 405)


@pytest.mark.parametrize("asked", WRITING, ids=str)
def test_a_body_that_is_not_what_it_must_be(web: FlaskClient, asked: Asked) -> None:
    """415 for another content type, 400 for no JSON, 422 for the wrong JSON, 413 for too much: each of every route."""
    json = {"content_type": "application/json"}
    for other in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json"):
        told = problem(asked.send(web, json=None, data=b'{"a": 1}', content_type=other), 415)
        assert "application/json" in told["detail"]
    problem(asked.send(web, json=None, data=b"{", **json), 400)
    problem(asked.send(web, json=None, data=b"[]", **json), 422)
    assert "/surplus" in {one["pointer"] for one in problem(asked.send(web, json={"surplus": 1}), 422)["errors"]}
    problem(asked.send(web, json=None, data=b" " * (2 * 1024 * 1024 + 1), **json), 413)


@pytest.mark.parametrize("asked", REQUESTS, ids=str)
def test_another_host_another_site_another_parameter(web: FlaskClient, asked: Asked) -> None:
    """421, 403, 422: of every route alike."""
    problem(asked.send(web, headers={"Host": "evil.example"}), 421)
    if not asked.reads:
        problem(asked.send(web, headers={"Sec-Fetch-Site": "cross-site"}), 403)
    told = problem(asked.send(web, query_string={"surplus": "1"}), 422)
    assert ["surplus"] == [error["parameter"] for error in told["errors"]]


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "*/*;q=0", "nonsense"])
def test_whatever_is_accepted_the_answer_is_json(web: FlaskClient, accept: str) -> None:
    """There is no other form, so nobody is turned away for asking for one."""
    assert 200 == web.get("/api/tasks/t", headers={"Accept": accept}).status_code
    problem(web.get("/api/tasks/nope", headers={"Accept": accept}), 404)


def test_a_fault_of_the_server(web: FlaskClient, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """500, without a word of what it was: that stands in the log."""

    def fail(_client: Client) -> None:
        raise RuntimeError("s3cret")

    monkeypatch.setattr(Client, "workers", fail)
    answer = web.get("/api/workers")
    assert "urn:ghostless:internal" == problem(answer, 500)["type"]
    assert "s3cret" not in answer.text
    assert "s3cret" in caplog.text


# What is wrong with Redis


@pytest.fixture
def trouble(own_server: Callable[..., RedisServer]) -> Iterator[tuple[RedisServer, Proxy, FlaskClient]]:
    """An application whose Redis, behind a man in the middle, may be ill-treated."""
    server = own_server()
    proxy = Proxy(server.port)
    with connect(Settings(redis_url=proxy.url)) as redis:
        client = Client(Settings(redis_url=proxy.url), redis)
        prepare(client)
        app = create_app(client=client)
        contract = Contract(app)
        yield server, proxy, app.test_client()
        app.extensions["ghostless"].hub.close()
    proxy.close()
    assert [] == contract.breaches


def expect_unavailable(web: FlaskClient, kind: str = "storage-unavailable") -> None:
    """Check that every route says that it cannot be served now, and when to come back."""
    for asked in REQUESTS:
        answer = asked.send(web)
        if str(asked) in WITHOUT_REDIS:
            assert answer.status_code < 300, asked
            continue
        assert f"urn:ghostless:{kind}" == problem(answer, 503)["type"], asked
        assert 0 < int(answer.headers["Retry-After"]) < 60


def test_redis_is_down(trouble: tuple[RedisServer, Proxy, FlaskClient]) -> None:
    """503 with Retry-After from every route that needs it, long polls included."""
    server, _, web = trouble
    server.kill()
    expect_unavailable(web)
    problem(web.get("/api/tasks/t?wait=20"), 503)


def test_redis_is_loading(trouble: tuple[RedisServer, Proxy, FlaskClient]) -> None:
    """The same while it reads its files after a start; and all is well afterwards."""
    _, proxy, web = trouble
    proxy.mode = "loading"
    expect_unavailable(web)
    proxy.mode = "pass"
    assert "PENDING" == web.get("/api/tasks/t").json["state"]


def contents(redis: Redis) -> dict[str, Any]:
    """Return every key with a digest of its value."""
    return {key: redis.execute_command("DEBUG", "DIGEST-VALUE", key) for key in redis.scan_iter()}


TOLD_BY_READING = {f"urn:ghostless:{kind}" for kind in ("stale-attempt", "illegal-move", "unauthorized")}
"""Of an attempt that nobody holds, a state that forbids the action, a token that nobody made."""


def is_told_by_reading(answer: TestResponse) -> bool:
    """Tell whether a request was refused before anything had to be written."""
    return answer.status_code in (401, 409) and answer.get_json(force=True)["type"] in TOLD_BY_READING


def test_redis_is_a_replica(trouble: tuple[RedisServer, Proxy, FlaskClient]) -> None:
    """What only reads is answered; what writes is refused with 503, and changes nothing."""
    server, _, web = trouble
    with connect(Settings(redis_url=server.url)) as redis:
        redis.replicaof("127.0.0.1", "1")
        before = contents(redis)
        for asked in REQUESTS:
            answer = asked.send(web)
            if asked.reads or answer.status_code < 300:  # what is so already takes no write
                assert answer.status_code < 300, asked
            elif not is_told_by_reading(answer):
                assert "urn:ghostless:storage-unavailable" == problem(answer, 503)["type"], asked
        assert before == contents(redis)
        redis.replicaof("NO", "ONE")
    assert 200 == web.post("/api/tasks/t/cancel").status_code


def test_redis_is_full(trouble: tuple[RedisServer, Proxy, FlaskClient]) -> None:
    """What only reads is answered; what writes is done, or refused with 503 and nothing of it done."""
    server, _, web = trouble
    with connect(Settings(redis_url=server.url)) as redis:
        redis.config_set("maxmemory", 1)
        for asked in REQUESTS:
            before = contents(redis)
            answer = asked.send(web)
            if asked.reads and not asked.is_stream:
                assert 200 == answer.status_code, asked
            elif answer.status_code >= 300 and not is_told_by_reading(answer):
                assert "urn:ghostless:storage-full" == problem(answer, 503)["type"], asked
                assert "Retry-After" in answer.headers
                assert before == contents(redis), asked
        redis.config_set("maxmemory", 0)
    assert 202 == web.post("/api/tasks", json={"type": "work"}).status_code


def test_redis_does_not_allow_it(trouble: tuple[RedisServer, Proxy, FlaskClient]) -> None:
    """500 that says whose fault it is, without a word of what Redis said; whoever runs the server reads its log."""
    server, _, _ = trouble
    with connect(Settings(redis_url=server.url)) as redis:
        redis.acl_setuser("web", enabled=True, passwords=["+s3cret"], keys=["*"], categories=["+@all", "-@scripting"])
    settings = Settings(redis_url=server.url.replace("://", "://web:s3cret@"))
    with connect(settings) as redis:
        web = create_app(client=Client(settings, redis)).test_client()
        assert 200 == web.get("/api/tasks/t").status_code
        told = problem(web.post("/api/tasks/t/cancel"), 500)
    assert "urn:ghostless:storage-refused" == told["type"]
    assert "NOPERM" not in told["detail"]


# What there is to read of it


def test_each_kind_is_explained_and_no_other() -> None:
    """`docs/api.md` has a line for every kind there is, with its statuses and what to do, and for none that is not."""
    told = re.findall(r"^\| (`.+?`) \| ([0-9, ]+) \| \S", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    explained = {
        (name, int(status))
        for names, all_of_them in told
        for name in re.findall("`(.+?)`", names)
        for status in all_of_them.split(", ")
    }
    assert {(kind.label, kind.status) for kind in Kind} == explained


def test_each_status_is_described() -> None:
    """The description of the API has an answer for the status of every kind, and for none that is not sent."""
    assert {kind.status for kind in Kind} == set(described.PROBLEMS)


def test_no_kind_is_left_over() -> None:
    """Each is sent by something."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "web").glob("*.py"))
    assert {kind.name for kind in Kind} == set(re.findall(r"\bKind\.([A-Z_]+)", text))

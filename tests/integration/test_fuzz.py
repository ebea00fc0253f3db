"""Whatever is sent: the answer is no fault of the server, a refusal is a problem, and a refusal changes nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from ghostless.web.pages import PAGE_POLICY
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis
from web_tools import publish, submitted
from werkzeug.test import TestResponse

from .test_access import operations
from .test_api_input import contents

ODD = [
    *("", " ", "a/b", "..", "%2e%2e", "%00", "\0", "a\0b", "a\r\nid: 1\r\n\r\ndata: x", "a\nevent: end", "x" * 300),
    *("<script>alert(1)</script>", "'; DROP", "${7*7}", "{{7*7}}", "\u2028", "\u202e", "\ufeff", "é", "\U0001f600"),
    *("*", "?", "[a]", "a:b", "task:x", "-1", "1e400", "null", "true", "NaN", "0", "9" * 400, "../../etc/passwd"),
]
TEXT = st.sampled_from(ODD) | st.text(max_size=40) | st.text(st.characters(codec="ascii"), max_size=40)
NUMBER = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**53, 2**63, 1e308, float("inf")])
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        *("type", "params", "queue", "id", "delay", "run_at", "timeout", "stall_timeout", "max_retries", "depends_on"),
        *("owner", "metadata", "message", "token", "task", "ttl", "actor", "confined", "__proto__"),
    ]
)
BODY = st.dictionaries(FIELDS | TEXT, VALUE, max_size=5)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *("Idempotency-Key", "Prefer", "If-None-Match", "Last-Event-ID", "Accept", "Content-Type", "Origin"),
            *("Authorization", "Cookie", "X-Forwarded-For", "X-HTTP-Method-Override", "Range", "If-Modified-Since"),
        ]
    ),
    st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=80)
    | st.sampled_from(["wait=99999999999", '"', "W/", "k3f9.1-0", "Bearer ", "bearer gl_", "text/event-stream", "é"]),
    max_size=4,
)
BOUNDED = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)


@pytest.fixture
def web(client: Client, store: Store) -> Iterator[FlaskClient]:
    """The API with one task, `one`, asked by somebody who may do everything."""
    publish(store)
    submitted(client, id="one")
    app = create_app(client=client)
    yield app.test_client()
    app.extensions["ghostless"].hub.close()


def fine(answer: TestResponse, before: dict[str, Any], redis: Redis) -> None:
    """Check an answer, whatever was asked."""
    with answer:
        assert answer.status_code < 500, (answer.status_code, answer.text)
        for name, value in answer.headers.items():
            assert not {"\r", "\n", "\0"} & set(name + value)
        if answer.status_code >= 400:
            assert before == contents(redis)
            if answer.mimetype == "text/html":  # to a person who asked for a page
                assert answer.request.path.startswith("/tasks/")
                assert PAGE_POLICY == answer.headers["Content-Security-Policy"]
            else:
                assert "application/problem+json" == answer.content_type
                json.loads(answer.data)


def places(app: Flask) -> list[tuple[str, str]]:
    """Return the method and the path of every route; `{}` stands for what a client chooses."""
    found = []
    for rule, _ in operations(app):
        path = rule.rule
        for name in rule.arguments:
            path = path.replace(next(part for part in path.split("/") if part.endswith(f"{name}>")), "{}")
        found += [(method, path) for method in sorted(rule.methods - {"HEAD", "OPTIONS"})]
    return found


@BOUNDED
@given(body=st.fixed_dictionaries({"type": st.just("work") | VALUE}, optional={"params": VALUE}) | BODY)
@example({"type": "work", "params": {"n": 10**400}})
@example({"type": "work", "metadata": {"\ud800": "\ud800"}})
@example({"type": "work", "owner": "a\r\nevent: end\r\n\r\n"})
@example({"type": "work", "id": "x" * 300})
@example({"type": "work", "delay": float("inf")})
def test_no_submit_breaks_anything(web: FlaskClient, redis: Redis, body: dict[str, Any]) -> None:
    """Fields of every kind and none, alone and together."""
    before = contents(redis)
    raw = json.dumps(body)  # with Infinity and NaN, which are no JSON
    fine(web.post("/api/tasks", data=raw, content_type="application/json"), before, redis)


@BOUNDED
@given(raw=st.binary(max_size=200) | TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_break_a_body(web: FlaskClient, redis: Redis, raw: bytes) -> None:
    """They are JSON or refused."""
    before = contents(redis)
    fine(web.post("/api/tasks", data=raw, content_type="application/json"), before, redis)


@BOUNDED
@given(data=st.data())
def test_nothing_in_a_path_or_a_query_breaks_a_route(web: FlaskClient, redis: Redis, data: st.DataObject) -> None:
    """On every route there is, with ids and parameters of every kind."""
    method, path = data.draw(st.sampled_from(places(web.application)))
    names = st.sampled_from(
        ["state", "type", "queue", "owner", "limit", "cursor", "task", "wait", "last_event_id", "x"]
    )
    query = data.draw(st.lists(st.tuples(names, TEXT), max_size=3))
    if ("wait", "0") not in query:  # nobody waits here
        query = [(name, value) for name, value in query if name != "wait" or not value.strip().isdigit()]
    there = path.format(*[data.draw(TEXT | st.just("one")) for _ in range(path.count("{}"))])
    there = there.replace("?", "%3F")  # the test's client takes it for the query, which it has
    before = contents(redis)
    body = {} if method == "GET" else {"json": data.draw(st.just({}) | BODY.filter(is_json))}
    fine(web.open(there, method=method, query_string=query, buffered=False, **body), before, redis)


def is_json(value: Any) -> bool:
    """Tell whether a value can be sent as strict JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


@BOUNDED
@given(headers=HEADERS, data=st.data())
def test_no_header_breaks_a_route(web: FlaskClient, redis: Redis, headers: dict[str, str], data: st.DataObject) -> None:
    """Of those that are read and those that are not."""
    method, path = data.draw(st.sampled_from(places(web.application)))
    before = contents(redis)
    if "wait" in headers.get("Prefer", ""):
        path = "/api/tasks/nobodys"
    body = {} if method == "GET" else {"data": b"{}"}
    sent = {"Content-Type": "application/json"} | headers if body else headers
    fine(web.open(path.replace("{}", "one"), method=method, headers=sent, **body), before, redis)


@pytest.mark.parametrize("text", ["a\r\nevent: end\r\n\r\n", "a\revent: end", "\u2028data: x", "a\0b", "id: 0\n\n"])
def test_no_text_makes_an_event_of_its_own(web: FlaskClient, client: Client, text: str) -> None:
    """A message is one line of JSON in a stream, whatever it holds; so is what the history and the task show of it."""
    web.post("/api/tasks/one/cancel", json={"message": text})
    stream = web.get("/api/tasks/one/events").get_data()
    fields = {line.partition(b":")[0] for line in stream.splitlines() if line}
    assert fields <= {b"id", b"event", b"data", b"retry", b""}
    assert [b"task", b"task", b"end"] == [line[7:] for line in stream.split(b"\n") if line.startswith(b"event: ")]
    assert b"\r" not in stream
    assert text in [entry["message"] for entry in web.get("/api/tasks/one/history").get_json()["entries"]]

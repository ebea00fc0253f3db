"""Hostile and clumsy requests: each is refused with a 4xx that names what is wrong, and nothing is stored."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.client import Client
from ghostless.jobs.errors import InvalidBulkAction, InvalidTask
from ghostless.jobs.listing import Filter
from ghostless.jobs.names import MESSAGE_LIMIT
from ghostless.statemachine import STORED
from redis import Redis
from web_tools import submitted

NO_OWNERS = ["", "x" * 65, "é" * 40, "a\0b", "a\nb", "a\r\nb"]
"""What no owner may be called, wherever one is named."""

FIELDS: dict[str, list[Any]] = {
    "type": [None, 1, True, [], {}, "", "a b", "a/b", "..", "x" * 300, "a\0b", "a\r\nb", "wörk", "wrok"],
    "params": [None, 1, "{}", True, [], [{}], {"n": "1"}, {"n": True}, {"unknown": 1}],
    "id": [1, True, [], {}, "", "a/b", "..", "x" * 65, "x" * 300, "a\0b", "a\r\nb", "a b", "ä", "a\n"],
    "queue": [1, True, [], {}, "", "a/b", "x" * 65, "a\0b", "a\r\nb", "a:b", "*"],
    "delay": ["1", True, [], {}, -1, 1e300, "soon", 10**400],
    "run_at": ["1", True, [], {}, -1, 1e300, "soon", "2030-01-01T00:00:00", "0001-01-01T00:00:00Z", ""],
    "timeout": ["1", True, [], {}, 0, -1, 1e9],
    "max_retries": ["1", True, [], {}, -1, 1.5, 2.0, 10**6, 10**400],
    "owner": [1, True, [], {}, *NO_OWNERS, "\ud800"],
    "metadata": ["\ud800"],
    "depends_on": ["a", ["a"], [1], [None], {"a": 1}, None, ["a/b"], ["a"] * 101, ["a", "a\0"]],
    "callback_url": [
        *(1, True, [], {}, "", "x" * 3000, "example.com", "ftp://example.com/", "http://example.com/"),
        *(
            "https://u:p@example.com/",
            "https://example.com:22/",
            "https://example.com/\r\nX: y",
            "https://a b/",
            "https://\0",
        ),
        "https://example.com/",  # which nobody delivers here
    ],
    "constructor": [1],
    "a/b~c": [1],
}

CASES = [(field, value) for field, values in FIELDS.items() for value in values]


@pytest.fixture
def untouched(redis: Redis, web: FlaskClient) -> Iterator[None]:
    """Nothing in Redis changes while the test runs."""
    before = contents(redis)
    yield
    assert before == contents(redis)


def contents(redis: Redis) -> dict[str, Any]:
    """Return every key with a digest of its value, but the id of the database that a reader may write."""
    return {
        key: redis.execute_command("DEBUG", "DIGEST-VALUE", key)
        for key in redis.scan_iter()
        if not key.endswith(":epoch")
    }


def refused(answer: Any, *statuses: int) -> dict[str, Any]:
    """Check that an answer is a problem with one of these statuses, and return it."""
    assert answer.status_code in statuses, (answer.status_code, answer.text)
    assert "application/problem+json" == answer.content_type
    return json.loads(answer.data)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("field", "value"), CASES, ids=lambda value: repr(value)[:30].encode("unicode_escape").decode()
)
def test_each_wrong_field_is_named(web: FlaskClient, field: str, value: Any) -> None:
    """Wrong type, wrong form, out of range, unknown: the answer points to the field."""
    told = refused(web.post("/api/tasks", json={"type": "work", field: value}), 422)
    pointers = [error["pointer"] for error in told["errors"]]
    assert any(pointer.startswith("/" + field.replace("~", "~0").replace("/", "~1")) for pointer in pointers), told
    assert all(error["detail"] for error in told["errors"])


@pytest.mark.usefixtures("untouched")
def test_all_faults_are_named_at_once(web: FlaskClient) -> None:
    """A client corrects everything in one go; a body full of faults gets a short answer all the same."""
    told = refused(web.post("/api/tasks", json={"id": "a/b", "delay": "x", "what": 1}), 422)
    assert {"/type", "/delay", "/what"} <= {error["pointer"] for error in told["errors"]}
    many = web.post("/api/tasks", json={"type": "work"} | {f"x{n}" * 50: n for n in range(5000)})
    refused(many, 422)
    assert len(many.data) < 20_000


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"{'type': 'work'}",
        b'{"type": "work"} x',
        b'{"type": NaN}',
        b'{"type": "work", "params": {"n": Infinity}}',
        b"\xff\xfe",
        '{"type": "work"}'.encode("utf-16"),
        b"\0",
        b'{"type": "work", "delay": ' + b"1" * 5000 + b"}",
        b"[" * 100_000,
        b'{"type":"work","params":' + b'{"n":' * 100 + b"1" + b"}" * 101,
        b'{"type":"work","metadata":' + b"[" * 900 + b"]" * 900 + b"}",
    ],
    ids=range(12),
)
def test_what_is_no_json_is_refused(web: FlaskClient, body: bytes) -> None:
    """400 for what cannot be read, is no JSON, or is nested without end; the body is not quoted back."""
    told = refused(web.post("/api/tasks", data=body, content_type="application/json"), 400)
    assert "type" not in told["detail"]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("body", [b"[]", b'[{"type": "work"}]', b'"work"', b"1", b"null", b"true", b""])
def test_a_body_that_is_no_object_is_refused(web: FlaskClient, body: bytes) -> None:
    """JSON alone is not enough: it must be an object, and a submit must have one."""
    refused(web.post("/api/tasks", data=body, content_type="application/json"), 422)


@pytest.mark.usefixtures("untouched")
def test_a_huge_body_is_refused(web: FlaskClient) -> None:
    """2 MiB for the whole, 1 MiB for params and metadata each, 1 KB more is too much."""
    refused(web.post("/api/tasks", data=b" " * (2 * 1024 * 1024 + 1), content_type="application/json"), 413)
    told = refused(web.post("/api/tasks", json={"type": "work", "metadata": "x" * (1024 * 1024)}), 413)
    assert "/metadata" == told["errors"][0]["pointer"]
    refused(web.post("/api/tasks/t/cancel", data=b" " * 3_000_000, content_type="application/json"), 413)


@pytest.mark.usefixtures("untouched")
def test_unknown_query_parameters_are_refused(web: FlaskClient) -> None:
    """A misspelt filter must not silently list everything."""
    for path, name in [
        ("/api/tasks?stat=PENDING", "stat"),
        ("/api/tasks?state=pending", "state"),
        ("/api/tasks?state=TIMEOUT", "state"),
        ("/api/tasks?state=", "state"),
        ("/api/tasks?state=PENDING&state=SUCCESS", "state"),
        ("/api/tasks?limit=0", "limit"),
        ("/api/tasks?limit=501", "limit"),
        ("/api/tasks?limit=ten", "limit"),
        ("/api/tasks?limit=1e3", "limit"),
        ("/api/tasks?cursor=!!!", "cursor"),
        ("/api/tasks?cursor=AAAA", "cursor"),
        ("/api/tasks?cursor=" + "A" * 300, "cursor"),
        ("/api/tasks?queue=a%2Fb", "queue"),
        ("/api/tasks?type=a%00b", "type"),
        ("/api/tasks?type=work%0a", "type"),
        *((f"{path}?owner={quote(owner)}", "owner") for owner in NO_OWNERS for path in ("/api/tasks", "/api/events")),
        ("/api/tasks/t?wait=-1", "wait"),
        ("/api/tasks/t?wait=soon", "wait"),
        ("/api/tasks/t?Wait=1", "Wait"),
        ("/api/tasks/t/history?limit=1", "limit"),
        ("/api/tasks/t/events?task=t", "task"),
        ("/api/events?state=PENDING", "state"),
        ("/api/events?task=a%2Fb", "task"),
        ("/api/events?task=t&task=..", "task"),
        ("/api/events?last_event_id=" + "x" * 300, "last_event_id"),
        ("/api/events?" + "&".join(f"task=t{n}" for n in range(51)), "task"),
        ("/api/stats?x=1", "x"),
        ("/api/queues?x=1", "x"),
        ("/api/types?x=1", "x"),
        ("/api/workers?x=1", "x"),
    ]:
        told = refused(web.get(path), 422)
        assert [name] == [error["parameter"] for error in told["errors"]], path


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "given",
    [
        "a%2Fb",
        "..",
        "%2e%2e",
        "x" * 300,
        "a%00b",
        "a%0d%0ab",
        "a%0a",
        "%20",
        "a%20b",
        "*",
        "%C3%A4",
        "%FF",
        "a:b",
        "a.b",
    ],
)
def test_ids_that_no_task_can_have_find_nothing(web: FlaskClient, given: str) -> None:
    """404 without looking, on every route of a task; nothing of it reaches Redis, a header or a log line."""
    for path in (f"/api/tasks/{given}", f"/api/tasks/{given}/history", f"/api/tasks/{given}/events"):
        refused(web.get(path), 404)
    for action in ("cancel", "pause", "resume", "retry"):
        refused(web.post(f"/api/tasks/{given}/{action}"), 404)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("given", ["a%2Fb", "..", "x" * 300, "a%00b", "a%0d%0ab", "a:b", "*"])
def test_names_that_no_queue_can_have_find_nothing(web: FlaskClient, given: str) -> None:
    """A queue is not made up by pausing it."""
    for action in ("pause", "resume"):
        refused(web.post(f"/api/queues/{given}/{action}"), 404)


@pytest.mark.parametrize("body", [{"message": 1}, {"message": None}, {"reason": "x"}, [], "cancel", {"message": []}])
def test_an_action_says_at_most_a_message(web: FlaskClient, client: Client, body: Any) -> None:
    """What is wrong with the body of an action is named, and the task stays as it is."""
    task_id = submitted(client)
    for action in ("cancel", "pause", "resume", "retry"):
        refused(web.post(f"/api/tasks/{task_id}/{action}", json=body), 422)
    assert 1 == len(client.history(task_id))


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("owner", NO_OWNERS)
def test_no_owner_is_called_so(web: FlaskClient, client: Client, owner: str) -> None:
    """What is refused at a submit is refused in every filter, over HTTP or not."""
    for path in ("/api/tasks/bulk/cancel", "/api/stream-tokens"):
        told = refused(web.post(path, json={"filter": {"owner": owner}} if "bulk" in path else {"owner": owner}), 422)
        assert ["owner"] == [error["pointer"].rpartition("/")[2] for error in told["errors"]]
    with pytest.raises(InvalidTask, match="owner: expected 1 to 64 bytes of printable text"):
        client.list(Filter(owner=owner))
    with pytest.raises(InvalidBulkAction, match="filter.owner: expected 1 to 64 bytes of printable text"):
        client.bulk.count(BulkRequest("cancel", BulkFilter(owner=owner)))


def test_a_long_message_is_cut_alike(web: FlaskClient, client: Client) -> None:
    """Whoever says it, to one task or to many: so many bytes of it are kept."""
    message = "é" * 3000
    ids = [submitted(client) for _ in range(2)]
    client.cancel(ids[0], message=message)
    assert 200 == web.post(f"/api/tasks/{ids[1]}/cancel", json={"message": message}).status_code
    begun = web.post("/api/tasks/bulk/cancel", json={"filter": {"all": True}, "message": message}).json
    kept = [*(client.history(task_id)[-1].message for task_id in ids), client.bulk.get(begun["id"]).message]
    assert [message[: MESSAGE_LIMIT // 2]] * 3 == kept


def test_text_comes_back_as_it_was_sent(web: FlaskClient, client: Client) -> None:
    """Whatever text is legal in params is data, never markup or syntax."""
    hostile = "<script>alert(1)</script>\r\n\0\u2028 \U0001f600 ' OR 1=1 {{7*7}} %s $(id)"
    told = web.post("/api/tasks", json={"type": "work", "metadata": {hostile: hostile}}).json
    assert {hostile: hostile} == web.get(f"/api/tasks/{told['id']}").json["metadata"]


@pytest.mark.usefixtures("untouched")
def test_a_state_that_no_task_is_found_in_is_refused_with_those_that_there_are(web: FlaskClient) -> None:
    """In a listing and in a bulk action; TIMEOUT is only passed through."""
    filtered = {"filter": {"state": "TIMEOUT"}, "dry_run": True}
    for answer in (web.get("/api/tasks?state=TIMEOUT"), web.post("/api/tasks/bulk/cancel", json=filtered)):
        assert 422 == answer.status_code
        assert f"expected one of {', '.join(STORED)}" in answer.json["errors"][0]["detail"]

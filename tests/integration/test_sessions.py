"""What a browser uses instead of a token: stream tokens in an address, and a session in a cookie."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.keys import Keys
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope, Sight
from ghostless.web import cookies, keyring, sse
from helpers import eventually, expect
from redis import Redis
from web_tools import EventStream, Hand, Served, in_process, publish, repeating, states, submitted

from .test_access import bearer, told

GRANTS = [{"task": ["one"]}, {"owner": "ann"}, {"type": "work"}, {"queue": "work"}, {}]


@pytest.fixture
def served(settings: Settings, store: Store) -> Iterator[Served]:
    """A server that demands tokens, with sockets and connections of its own."""
    publish(store)
    with in_process(create_app(client=Client(settings), require_tokens=True)) as server:
        yield server


@pytest.fixture
def web(served: Served) -> FlaskClient:
    """The same, asked without sockets."""
    assert served.app
    return served.app.test_client()


@pytest.fixture
def ann(client: Client) -> dict[str, str]:
    """The header of one who may read what is ann's."""
    return bearer(client.tokens.add("ann", [Scope.READ], owner="ann")[0])


@pytest.fixture
def reader(client: Client) -> dict[str, str]:
    """The header of one who may read everything."""
    return bearer(client.tokens.add("reader", [Scope.READ])[0])


def stream_token(web: FlaskClient, headers: dict[str, str], **grant: Any) -> str:
    """Return a stream token."""
    answer = web.post("/api/stream-tokens", json=grant, headers=headers)
    assert 200 == answer.status_code, answer.text
    return answer.get_json()["token"]


def events(served: Served, token: str, **filters: Any) -> EventStream:
    """Open a stream as a browser's EventSource does: with nothing but an address."""
    return EventStream(f"{served.url}/api/events?{urlencode({'token': token, **filters}, doseq=True)}")


def put_forward(monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    """Put the clock forward by which the server judges tokens."""
    look = keyring.Keyring.look

    def later(self: keyring.Keyring, *asked: str) -> Sight:
        sight = look(self, *asked)
        return replace(sight, now=sight.now + ms)

    monkeypatch.setattr(keyring.Keyring, "look", later)


# Stream tokens


@pytest.mark.parametrize("grant", GRANTS, ids=str)
def test_an_event_source_follows_with_an_address_alone(
    served: Served, web: FlaskClient, client: Client, reader: dict[str, str], hand: Hand, grant: dict[str, Any]
) -> None:
    """A stream token is enough for its stream, without a header, and for the same address once more."""
    submitted(client, id="one", owner="ann")
    hand.run()
    token = stream_token(web, reader, **grant)
    for _ in range(2):
        with events(served, token, task="one") as stream:
            assert ["PENDING", "PROCESSING", "SUCCESS"] == states(list(stream))
    with EventStream(f"{served.url}/api/tasks/one/events?token={token}") as stream:
        assert 200 == stream.status
    assert "one" == web.get("/api/tasks/one", headers=bearer(token)).get_json()["id"]


@pytest.mark.parametrize(
    ("grant", "filters"),
    [
        ({"task": ["one"]}, {"task": "two"}),
        ({"task": ["one"]}, {"task": ["one", "two"]}),
        ({"owner": "ann"}, {"owner": "bob"}),
        ({"owner": "ann"}, {"task": "two"}),
        ({"type": "work"}, {"type": "other"}),
        ({"queue": "work"}, {"queue": "other"}),
    ],
)
def test_a_stream_token_is_good_for_its_filter_only(
    web: FlaskClient, client: Client, reader: dict[str, str], grant: dict[str, Any], filters: dict[str, Any]
) -> None:
    """What lies outside is unknown; it may be narrowed."""
    submitted(client, id="one", owner="ann")
    submitted(client, id="two", owner="bob")
    query = {"token": stream_token(web, reader, **grant)} | filters
    told(web.get("/api/events", query_string=query), 404)


@pytest.mark.parametrize("grant", GRANTS[:4], ids=str)
def test_a_stream_token_shows_no_task_outside_its_filter(
    web: FlaskClient, client: Client, store: Store, reader: dict[str, str], grant: dict[str, Any]
) -> None:
    """Not by its id either, whichever of the filters it lies outside of."""
    publish(store, "other", queue="other")
    submitted(client, id="two", owner="bob", type="other")
    token = stream_token(web, reader, **grant)
    told(web.get("/api/tasks/two", headers=bearer(token)), 404)


@pytest.mark.parametrize("grant", GRANTS[:4], ids=str)
def test_a_stream_token_waits_for_no_task_outside_its_filter(
    web: FlaskClient, client: Client, store: Store, reader: dict[str, str], grant: dict[str, Any]
) -> None:
    """Nor does it hear of one that was purged."""
    publish(store, "other", queue="other")
    submitted(client, id="two", owner="bob", type="other")
    store.redis.set(store.keys.tombstone("past"), "SUCCESS 1")
    shown = bearer(stream_token(web, reader, **grant))
    asked_at = time.monotonic()
    told(web.get("/api/tasks/two?wait=30", headers=shown), 404)
    told(web.get("/api/tasks/past?wait=30", headers=shown), 404)
    told(web.get("/api/events?task=two", headers=shown), 404)
    assert time.monotonic() - asked_at < 10


def test_a_stream_token_without_a_stated_filter_is_filtered(
    served: Served, web: FlaskClient, client: Client, reader: dict[str, str]
) -> None:
    """An address without filters tells of what the token is for, and of nothing else."""
    with events(served, stream_token(web, reader, owner="ann")) as stream:
        stream.response.readline()
        submitted(client, id="bobs", owner="bob")
        submitted(client, id="anns", owner="ann")
        assert ["anns"] == [message.data["id"] for message in stream.take("task")]


def test_progress_and_log_lines_are_the_owners_too(
    served: Served, web: FlaskClient, client: Client, store: Store, ann: dict[str, str]
) -> None:
    """What is said of running tasks reaches their owner, and nobody else's stream."""
    hand, held = Hand(store), {}
    for owner in ("bob", "ann"):
        submitted(client, id=f"{owner}s", owner=owner)
        held[owner] = hand.start().held

    def speak() -> None:
        for owner in ("bob", "ann"):
            store.progress(held[owner], 0.5, f"{owner}s words")
            store.log(held[owner], [f"{owner}s line"])

    with events(served, stream_token(web, ann)) as stream:
        stream.response.readline()
        with repeating(speak):
            heard = [stream.next() for _ in range(6)]
    assert {"anns"} == {message.data["id"] for message in heard if message}
    assert {"progress", "log"} <= {message.event for message in heard if message}


def test_a_bound_token_gives_no_more_than_it_has(web: FlaskClient, client: Client, ann: dict[str, str]) -> None:
    """Its stream tokens are bound to the same owner, whatever is asked for."""
    submitted(client, id="anns", owner="ann")
    submitted(client, id="bobs", owner="bob")
    for grant in ({"owner": "bob"}, {"task": ["bobs"]}, {"task": ["bobs", "nobodys"]}):
        told(web.post("/api/stream-tokens", json=grant, headers=ann), 404)
    part = {"token": stream_token(web, ann, task=["anns", "bobs"])}
    told(web.get("/api/events", query_string=part | {"task": "bobs"}), 404)
    token = stream_token(web, ann)
    told(web.get("/api/events", query_string={"token": token, "task": "bobs"}), 404)
    told(web.get("/api/tasks/bobs", headers=bearer(token)), 404)
    assert 200 == web.get("/api/tasks/anns", headers=bearer(token)).status_code


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/tasks"),
        ("GET", "/api/tasks/one/explain"),
        ("POST", "/api/tasks/one/cancel"),
        ("POST", "/api/tasks"),
        ("POST", "/api/stream-tokens"),
        ("GET", "/api/types"),
        ("GET", "/api/stats"),
        ("GET", "/metrics"),
    ],
)
def test_a_stream_token_opens_nothing_else(
    web: FlaskClient, client: Client, reader: dict[str, str], method: str, path: str
) -> None:
    """Neither in the header nor in the address, and it makes no further ones."""
    submitted(client, id="one")
    token = stream_token(web, reader)
    body = {} if method == "GET" else {"json": {}}
    told(web.open(path, method=method, headers=bearer(token), **body), 403)
    assert web.open(path, method=method, query_string={"token": token}, **body).status_code in (403, 422)


def test_a_whole_token_is_refused_in_an_address(web: FlaskClient, client: Client) -> None:
    """Addresses end up in logs and histories."""
    text, _ = client.tokens.add("x", [Scope.READ])
    problem = told(web.get("/api/events", query_string={"token": text}), 401)
    assert "stream-tokens" in problem["detail"]
    assert text not in str(problem)


def test_a_stream_token_ends_when_it_says(web: FlaskClient, reader: dict[str, str], client: Client) -> None:
    """Its end is told by Redis' clock, lies in the bounds, and never behind that of the token behind it."""
    answer = web.post("/api/stream-tokens", json={"ttl": 30}, headers=reader).get_json()
    assert 25_000 < answer["expires_at"] - client.reads.now() <= 30_000
    for ttl in (0, 9, 3601, "600", 1e9):
        told(web.post("/api/stream-tokens", json={"ttl": ttl}, headers=reader), 422)
    short, token = client.tokens.add("short", [Scope.READ], seconds=60)
    answer = web.post("/api/stream-tokens", json={}, headers=bearer(short)).get_json()
    assert token.expires == answer["expires_at"]


def test_an_expired_stream_token_is_refused(
    web: FlaskClient, reader: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while its signature is right."""
    token = stream_token(web, reader, ttl=10)
    assert 200 == web.get("/api/events", query_string={"token": token}).status_code
    put_forward(monkeypatch, 10_000)
    told(web.get("/api/events", query_string={"token": token}), 401)


def test_a_stream_token_that_was_changed_is_refused(web: FlaskClient, reader: dict[str, str]) -> None:
    """One changed letter anywhere, or a cookie in its place, and it is none."""
    token = stream_token(web, reader, owner="ann")
    for place in range(4, len(token), 7):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        told(web.get("/api/events", query_string={"token": changed}), 401)


def test_revoking_a_token_revokes_what_came_from_it(
    web: FlaskClient, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stream tokens and sessions, within seconds."""
    text, token = client.tokens.add("x", [Scope.READ])
    of_stream = {"token": stream_token(web, bearer(text))}
    assert 204 == web.post("/api/session", json={"token": text}).status_code
    assert 200 == web.get("/api/tasks").status_code
    client.tokens.revoke(token.id)
    eventually(lambda: told(web.get("/api/tasks"), 401))
    told(web.get("/api/events", query_string=of_stream), 401)


@pytest.mark.parametrize("by", ["header", "address", "cookie"])
def test_an_open_stream_ends_when_its_token_is_revoked(
    served: Served, web: FlaskClient, client: Client, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """At its next sign of life, or before the next event, which is not told any more; others go on."""
    monkeypatch.setattr(sse, "HEARTBEAT", 0.5)
    text, token = client.tokens.add("x", [Scope.READ])
    headers = {"header": bearer(text), "address": {}, "cookie": {"Cookie": cookie(web, text)}}[by]
    query = f"?token={stream_token(web, bearer(text))}" if by == "address" else ""
    with streaming(served, f"/api/events{query}", headers) as stream:
        submitted(client, id="seen")
        read_until(stream, b"seen")
        client.tokens.revoke(token.id)
        rest = stream.read()  # up to the end that the server makes
    assert rest.rstrip().rpartition(b"\n")[2].startswith(b"retry:")


def test_no_event_is_told_after_a_token_was_revoked(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happens later than a process remembers a token is not for its holder."""
    text, token = client.tokens.add("x", [Scope.READ])
    with streaming(served, "/api/events", bearer(text)) as stream:
        stream.readline()
        client.tokens.revoke(token.id)
        time.sleep(keyring.FRESH)
        submitted(client, id="unseen")
        assert b"unseen" not in stream.read()


def test_an_open_stream_ends_with_the_life_of_its_token(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, at a sign of life."""
    monkeypatch.setattr(sse, "HEARTBEAT", 0.2)
    text, _ = client.tokens.add("x", [Scope.READ], seconds=2)
    with streaming(served, "/api/events", bearer(text)) as stream:
        assert b"retry:" in stream.read()


@pytest.mark.parametrize("heartbeat", [0.2, 60], ids=["at a sign of life", "by itself"])
def test_an_open_stream_ends_with_its_stream_token(
    served: Served, web: FlaskClient, reader: dict[str, str], monkeypatch: pytest.MonkeyPatch, heartbeat: float
) -> None:
    """Whose end comes before that of the token behind it: at a sign of life that is later, or between two of them."""
    monkeypatch.setattr(sse, "HEARTBEAT", heartbeat)
    token, at_the_end = stream_token(web, reader, ttl=600), heartbeat < 1
    put_forward(monkeypatch, 599_000 * (not at_the_end))
    with streaming(served, f"/api/events?token={token}", {}) as stream:
        stream.readline()
        put_forward(monkeypatch, 600_000 * at_the_end)
        rest = b"".join(islice(stream, 100))  # up to the end that the server makes
    assert rest.rstrip().rpartition(b"\n")[2].startswith(b"retry:")


def test_a_long_poll_is_not_answered_to_one_who_was_revoked_meanwhile(
    served: Served, client: Client, hand: Hand
) -> None:
    """He was let in, and then waited for longer than his token lived."""
    text, token = client.tokens.add("x", [Scope.READ])
    submitted(client, id="one")
    with streaming(served, "/api/tasks/one?wait=30", bearer(text), answered=False) as connection:
        eventually(lambda: expect(served.app.extensions["ghostless"].hub.subscribers))  # type: ignore[union-attr]
        client.tokens.revoke(token.id)
        time.sleep(keyring.FRESH)
        hand.start()
        assert 401 == connection.getresponse().status


def test_no_task_is_given_to_a_worker_that_was_revoked_meanwhile(served: Served, client: Client) -> None:
    """Nor is anything claimed for it: the task stays for the next one."""
    text, token = client.tokens.add("x", [Scope.WORK])
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=20)
    body, headers = json.dumps({"worker": "far", "types": ["work"]}), {"Content-Type": "application/json"}
    connection.request("POST", "/api/queues/work/claim?wait=30", body, bearer(text) | headers)
    eventually(lambda: expect(len(served.app.extensions["ghostless"].claiming.room)))  # type: ignore[union-attr]
    client.tokens.revoke(token.id)
    time.sleep(keyring.FRESH)
    submitted(client, id="one")
    assert 401 == connection.getresponse().status
    connection.close()
    assert ("PENDING", 0) == (client.get("one").state, client.get("one").attempt)


def test_a_body_that_takes_longer_than_its_token_does_nothing(served: Served, client: Client) -> None:
    """Who may send it was asked before the body came; it is asked again when all of it is there."""
    text, token = client.tokens.add("x", [Scope.SUBMIT])
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=20)
    body = json.dumps({"type": "work", "id": "late"})
    connection.putrequest("POST", "/api/tasks")
    for name, value in {**bearer(text), "Content-Type": "application/json", "Content-Length": len(body)}.items():
        connection.putheader(name, str(value))
    connection.endheaders(body[:5].encode())
    looks = served.app.extensions["ghostless"].keyring  # type: ignore[union-attr]
    eventually(lambda: expect(looks._seen))
    client.tokens.revoke(token.id)
    time.sleep(keyring.FRESH)
    connection.send(body[5:].encode())
    assert 401 == connection.getresponse().status
    connection.close()
    assert () == client.list().tasks


@contextmanager
def streaming(served: Served, path: str, headers: dict[str, str], answered: bool = True) -> Iterator[Any]:
    """Ask with a connection of its own; yield the answer, or the connection when it is not answered yet."""
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=20)
    connection.request("GET", path, headers={"Accept": "text/event-stream", **headers})
    try:
        yield connection.getresponse() if answered else connection
    finally:
        connection.close()


def read_until(stream: http.client.HTTPResponse, part: bytes) -> None:
    """Read a stream up to the line that has this part."""
    while part not in stream.readline():
        pass


# Sessions


def cookie(web: FlaskClient, text: str) -> str:
    """Begin a session; return the cookie as a browser sends it."""
    answer = web.post("/api/session", json={"token": text})
    assert 204 == answer.status_code
    web.delete_cookie(cookies.SESSION_COOKIE)
    return answer.headers["Set-Cookie"].partition(";")[0]


def test_a_session_stands_for_its_token(web: FlaskClient, client: Client) -> None:
    """With the rights of the token and no others, until the browser ends it."""
    text, _ = client.tokens.add("x", [Scope.READ], owner="ann")
    told(web.get("/api/session"), 401)
    assert 204 == web.post("/api/session", json={"token": text}).status_code
    who = web.get("/api/session").get_json()
    assert ("api:x", ["read"], "ann") == (who["actor"], who["scopes"], who["owner"])
    assert 200 == web.get("/api/tasks").status_code
    told(web.get("/api/stats"), 403)
    told(web.post("/api/tasks", json={"type": "work"}), 403)
    assert 204 == web.delete("/api/session").status_code
    told(web.get("/api/tasks"), 401)


@pytest.mark.parametrize(("host", "secure"), [("localhost:8000", False), ("127.0.0.1", False), ("tasks.example", True)])
def test_the_cookie_is_kept_from_scripts_other_sites_and_plain_text(
    settings: Settings, client: Client, host: str, secure: bool
) -> None:
    """HttpOnly, SameSite=Strict, for the whole site, with an end; Secure wherever a network lies between."""
    web = create_app(client=client, local_only=False).test_client()
    text, _ = client.tokens.add("x", [Scope.READ])
    answer = web.post("/api/session", json={"token": text}, headers={"Host": host})
    terms = {term.strip() for term in answer.headers["Set-Cookie"].split(";")[1:]}
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=3600"} <= terms
    assert secure == ("Secure" in terms)
    assert secure == answer.headers["Set-Cookie"].startswith("__Host-ghostless_session=")
    assert text not in str(answer.headers)
    ended = web.delete("/api/session", headers={"Host": host}).headers["Set-Cookie"]
    assert "Max-Age=0" in ended


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "https://evil.example"}, 403),
    ],
)
def test_a_page_of_another_site_does_nothing_with_the_cookie(
    web: FlaskClient, client: Client, headers: dict[str, str], status: int
) -> None:
    """Nor does it log a browser in as somebody else."""
    text, _ = client.tokens.add("x", [Scope.OPERATE])
    submitted(client, id="one")
    sent = {"Cookie": cookie(web, text), **headers}
    plain = web.application.test_client(use_cookies=False)
    assert status == plain.post("/api/tasks/one/cancel", headers=sent).status_code
    login = plain.post("/api/session", json={"token": text}, headers=headers)
    assert (204 if status == 200 else 403) == login.status_code


def test_a_token_in_the_header_is_no_cookie(web: FlaskClient, client: Client) -> None:
    """No browser sends it by itself, nor lets a page of another site send it without a yes from here (CORS).

    So a program may say that it comes from wherever it does.
    """
    text, _ = client.tokens.add("x", [Scope.OPERATE])
    submitted(client, id="one")
    sent = bearer(text) | {"Sec-Fetch-Site": "cross-site", "Origin": "https://app.example"}
    assert 200 == web.post("/api/tasks/one/cancel", headers=sent).status_code
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    preflight = web.options(
        "/api/tasks/one/cancel", headers=asked | {"Access-Control-Request-Headers": "authorization"}
    )
    assert "access-control" not in str(preflight.headers).lower()


@pytest.mark.parametrize("body", [{"token": "x"}, {"token": ""}, {"token": "gl_0123456789ab_" + "a" * 43}])
def test_a_wrong_token_begins_no_session(web: FlaskClient, body: dict[str, Any]) -> None:
    """And no cookie is set."""
    answer = web.post("/api/session", json=body)
    told(answer, 401)
    assert "Set-Cookie" not in answer.headers
    told(web.post("/api/session", json={}), 422)


def test_a_stream_token_begins_no_session(web: FlaskClient, reader: dict[str, str]) -> None:
    """It would live on as a cookie."""
    told(web.post("/api/session", json={"token": stream_token(web, reader)}), 401)


def test_a_session_that_is_used_lives_on(web: FlaskClient, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its second half each answer renews it; before that, and without use, none does."""
    text, _ = client.tokens.add("x", [Scope.READ])
    web.post("/api/session", json={"token": text})
    assert "Set-Cookie" not in web.get("/api/tasks").headers
    first = web.get("/api/session").get_json()["expires_at"]
    monkeypatch.setattr(cookies, "SESSION_LIFE", 3 * cookies.SESSION_LIFE)
    assert "Set-Cookie" in web.get("/api/tasks").headers
    assert web.get("/api/session").get_json()["expires_at"] > first + 3_600_000


def test_a_session_ends_however_it_is_used(web: FlaskClient, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal never moves the end of the whole, which a day's work fits into; at the end there is none any more."""
    assert 12 * 3600 == cookies.SESSION_MOST
    monkeypatch.setattr(cookies, "SESSION_MOST", 1.5 * cookies.SESSION_LIFE)
    text, _ = client.tokens.add("x", [Scope.READ])
    web.post("/api/session", json={"token": text})
    first = web.get("/api/session").get_json()["expires_at"]
    monkeypatch.setattr(cookies, "SESSION_LIFE", 3 * cookies.SESSION_LIFE)
    assert "Set-Cookie" in web.get("/api/tasks").headers
    assert first + 1_800_000 == pytest.approx(web.get("/api/session").get_json()["expires_at"], abs=1000)
    assert "Set-Cookie" not in web.get("/api/tasks").headers


def test_who_signs_out_ends_the_session_everywhere(
    served: Served, web: FlaskClient, client: Client, redis: Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copied cookie, and stream tokens and streams that came from it; another session of the token goes on.

    It is not renewed by its own end, and what is kept of it passes with the time for which it might have been used.
    """
    monkeypatch.setattr(sse, "HEARTBEAT", 0.5)
    text, _ = client.tokens.add("x", [Scope.READ])
    copied, other = {"Cookie": cookie(web, text)}, {"Cookie": cookie(web, text)}
    plain = web.application.test_client(use_cookies=False)
    of_stream = {"token": stream_token(plain, copied)}
    with streaming(served, "/api/events", copied) as stream:
        stream.readline()
        monkeypatch.setattr(cookies, "SESSION_LIFE", 3 * cookies.SESSION_LIFE)  # it would be renewed
        ended = plain.delete("/api/session", headers=copied)
        assert (204, 1) == (ended.status_code, len(ended.headers.getlist("Set-Cookie")))
        assert stream.read().rstrip().rpartition(b"\n")[2].startswith(b"retry:")
    told(plain.get("/api/tasks", headers=copied), 401)
    told(plain.get("/api/events", query_string=of_stream), 401)
    assert 200 == plain.get("/api/tasks", headers=other).status_code
    (key,) = redis.keys(keys.session_ended("*"))
    assert 0 < redis.pttl(key) <= 1000 * cookies.SESSION_MOST


def test_a_session_that_ended_is_refused_by_other_processes(
    web: FlaskClient, client: Client, settings: Settings
) -> None:
    """Within the time for which they remember it."""
    text, _ = client.tokens.add("x", [Scope.READ])
    copied = {"Cookie": cookie(web, text)}
    elsewhere = create_app(client=Client(settings), require_tokens=True).test_client(use_cookies=False)
    assert 200 == elsewhere.get("/api/tasks", headers=copied).status_code
    plain = web.application.test_client(use_cookies=False)
    assert 204 == plain.delete("/api/session", headers=copied).status_code
    eventually(lambda: told(elsewhere.get("/api/tasks", headers=copied), 401))


def test_a_session_never_outlives_its_token(web: FlaskClient, client: Client) -> None:
    """However often it is renewed."""
    text, token = client.tokens.add("x", [Scope.READ], seconds=60)
    web.post("/api/session", json={"token": text})
    for _ in range(2):
        assert token.expires == web.get("/api/session").get_json()["expires_at"]


def test_a_bad_cookie_locks_nobody_out_of_this_machine(client: Client, store: Store) -> None:
    """A browser sends what is left of an old session by itself; where nobody needs a token that says nothing."""
    web = create_app(client=client).test_client()
    assert 200 == web.get("/api/tasks", headers={"Cookie": "ghostless_session=old"}).status_code


def test_all_that_was_signed_ends_with_the_key(
    web: FlaskClient, reader: dict[str, str], redis: Redis, keys: Keys
) -> None:
    """Deleting the key in Redis ends every session and stream token at once; new ones are made with another."""
    query = {"token": stream_token(web, reader)}
    redis.delete(keys.signing_key)
    eventually(lambda: told(web.get("/api/events", query_string=query), 401))
    assert stream_token(web, reader)


def test_who_needs_no_token_gets_stream_tokens_that_are_good_here_only(
    client: Client, store: Store, settings: Settings
) -> None:
    """Pages work alike on a server without tokens; one that demands them takes none that stands for nobody."""
    app: Flask = create_app(client=client)
    token = stream_token(app.test_client(), {})
    query = {"token": token, "task": submitted_and_cancelled(client, store)}
    assert 200 == app.test_client().get("/api/events", query_string=query).status_code
    app.extensions["ghostless"].hub.close()
    demanding = create_app(client=client, require_tokens=True).test_client()
    told(demanding.get("/api/events", query_string=query), 401)


def submitted_and_cancelled(client: Client, store: Store) -> str:
    """Return a task at its end, whose stream is short."""
    publish(store)
    task_id = submitted(client)
    client.cancel(task_id)
    return task_id

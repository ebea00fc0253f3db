"""Who gets in over HTTP, what he may do, and what he never hears of."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.keys import Keys
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from ghostless.web import keyring
from ghostless.web.operations import Operation
from helpers import eventually
from redis import Redis
from web_tools import Hand, end_retention, publish, submitted
from werkzeug.test import TestResponse

Ask = Callable[..., TestResponse]

READING = frozenset({"GET", "HEAD"})


@pytest.fixture
def app(client: Client, store: Store) -> Iterator[Flask]:
    """A server that demands tokens; the type `work` is published."""
    publish(store)
    app = create_app(client=client, require_tokens=True)
    yield app
    app.extensions["ghostless"].hub.close()


@pytest.fixture
def open_app(client: Client, store: Store) -> Iterator[Flask]:
    """A server that demands none."""
    publish(store)
    app = create_app(client=client)
    yield app
    app.extensions["ghostless"].hub.close()


@pytest.fixture
def every(client: Client) -> dict[str, str]:
    """The header of one who may do everything."""
    return bearer(client.tokens.add("root", [Scope.ADMIN])[0])


@pytest.fixture
def ann(client: Client) -> dict[str, str]:
    """The header of one who may do everything with the tasks of ann."""
    return bearer(client.tokens.add("ann", [Scope.SUBMIT, Scope.READ, Scope.OPERATE], owner="ann")[0])


def bearer(text: str) -> dict[str, str]:
    """Return the header that shows a token."""
    return {"Authorization": f"Bearer {text}"}


def told(answer: TestResponse, status: int) -> dict[str, Any]:
    """Check that an answer is a problem of this status, and return it."""
    assert (status, "application/problem+json") == (answer.status_code, answer.content_type), answer.text
    return json.loads(answer.data)


# Who gets in

SHOWN = [
    ({}, "nothing at all"),
    ({"Authorization": ""}, "an empty header"),
    ({"Authorization": "Bearer"}, "no token"),
    ({"Authorization": "Bearer x"}, "what is no token"),
    ({"Authorization": "Basic cm9vdDpyb290"}, "another scheme"),
    ({"Authorization": "Bearer gl_0123456789ab_" + "a" * 43}, "a token that nobody made"),
    ({"Authorization": "Bearer gls_e30.x"}, "a stream token that nobody signed"),
    ({"Cookie": "ghostless_session=e30.x"}, "a cookie that nobody signed"),
]


@pytest.mark.parametrize(("headers", "what"), SHOWN, ids=[what for _, what in SHOWN])
def test_who_shows_no_token_is_not_let_in(app: Flask, headers: dict[str, str], what: str) -> None:
    """Every route but the open ones answers 401, and says how one gets in; nothing of the token is quoted."""
    for rule, operation in operations(app):
        if operation.scope:
            answer = request(app, rule, headers=headers)
            problem = told(answer, 401)
            assert "Bearer" == answer.headers["WWW-Authenticate"]
            assert "aaa" not in problem["detail"]


def operations(app: Flask) -> Iterator[tuple[Any, Operation]]:
    """Yield every route with its contract; none may be without one."""
    for rule in app.url_map.iter_rules():
        operation = Operation.of(app.view_functions[rule.endpoint])
        assert operation, f"{rule}: declare it with @operation"
        yield rule, operation


def request(app: Flask, rule: Any, body: dict[str, Any] | None = None, **options: Any) -> TestResponse:
    """Send what a route takes, with these values in its path, or with some that fit."""
    path = rule.build({name: options.pop(name, "t") for name in rule.arguments - {"action"}} | action_of(rule))[1]
    method = next(iter(sorted(rule.methods - {"HEAD", "OPTIONS"})))
    sent = {} if method in READING else {"json": body or {}}
    return app.test_client().open(path, method=method, query_string=options.pop("query", None), **sent, **options)


def action_of(rule: Any) -> dict[str, str]:
    """Return an action that a rule takes, where it takes one."""
    if "action" not in rule.arguments:
        return {}
    converter = rule._converters["action"]
    return {"action": sorted(getattr(converter, "items", ["cancel"]))[0]}


def test_the_probes_are_open(app: Flask) -> None:
    """An orchestrator has no token."""
    for path in ("/healthz", "/readyz"):
        assert 200 == app.test_client().get(path).status_code


def test_a_wrong_secret_is_refused_and_the_right_one_taken(app: Flask, client: Client) -> None:
    """The id alone opens nothing."""
    text, _ = client.tokens.add("ci", [Scope.READ])
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")
    web = app.test_client()
    told(web.get("/api/tasks", headers=bearer(wrong)), 401)
    assert 200 == web.get("/api/tasks", headers=bearer(text)).status_code
    assert 200 == web.get("/api/tasks", headers={"Authorization": f"bearer  {text} "}).status_code


@pytest.mark.parametrize("given", list(Scope))
def test_each_scope_opens_its_routes_and_no_others(app: Flask, client: Client, given: Scope) -> None:
    """A route demands exactly its scope, 403 names the one that is missing, and `admin` has them all."""
    token = bearer(client.tokens.add("x", [given])[0])
    for rule, operation in operations(app):
        if operation.scope is None:
            continue
        answer = request(app, rule, headers=token)
        if given in (Scope.ADMIN, operation.scope):
            assert answer.status_code not in (401, 403), rule
        else:
            assert f"this needs the scope {operation.scope}" == told(answer, 403)["detail"]
        answer.close()


def test_on_this_machine_nobody_needs_a_token_but_one_that_is_shown_is_checked(open_app: Flask, client: Client) -> None:
    """A script that shows a wrong one hears of it, and a confined one stays confined."""
    web = open_app.test_client()
    assert 200 == web.get("/api/stats").status_code
    told(web.get("/api/stats", headers=bearer("x")), 401)
    told(web.get("/api/stats", headers=bearer(client.tokens.add("x", [Scope.SUBMIT])[0])), 403)


def test_the_setting_demands_tokens(redis: Redis, settings: Settings) -> None:
    """GHOSTLESS_REQUIRE_TOKENS holds for every server of an installation, and so does being served elsewhere."""
    demanding = Settings(redis_url=settings.redis_url, require_tokens=True)
    told(create_app(demanding).test_client().get("/api/stats"), 401)
    elsewhere = {"Host": "tasks.example"}
    told(create_app(settings, local_only=False).test_client().get("/api/stats", headers=elsewhere), 401)
    anybody = create_app(settings, local_only=False, require_tokens=False).test_client()
    assert 200 == anybody.get("/api/stats", headers=elsewhere).status_code


def test_without_redis_nobody_is_let_in(client: Client, own_server: Callable[..., Any], store: Store) -> None:
    """503 with Retry-After: whether a token is good cannot be told, also for one that was good a moment ago."""
    server = own_server()
    here = Client(Settings(redis_url=server.url))
    token = bearer(here.tokens.add("x", [Scope.ADMIN])[0])
    web = create_app(client=here, require_tokens=True).test_client()
    assert 200 == web.get("/api/stats", headers=token).status_code
    server.stop()
    time.sleep(keyring.FRESH)
    for path in ("/api/session", "/api/tasks", "/api/tasks/t", "/api/events"):
        answer = web.get(path, headers=token)
        told(answer, 503)
        assert answer.headers["Retry-After"]
    stream = web.get("/api/events", headers=token | {"Accept": "text/event-stream"})
    assert (200, "retry:") == (stream.status_code, stream.text[:6])
    assert [] == [line for line in stream.text.splitlines() if line and not line.startswith("retry:")]


def test_a_damaged_token_lets_nobody_in(app: Flask, client: Client, redis: Redis, keys: Keys) -> None:
    """It is the server's fault, and said so without its content."""
    text, token = client.tokens.add("x", [Scope.ADMIN])
    redis.hset(keys.tokens, token.id, '{"scopes": ["admin"]}')
    assert "scopes" not in told(app.test_client().get("/api/tasks", headers=bearer(text)), 500)["detail"]


def test_a_revoked_token_is_refused_within_seconds(app: Flask, client: Client) -> None:
    """Each process remembers a token for two seconds."""
    text, token = client.tokens.add("x", [Scope.READ])
    web = app.test_client()
    assert 200 == web.get("/api/tasks", headers=bearer(text)).status_code
    client.tokens.revoke(token.id)
    revoked_at = time.monotonic()
    eventually(lambda: told(web.get("/api/tasks", headers=bearer(text)), 401))
    assert time.monotonic() - revoked_at < keyring.FRESH + 2


def test_an_expired_token_is_refused(app: Flask, client: Client, redis: Redis, keys: Keys) -> None:
    """By Redis' clock, also while the process still remembers the token."""
    text, _ = client.tokens.add("x", [Scope.READ], seconds=1)
    web = app.test_client()
    assert 200 == web.get("/api/tasks", headers=bearer(text)).status_code
    time.sleep(1)
    told(web.get("/api/tasks", headers=bearer(text)), 401)


def test_most_requests_ask_redis_nothing_about_their_token(app: Flask, client: Client, redis: Redis) -> None:
    """A hundred requests within a moment look it up a few times."""
    token = bearer(client.tokens.add("x", [Scope.READ])[0])
    web = app.test_client()
    web.get("/api/session", headers=token)
    before = redis.info("commandstats")["cmdstat_hget"]["calls"]
    for _ in range(100):
        web.get("/api/session", headers=token)
    assert redis.info("commandstats")["cmdstat_hget"]["calls"] - before < 20


def test_ids_that_are_none_fill_no_memory(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered is bounded, whatever strangers try."""
    monkeypatch.setattr(keyring, "KNOWN_LIMIT", 10)
    web = app.test_client()
    for number in range(50):
        told(web.get("/api/tasks", headers=bearer(f"gl_{number:012x}_" + "a" * 43)), 401)
    assert len(app.extensions["ghostless"].keyring._seen) <= 10


def test_the_history_says_who_did_it(app: Flask, client: Client, ann: dict[str, str]) -> None:
    """By the name of the token."""
    web = app.test_client()
    task_id = web.post("/api/tasks", json={"type": "work"}, headers=ann).get_json()["id"]
    web.post(f"/api/tasks/{task_id}/cancel", headers=ann)
    assert ["api:ann", "api:ann"] == [entry.actor for entry in client.history(task_id)]


# Owners

OF_TASK = {
    *("tasks.show", "tasks.history", "tasks.explain", "tasks.act", "events.task_events"),
    *("deliveries.listing", "deliveries.redeliver", "artifacts.artifacts", "artifacts.artifact"),
}
"""Routes that name a task in their path: another owner's is as unknown as one that never was."""

OF_CALLER = {
    *("tasks.submit", "tasks.listing", "events.events"),
    *("sessions.stream_token", "sessions.log_in", "sessions.log_out", "sessions.who"),
    *("bulk.begin", "bulk.listing", "bulk.show", "bulk.stop"),  # see test_bulk.py
    *("overview.types", "health.healthz", "health.readyz", "description.openapi"),
    *("static.static_file", "pages.task", "pages.login", "pages.docs", "pages.front"),  # the same for everybody
}
"""Routes that tell of nobody's tasks, or of the caller's own: each has a test below."""


@pytest.fixture
def foreign(client: Client, store: Store, hand: Hand) -> str:
    """A task of bob, in the middle of its life."""
    task_id = submitted(client, owner="bob", id="bobs-task", params={"n": 7}, metadata="bobs words")
    store.progress(hand.start().held, 0.5, "bobs progress")
    return task_id


def test_every_route_has_a_rule_for_callers_that_are_bound_to_an_owner(app: Flask) -> None:
    """A new route must say of whose tasks it tells, here and in its declaration."""
    rules = {rule.endpoint: operation for rule, operation in operations(app)}
    whole = {endpoint for endpoint, operation in rules.items() if operation.whole}
    of_others = {endpoint for endpoint, operation in rules.items() if operation.scope in (Scope.WORK, Scope.ADMIN)}
    assert rules.keys() == OF_TASK | OF_CALLER | whole | of_others


def test_another_owners_task_is_unknown_on_every_route(
    app: Flask, client: Client, redis: Redis, ann: dict[str, str], foreign: str
) -> None:
    """404, word for word as for an id that never was; and nothing happens to the task."""
    before = client.get(foreign)
    for rule, operation in operations(app):
        if rule.endpoint in OF_TASK:
            answer = request(app, rule, given_id=foreign, headers=ann)
            unknown = request(app, rule, given_id="nobodys", headers=ann)
            assert 404 == answer.status_code == unknown.status_code, rule
            assert answer.text.replace(foreign, "nobodys") == unknown.text
        elif operation.whole:
            assert "without an owner" in told(request(app, rule, headers=ann), 403)["detail"], rule
    assert before == client.get(foreign)
    assert 2 == len(client.history(foreign))


@pytest.mark.parametrize("action", ["cancel", "pause", "resume", "retry"])
def test_nobody_acts_on_another_owners_task(
    app: Flask, client: Client, ann: dict[str, str], foreign: str, action: str
) -> None:
    """Nor does a refusal of the move tell its state."""
    told(app.test_client().post(f"/api/tasks/{foreign}/{action}", headers=ann), 404)
    assert 2 == len(client.history(foreign))


def test_a_long_poll_for_another_owners_task_is_answered_at_once(app: Flask, ann: dict[str, str], foreign: str) -> None:
    """Waiting would tell that there is something to wait for."""
    asked_at = time.monotonic()
    told(app.test_client().get(f"/api/tasks/{foreign}?wait=30", headers=ann), 404)
    assert time.monotonic() - asked_at < 10


def test_ones_own_tasks_are_seen_whole(app: Flask, client: Client, ann: dict[str, str], store: Store) -> None:
    """All that an unbound caller can do with a task, its owner can."""
    web = app.test_client()
    answer = web.post("/api/tasks", json={"type": "work", "id": "anns"}, headers=ann)
    assert 202 == answer.status_code
    assert "ann" == client.get("anns").owner
    assert "anns" == web.get("/api/tasks/anns", headers=ann).get_json()["id"]
    for path in ("/api/tasks/anns/history", "/api/tasks/anns/explain", "/api/types", "/api/session"):
        assert 200 == web.get(path, headers=ann).status_code
    assert "CANCELLED" == web.post("/api/tasks/anns/cancel", headers=ann).get_json()["state"]
    assert "CANCELLED" in web.get("/api/tasks/anns/events", headers=ann).text


def test_a_listing_shows_ones_own_tasks_only(
    app: Flask, client: Client, ann: dict[str, str], every: dict[str, str], foreign: str
) -> None:
    """The filter is forced; to ask for another owner is answered as for one that never was."""
    submitted(client, owner="ann", id="anns")
    submitted(client, id="nobodys")
    web = app.test_client()

    def listed(query: str, headers: dict[str, str]) -> set[str]:
        return {task["id"] for task in web.get(f"/api/tasks{query}", headers=headers).get_json()["tasks"]}

    assert {"anns"} == listed("", ann) == listed("?owner=ann", ann)
    assert set() == listed("?state=PROCESSING", ann)
    assert {foreign, "anns", "nobodys"} == listed("", every)
    assert {foreign} == listed("?owner=bob", every)
    bobs = told(web.get("/api/tasks?owner=bob", headers=ann), 404)
    assert bobs == told(web.get("/api/tasks?owner=carl", headers=ann), 404)


def test_a_cursor_names_no_task_of_another_owner(app: Flask, client: Client, ann: dict[str, str]) -> None:
    """All pages together hold each own task once, though most that is passed over is somebody else's."""
    own = [submitted(client, owner="ann", id=f"anns-{number}") for number in range(5)]
    for number in range(60):
        submitted(client, owner="bob", id=f"bobs-{number}")
    own += [submitted(client, owner="ann", id=f"anns-{number}") for number in range(5, 8)]
    web, seen, cursor, pages = app.test_client(), [], None, 0
    while pages == 0 or cursor:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = web.get("/api/tasks", query_string=query, headers=ann).get_json()
        seen += [task["id"] for task in page["tasks"]]
        cursor, pages = page["next"], pages + 1
        if cursor:
            assert b"bobs" not in base64.urlsafe_b64decode(cursor)
    assert sorted(own) == sorted(seen)
    assert pages >= 4
    for wrong in ("x", "MTcgYm9icy0x", "é", "A" * 100):
        told(web.get("/api/tasks", query_string={"cursor": wrong}, headers=ann), 422)


def test_a_submit_is_for_ones_own_owner(app: Flask, client: Client, ann: dict[str, str]) -> None:
    """Another owner is refused and nothing is stored; without one the token's is set."""
    web = app.test_client()
    told(web.post("/api/tasks", json={"type": "work", "owner": "bob"}, headers=ann), 403)
    assert [] == list(client.list().tasks)
    for wish in ({}, {"owner": "ann"}, {"owner": None}):
        task_id = web.post("/api/tasks", json={"type": "work", **wish}, headers=ann).get_json()["id"]
        assert "ann" == client.get(task_id).owner


@pytest.mark.usefixtures("app", "foreign")
@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/api/tasks", {"type": "work", "owner": "OWNER"}, 403, "bound-token"),
        ("/api/tasks/bulk/cancel", {"filter": {"owner": "OWNER"}}, 422, "invalid-bulk-action"),
        ("/api/tasks/bulk/cancel", {"filter": {"owner": "OWNER"}, "dry_run": True}, 422, "invalid-bulk-action"),
        ("/api/queues/work/pause", {}, 403, "bound-token"),
        ("/api/queues/OWNER/pause", {}, 403, "bound-token"),
    ],
)
def test_what_is_no_404_tells_nothing_either(
    app: Flask, ann: dict[str, str], path: str, body: dict[str, Any], status: int, kind: str
) -> None:
    """It is answered word for word alike, whether the owner or the queue has tasks or not (docs/security.md)."""
    answers = []
    for owner in ("bob", "nobody"):
        sent = json.loads(json.dumps(body).replace("OWNER", owner))
        answer = app.test_client().post(path.replace("OWNER", owner), json=sent, headers=ann)
        assert f"urn:ghostless:{kind}" == told(answer, status)["type"]
        answers.append(answer.data)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("params", [{"n": 7}, {"n": 8}])
def test_an_id_that_another_owner_has_tells_nothing_of_his_task(
    app: Flask, ann: dict[str, str], foreign: str, params: dict[str, Any]
) -> None:
    """A conflict, also when all else is the same: no state, no owner, no answer that it was there already."""
    wish = {"type": "work", "id": foreign, "params": params}
    problem = told(app.test_client().post("/api/tasks", json=wish, headers=ann), 409)
    assert {"type", "title", "status", "detail"} == problem.keys()
    assert "PROCESSING" not in str(problem)


def test_an_idempotency_key_is_its_owners_own(
    app: Flask, client: Client, ann: dict[str, str], every: dict[str, str]
) -> None:
    """The same key of two owners is two keys, and each owner's repeat finds his own task."""
    bob = bearer(client.tokens.add("bob", [Scope.SUBMIT], owner="bob")[0])
    web, made = app.test_client(), []
    for headers in (bob, ann, every):
        sent = {"json": {"type": "work"}, "headers": headers | {"Idempotency-Key": "k"}}
        first, again = web.post("/api/tasks", **sent), web.post("/api/tasks", **sent)
        assert (202, 200) == (first.status_code, again.status_code)
        assert first.get_json()["id"] == again.get_json()["id"]
        made.append(first.get_json()["id"])
    assert 3 == len(set(made))


def test_ones_own_conflict_is_told_in_full(app: Flask, ann: dict[str, str]) -> None:
    """Who made the task may know which one is in the way."""
    web, key = app.test_client(), {"Idempotency-Key": "k"}
    task_id = web.post("/api/tasks", json={"type": "work"}, headers=ann | key).get_json()["id"]
    other = web.post("/api/tasks", json={"type": "work", "params": {"n": 1}}, headers=ann | key)
    problem = told(other, 422)
    assert task_id == problem["task"]
    assert "owner:" not in problem["detail"]


def test_nobody_waits_for_another_owners_task(
    app: Flask, client: Client, ann: dict[str, str], foreign: str, hand: Hand
) -> None:
    """It is refused as unknown, with what never was; else its end, and its result, would be told."""
    submitted(client, id="anns", owner="ann")
    web = app.test_client()
    for other in (foreign, "nobodys"):
        wish = {"type": "work", "depends_on": ["anns", other]}
        problem = told(web.post("/api/tasks", json=wish, headers=ann), 422)
        assert f"depends_on: no task has the id '{other}'" == problem["detail"]
    assert 202 == web.post("/api/tasks", json={"type": "work", "depends_on": ["anns"]}, headers=ann).status_code


def test_what_was_purged_is_unknown_to_a_bound_caller(
    app: Flask, client: Client, redis: Redis, keys: Keys, store: Store, ann: dict[str, str], every: dict[str, str]
) -> None:
    """A tombstone does not tell whose task it was: 404 for him, 410 for others; his id and dependency are refused."""
    task_id = submitted(client, owner="ann", id="past")
    client.cancel(task_id)
    end_retention(redis, keys, [task_id])
    store.purge()
    assert not redis.exists(keys.task(task_id))
    web = app.test_client()
    told(web.get("/api/tasks/past", headers=ann), 404)
    told(web.get("/api/tasks/past", headers=every), 410)
    told(web.get("/api/tasks/past/events", headers=ann), 404)
    told(web.post("/api/tasks", json={"type": "work", "depends_on": ["past"]}, headers=ann), 422)
    assert "task" not in told(web.post("/api/tasks", json={"type": "work", "id": "past"}, headers=ann), 409)


def test_streams_of_another_owners_tasks_are_unknown(app: Flask, ann: dict[str, str], foreign: str) -> None:
    """By id, among own ids, and by owner."""
    web = app.test_client()
    for query in (f"task={foreign}", f"task=nobodys&task={foreign}", "owner=bob"):
        told(web.get(f"/api/events?{query}", headers=ann), 404)


@pytest.mark.parametrize("other", ["bobs-task", "past", "nobodys"])
def test_a_stream_that_comes_back_goes_on_without_what_is_gone(
    app: Flask, client: Client, redis: Redis, keys: Keys, ann: dict[str, str], foreign: str, other: str
) -> None:
    """A task that was purged meanwhile ends no stream of others; what never was is alike to it."""
    submitted(client, id="anns", owner="ann")
    client.cancel("anns")
    redis.set(keys.tombstone("past"), "SUCCESS 1", px=60_000)
    web, query = app.test_client(), [("task", "anns"), ("task", other)]
    told(web.get("/api/events", query_string=query, headers=ann), 404)
    beginning = {"Last-Event-ID": f"{client.reads.epoch()}.0-0"}
    stream = web.get("/api/events", query_string=query, headers=ann | beginning)
    assert 200 == stream.status_code
    assert "event: end" in stream.text
    assert other not in stream.text
    told(web.get("/api/events", query_string={"task": other}, headers=ann | beginning), 404)

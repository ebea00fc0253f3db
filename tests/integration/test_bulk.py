"""Bulk actions as people ask for them: over HTTP, and by the command line."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from audit import audit
from click.testing import CliRunner, Result
from flask.testing import FlaskClient
from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Event, State
from ghostless.web.access import Caller, Scope
from helpers import eventually
from redis import Redis
from scripts.snapshot import difference, snapshot
from web_tools import Hand, publish


@contextmanager
def watching(store: Store) -> Iterator[None]:
    """Let a watchdog run."""
    stop = threading.Event()
    thread = threading.Thread(target=Watchdog(store, "test").run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def swept(client: Client) -> None:
    """Let a watchdog do what there is to do."""
    watchdog = Watchdog(client.store, "test")
    while watchdog.sweep_all():
        pass


def submit(client: Client, number: int, owner: str | None = None) -> list[str]:
    """Submit tasks."""
    return [client.submit("work", owner=owner).task_id for _ in range(number)]


def problem(answer: Any, status: int) -> Any:
    """Check that an answer is a problem of this status, and return it."""
    assert (status, "application/problem+json") == (answer.status_code, answer.mimetype), answer.text
    return answer.json


def ended_in(client: Client) -> dict[State, int]:
    """Return how many tasks are in each state, of those that hold any."""
    return {state: number for state, number in client.counts().items() if number}


# Over HTTP


def test_a_bulk_action_is_a_resource(web: FlaskClient, client: Client) -> None:
    """202 with its place, which tells how far it is until it is done."""
    submit(client, 3)
    body = {"filter": {"type": "work"}, "message": "a wrong model"}
    answer = web.post("/api/tasks/bulk/cancel", json=body)
    place = answer.headers["Location"]
    assert (202, {"id": place.removeprefix("/api/bulk/"), "created": True}) == (answer.status_code, answer.json)
    running = web.get(place)
    assert ("running", "no watchdog runs: it waits for one") == (running.json["state"], running.json["note"])
    assert "1" == running.headers["Retry-After"] == answer.headers["Retry-After"]
    swept(client)
    done = web.get(place)
    assert "Retry-After" not in done.headers
    told = {name: done.json[name] for name in ("action", "state", "filter", "message", "created_by", "note")}
    assert told == {
        "action": "cancel", "state": "done", "filter": {"type": "work"}, "message": "a wrong model",
        "created_by": "api", "note": None,
    }  # fmt: skip
    assert {"looked_at": 3, "moved": 3, "already": 0, "refused": 0, "damaged": 0} == done.json["counts"]
    assert [done.json] == web.get("/api/bulk").json["bulk_actions"]
    assert {State.CANCELLED: 3} == ended_in(client)


def test_the_same_key_is_answered_with_the_same_place(web: FlaskClient, client: Client) -> None:
    """A repeated request begins nothing; another one under the key is refused."""
    key, body = {"Idempotency-Key": "k1"}, {"filter": {"all": True}}
    first, again = (web.post("/api/tasks/bulk/pause", json=body, headers=key) for _ in range(2))
    assert (202, 200) == (first.status_code, again.status_code)
    assert first.headers["Location"] == again.headers["Location"]
    other = problem(web.post("/api/tasks/bulk/cancel", json=body, headers=key), 422)
    assert ("urn:ghostless:idempotency-key-reused", first.json["id"]) == (other["type"], other["id"])
    assert 1 == len(web.get("/api/bulk").json["bulk_actions"])


def test_a_dry_run_tells_and_changes_nothing(web: FlaskClient, client: Client, redis: Redis) -> None:
    """200 with the number, the states and some ids."""
    ids, before = submit(client, 3), snapshot(redis)
    answer = web.post("/api/tasks/bulk/cancel", json={"filter": {"queue": "work"}, "dry_run": True})
    told = answer.json
    assert (200, set(ids)) == (answer.status_code, set(told.pop("sample")))
    assert {"matched": 3, "complete": True, "by_state": {"PENDING": 3}, "dry_run": True} == told
    assert {} == difference(before, snapshot(redis))


def in_each_state(client: Client, hand: Hand, task_type: str) -> dict[State, str]:
    """Return a task of a type in each state that tasks rest in, and a running one."""
    queue = f"of-{task_type}"

    def submitted(**wishes: Any) -> str:
        return client.submit(task_type, queue=queue, **wishes).task_id

    ids = {}
    for event, state in ((Event.COMPLETE, State.SUCCESS), (Event.FAIL, State.FAILED)):
        ids[state] = submitted(max_retries=0)
        hand.run(queue, event)
    ids[State.PROCESSING] = submitted()
    hand.start(queue)
    ids[State.PENDING] = submitted()
    ids[State.SCHEDULED] = submitted(delay=3600)
    ids[State.BLOCKED] = submitted(depends_on=[client.submit("third").task_id])
    ids[State.PAUSED] = submitted()
    client.pause(ids[State.PAUSED])
    ids[State.CANCELLED] = submitted()
    client.cancel(ids[State.CANCELLED])
    return ids


EFFECTS: dict[str, dict[State, State]] = {
    "cancel": {
        **dict.fromkeys((State.PENDING, State.SCHEDULED, State.BLOCKED, State.PAUSED), State.CANCELLED),
        State.PROCESSING: State.CANCELLING,
    },
    "pause": {State.PENDING: State.PAUSED, State.PROCESSING: State.PAUSING},
    "resume": {State.PAUSED: State.PENDING},
    "retry": {State.FAILED: State.PENDING},
}
"""What becomes of a task by a bulk action; it stays where it is in every other state."""


@pytest.mark.parametrize("action", EFFECTS)
def test_what_becomes_of_the_tasks(web: FlaskClient, client: Client, redis: Redis, hand: Hand, action: str) -> None:
    """Those that the filter finds and the action fits are moved, each is counted, and all others are as they were."""
    publish(client.store, "work", "other", "third")
    ids, others = in_each_state(client, hand, "work"), in_each_state(client, hand, "other")
    effects = EFFECTS[action]
    before = snapshot(redis)
    counted = web.post(f"/api/tasks/bulk/{action}", json={"filter": {"type": "work"}, "dry_run": True}).json
    assert {} == difference(before, snapshot(redis))
    assert dict.fromkeys(effects, 1) == {state: counted["by_state"].get(state) for state in effects}
    begun = web.post(f"/api/tasks/bulk/{action}", json={"filter": {"type": "work"}, "message": "since"})
    place, wanted = begun.headers["Location"], {state: effects.get(state, state) for state in ids}

    def are_moved() -> None:
        swept(client)  # a retry is due at once, and released by a later sweep
        assert wanted == {state: client.get(task_id).state for state, task_id in ids.items()}

    eventually(are_moved)
    told = web.get(place).json
    assert ("done", len(effects), 0) == (told["state"], told["counts"]["moved"], told["counts"]["damaged"])
    for state in effects:
        messages = [entry.message for entry in client.history(ids[state])]
        assert 1 == messages.count(f"bulk action {told['id']}: since")
    for state, task_id in others.items():
        assert state == client.get(task_id).state
    after = {name: kept for name, kept in snapshot(redis).items() if name.endswith(tuple(others.values()))}
    assert after == {name: before[name] for name in after}
    assert [] == audit(redis, client.store.keys, [*ids.values(), *others.values()])


def test_one_that_runs_can_be_ended(web: FlaskClient, client: Client) -> None:
    """It does nothing any more, and says who ended it."""
    submit(client, 2)
    place = web.post("/api/tasks/bulk/cancel", json={"filter": {"all": True}}).headers["Location"]
    for _ in range(2):
        answer = web.post(f"{place}/stop")
        assert (200, "stopped", "api") == (answer.status_code, answer.json["state"], answer.json["stopped_by"])
    swept(client)
    assert {State.PENDING: 2} == ended_in(client)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/filter"),
        ({"filter": {}}, "/filter"),
        ({"filter": {"state": "SUCCESS"}}, "/filter/state"),
        ({"filter": {"state": "NOWHERE"}}, "/filter/state"),
        ({"filter": {"type": "a b"}}, "/filter/type"),
        ({"filter": {"after": "2030-01-31T08:00:00"}}, "/filter/after"),
        ({"filter": {"before": 1e300}}, "/filter/before"),
        ({"filter": {"ids": ["a/b"]}}, "/filter/ids/0"),
        ({"filter": {"ids": ["t"] * 1001}}, "/filter/ids"),
        ({"filter": {"colour": "red"}}, "/filter/colour"),
        ({"filter": {"all": True}, "limit": 0}, "/limit"),
        ({"filter": {"all": True}, "limit": 100_001}, "/limit"),
        ({"filter": {"all": True}, "dry_run": 1}, "/dry_run"),
    ],
)
def test_what_cannot_be_used_is_pointed_at(web: FlaskClient, redis: Redis, body: object, pointer: str) -> None:
    """422, by the place in the body, and nothing is stored."""
    before = snapshot(redis)
    answer = problem(web.post("/api/tasks/bulk/cancel", json=body), 422)
    assert [pointer] == [error["pointer"] for error in answer["errors"]]
    assert {} == difference(before, snapshot(redis))


def test_an_owner_reaches_only_what_is_his(web: FlaskClient, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """His filter is bound to him, whatever it says; the bulk actions of others are 404 to him."""
    mine, theirs = submit(client, 2, "ann"), submit(client, 2, "bob")
    foreign = client.bulk.begin(BulkRequest("pause", BulkFilter(owner="ann"))).bulk_id
    client.bulk.stop(foreign)
    ann = Caller("api:ann", frozenset({Scope.READ, Scope.OPERATE}), "ann")
    monkeypatch.setattr(Caller, "of", lambda _credential: ann)
    for path in (f"/api/bulk/{foreign}", "/api/bulk/nope"):
        problem(web.get(path), 404)
        problem(web.post(f"{path}/stop"), 404)
    assert [] == web.get("/api/bulk").json["bulk_actions"]
    filters: list[dict[str, Any]] = [{"all": True}, {"ids": [mine[0], *theirs]}]
    for wanted in filters:
        counted = web.post("/api/tasks/bulk/cancel", json={"filter": wanted, "dry_run": True}).json
        assert set(mine) >= set(counted["sample"])
    answer = problem(web.post("/api/tasks/bulk/cancel", json={"filter": {"owner": "bob"}}), 422)
    assert "/filter/owner" == answer["errors"][0]["pointer"]
    for wanted in filters:
        assert 202 == web.post("/api/tasks/bulk/cancel", json={"filter": wanted}).status_code
    swept(client)
    assert {State.CANCELLED: 2, State.PENDING: 2} == ended_in(client)
    assert {"ann"} == {one["filter"]["owner"] for one in web.get("/api/bulk").json["bulk_actions"]}


def test_one_task_that_is_called_bulk_is_reached(web: FlaskClient, client: Client) -> None:
    """The path of bulk actions hides no task: with its id in the filter it can be acted on as well."""
    client.submit("work", id="bulk")
    assert 202 == web.post("/api/tasks/bulk/cancel", json={"filter": {"ids": ["bulk"]}}).status_code
    swept(client)
    assert State.CANCELLED == client.get("bulk").state


# By the command line

Cli = Callable[..., Result]


@pytest.fixture
def cli(settings: Settings, store: Store) -> Cli:
    """Run `ghostless bulk`, on a database in which the type `work` is published."""
    publish(store)

    def run(*arguments: str, **options: Any) -> Result:
        return CliRunner().invoke(
            main, ["bulk", *arguments], env={"GHOSTLESS_REDIS_URL": settings.redis_url}, **options
        )

    return run


def test_the_verb_waits_for_the_end(cli: Cli, client: Client, store: Store, redis: Redis) -> None:
    """With --wait it prints what was done; the list and the status tell of it too."""
    ids = submit(client, 5)
    with watching(store):
        result = cli("cancel", "--type", "work", "--message", "enough", "--limit", "4", "--wait", "--json")
    done = json.loads(result.stdout)
    assert (0, "done", 4, True) == (result.exit_code, done["state"], done["counts"]["moved"], done["reached_limit"])
    assert done == json.loads(cli("status", done["id"], "--json").stdout)
    assert [done] == json.loads(cli("list", "--json").stdout)["bulk_actions"]
    for verb in (("list",), (), ("status", done["id"])):
        assert all(word in cli(*verb).stdout for word in (done["id"], "4 moved", "type=work"))
    assert [] == audit(redis, store.keys, ids)


def test_the_verb_counts_only(cli: Cli, client: Client, redis: Redis) -> None:
    """--dry-run changes nothing."""
    submit(client, 2)
    before = snapshot(redis)
    assert "2 tasks would be moved; nothing was changed" in cli("pause", "--all", "--dry-run").stdout
    assert 2 == json.loads(cli("pause", "--all", "--dry-run", "--json").stdout)["matched"]
    assert {} == difference(before, snapshot(redis))


def test_a_person_is_asked_first(cli: Cli, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, with the number of tasks; "no" begins nothing, --yes asks nothing."""
    submit(client, 2)
    monkeypatch.setattr("ghostless.jobs.cli.bulk.on_keyboard", lambda: True)
    refused = cli("cancel", "--all", input="n\n")
    assert (1, True) == (refused.exit_code, "cancel 2 tasks?" in refused.stderr)
    assert [] == client.bulk.newest()
    assert 0 == cli("cancel", "--all", input="y\n").exit_code
    assert 0 == cli("cancel", "--all", "--yes").exit_code
    assert 2 == len(client.bulk.newest())


def test_the_verb_stops_one(cli: Cli, client: Client) -> None:
    """And says when it had ended already, or never was."""
    bulk_id = json.loads(cli("cancel", "--all", "--json").stdout)["id"]
    assert f"{bulk_id} is stopped\n" == cli("stop", bulk_id).stdout
    assert "had ended already" in cli("stop", bulk_id).stdout
    assert "no bulk action has the id 'nothing'" in cli("stop", "nothing").stderr


def test_the_verb_refuses_what_means_nothing(cli: Cli, client: Client) -> None:
    """In one line."""
    result = cli("cancel")
    assert 1 == result.exit_code
    assert result.stderr.startswith("Error: filter: narrows nothing down")
    assert [] == client.bulk.newest()

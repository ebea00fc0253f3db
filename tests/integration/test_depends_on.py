"""`depends_on` as the client, the API and the command line take it, and how it is explained."""

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.errors import InvalidTask, TaskConflict
from ghostless.jobs.settings import Settings
from ghostless.jobs.submission import MOST_DEPENDENCIES, Request
from ghostless.statemachine import Event, State
from web_tools import Hand


@pytest.fixture
def first(client: Client, web: FlaskClient) -> str:
    """A task to depend on."""
    return client.submit("work", id="first").task_id


@pytest.mark.parametrize(
    ("depends_on", "faults"),
    [
        (["nobody", "first", "nothing"], ["no task has the id 'nobody'", "no task has the id 'nothing'"]),
        (["first"] * (MOST_DEPENDENCIES + 1), ["expected a list of at most 100 ids of tasks"]),
        (["no id"], ["expected text matching"]),
        (["me", "first"], ["a task cannot depend on itself"]),
        ("first", ["expected a list of at most 100 ids of tasks"]),
        ([7], ["expected text matching"]),
    ],
)
def test_what_cannot_be_depended_on(first: str, client: Client, depends_on: object, faults: list[str]) -> None:
    """Every fault is named, and nothing is stored."""
    with pytest.raises(InvalidTask) as caught:
        client.submit("work", id="me", depends_on=depends_on)
    assert len(faults) == len(caught.value.faults)
    for fault, expected in zip(caught.value.faults, faults, strict=True):
        assert ("depends_on", True) == (fault.field, fault.message.startswith(expected))
    assert 1 == client.reads.ledger()["submitted"]


def test_the_same_submit_depends_on_the_same_tasks(first: str, client: Client) -> None:
    """Dependencies are part of what was asked for, in any order and named twice or once."""
    second = client.submit("work").task_id
    assert client.submit("work", id="me", depends_on=[first, second]).created
    assert not client.submit("work", id="me", depends_on=[second, first, second]).created
    with pytest.raises(TaskConflict):
        client.submit("work", id="me", depends_on=[first])
    with pytest.raises(TaskConflict):
        client.submit("work", id="me")


def test_many_at_once(first: str, client: Client) -> None:
    """Tasks that are submitted together may depend on each other in their order; each has an answer of its own."""
    wishes = [
        Request("work", {}, id="a", depends_on=(first,)),
        Request("work", {}, id="b", depends_on=("a",)),
        Request("work", {}, id="c", depends_on=("d",)),
        Request("work", {}, id="d"),
    ]
    states = [getattr(accepted, "state", type(accepted).__name__) for accepted in client.submit_many(wishes)]
    assert [State.BLOCKED, State.BLOCKED, "InvalidTask", State.PENDING] == states


def test_the_api(first: str, web: FlaskClient, hand: Hand) -> None:
    """A dependent is accepted as BLOCKED, shows what it depends on, and is released; faults are 422 by their place."""
    answer = web.post("/api/tasks", json={"type": "work", "id": "second", "depends_on": [first]})
    assert (202, "BLOCKED") == (answer.status_code, answer.json["state"])
    shown = web.get("/api/tasks/second").json
    assert ([first], 1) == (shown["depends_on"], shown["dependencies"])
    assert "first, which is PENDING" in web.get("/api/tasks/second/explain").json["why"]
    assert ["second"] == [task["id"] for task in web.get("/api/tasks?state=BLOCKED").json["tasks"]]
    refused = web.post("/api/tasks", json={"type": "work", "depends_on": ["nobody"]})
    assert (422, "/depends_on") == (refused.status_code, refused.json["errors"][0]["pointer"])
    assert 409 == web.post("/api/tasks/second/pause", json={}).status_code
    hand.run()
    assert "PENDING" == web.get("/api/tasks/second").json["state"]
    ended = web.post("/api/tasks", json={"type": "work", "depends_on": [first]})
    assert (202, "PENDING") == (ended.status_code, ended.json["state"])


def test_the_command_line(first: str, settings: Settings, client: Client, hand: Hand) -> None:
    """`--depends-on` may be given often; a dependent of what failed is accepted, and told why it was cancelled."""

    def run(*arguments: str) -> str:
        outcome = CliRunner().invoke(main, ["--redis-url", settings.redis_url, *arguments])
        assert 0 == outcome.exit_code, outcome.output
        return outcome.stdout

    client.submit("work", id="other", queue="elsewhere")
    run("submit", "work", "--id", "second", "--depends-on", first, "--depends-on", "other")
    assert [first, "other"] == client.get("second").depends_on
    told = run("explain", "second")
    assert "2 of the 2 tasks" in told
    assert "ghostless explain other" in told
    hand.run(event=Event.FAIL, message="no model", retryable=False)
    assert State.CANCELLED == client.get("second").state
    run("submit", "work", "--id", "third", "--depends-on", first)
    assert "task first, which it depends on, is FAILED" in run("explain", "third").replace("\n", " ")


def test_a_time_and_tasks(first: str, client: Client, hand: Hand) -> None:
    """A task that waits for both says so, first of its tasks, then of its time."""
    client.submit("work", id="second", depends_on=[first], delay=3600)
    assert "but not before its time" in client.explain("second").next
    hand.run()
    told = client.explain("second")
    assert "its time has not come" in told.why
    assert client.get("second").due_at == told.next_at
    assert "moved" == client.cancel("second").word

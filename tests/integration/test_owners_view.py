"""What a caller who is bound to an owner learns of others in passing: nothing, not even that something happened."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.errors import InvalidTask
from ghostless.jobs.keys import Keys
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from ghostless.web import sse
from ghostless.web.cursors import Cursor
from redis import Redis
from web_tools import EventStream, end_retention, in_process, publish, submitted


@pytest.fixture
def app(client: Client, store: Store, tmp_path: Path) -> Iterator[Flask]:
    """A server that demands tokens, and shares the folder of the artifacts; the type `work` is published."""
    publish(store)
    settings = replace(client.settings, artifacts=str(tmp_path))
    app = create_app(client=Client(settings, client.store.redis), require_tokens=True)
    yield app
    app.extensions["ghostless"].hub.close()


@pytest.fixture
def ann(client: Client) -> dict[str, str]:
    """The header of one who may do everything with the tasks of ann."""
    text, _ = client.tokens.add("ann", [Scope.SUBMIT, Scope.READ, Scope.OPERATE], owner="ann")
    return {"Authorization": f"Bearer {text}"}


@pytest.fixture
def reused(client: Client, redis: Redis, keys: Keys, store: Store, tmp_path: Path) -> str:
    """The id of a task of ann which was one of bob before, with a callback and an artifact of each."""
    for owner in ("bob", "ann"):
        submitted(client, owner=owner, id="t")
        redis.set(keys.callback("t"), f"https://{owner}.example/hook")
        client.cancel("t")
        client.deliveries.plan(client.history("t")[-1])
        if owner == "bob":
            end_retention(redis, keys, ["t"])
            store.purge()
            redis.delete(keys.tombstone("t"))
    (tmp_path / "t").mkdir()
    for owner, age in (("bob", 60), ("ann", 0)):
        path = tmp_path / "t" / f"{owner}.txt"
        path.write_text(owner)
        at = client.get("t").submitted_at / 1000 - age
        os.utime(path, (at, at))
    return "t"


def test_a_new_task_shows_no_deliveries_of_an_older_one_with_its_id(
    app: Flask, client: Client, ann: dict[str, str], reused: str
) -> None:
    """Deliveries outlive their task: each is its own owner's, to see and to ask for again."""
    web, (bobs, anns) = app.test_client(), client.deliveries.of_task(reused)
    listed = web.get(f"/api/tasks/{reused}/deliveries", headers=ann)
    assert "bob" not in listed.text
    assert [anns.delivery.id] == [each["id"] for each in listed.get_json()["deliveries"]]
    for listing, status in ((bobs, 404), (anns, 202)):
        path = f"/api/tasks/{reused}/deliveries/{listing.delivery.id}/redeliver"
        assert status == web.post(path, headers=ann).status_code


def test_a_new_task_shows_no_artifacts_of_an_older_one_with_its_id(
    app: Flask, ann: dict[str, str], reused: str
) -> None:
    """The folder outlives its task too: what is older than the task is not its own."""
    web = app.test_client()
    listed = web.get(f"/api/tasks/{reused}/artifacts", headers=ann).get_json()["artifacts"]
    assert ["ann.txt"] == [each["name"] for each in listed]
    for name, status in (("ann.txt", 200), ("bob.txt", 404)):
        with web.get(f"/api/tasks/{reused}/artifacts/{name}", headers=ann) as answer:
            assert status == answer.status_code


def test_a_folder_of_artifacts_that_is_a_link_is_not_followed(
    app: Flask, client: Client, ann: dict[str, str], reused: str, tmp_path: Path
) -> None:
    """It could lead to what another task kept."""
    task_id = submitted(client, owner="ann", id="linked")
    (tmp_path / task_id).symlink_to(tmp_path / reused)
    web = app.test_client()
    assert [] == web.get(f"/api/tasks/{task_id}/artifacts", headers=ann).get_json()["artifacts"]
    assert 404 == web.get(f"/api/tasks/{task_id}/artifacts/ann.txt", headers=ann).status_code


# When others' tasks move


def sign_of_life(stream: EventStream) -> str:
    """Return the place in the next block that carries nothing else."""
    while not (line := stream.response.readline().decode()).startswith("id: "):
        pass
    return line.removeprefix("id: ").rstrip("\n")


def test_a_page_of_a_listing_does_not_change_with_others_moves(app: Flask, client: Client, ann: dict[str, str]) -> None:
    """Neither its ETag, nor anything that can be read in its cursors, which look different each time."""
    submitted(client, owner="ann", id="anns")
    web, answers = app.test_client(), []
    for number in range(4):
        answers.append(web.get("/api/tasks?limit=1", headers=ann))
        submitted(client, owner="bob", id=f"bobs-{number}")
    assert 1 == len({answer.headers["ETag"] for answer in answers})
    cursors = {answer.get_json()["last_event_id"] for answer in answers}
    assert 4 == len(cursors)
    assert {None} == {Cursor.parse(cursor) for cursor in cursors}
    assert 1 == len({len(cursor) for cursor in cursors})


def test_places_of_a_stream_tell_nothing_and_from_each_it_goes_on(
    app: Flask, client: Client, ann: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the moves of one's own tasks have places that can be read; signs of life do not."""
    monkeypatch.setattr(sse, "HEARTBEAT", 0.02)
    submitted(client, owner="bob", id="bobs")
    listed = app.test_client().get("/api/tasks", headers=ann).get_json()["last_event_id"]
    with in_process(app) as served:
        url = f"{served.url}/api/events"
        with EventStream(url, listed, headers=ann) as stream:
            for number in range(3):
                submitted(client, owner="ann", id=f"anns-{number}")
                submitted(client, owner="bob", id=f"bobs-{number}")
            whole = stream.take("task", 3)
            ids = [*stream.ids, sign_of_life(stream), sign_of_life(stream)]
        assert [f"anns-{number}" for number in range(3)] == [move.data["id"] for move in whole]
        own = {client.get(f"anns-{number}").cursor for number in range(3)}
        assert own == {cursor.partition(".")[2] for cursor in ids if Cursor.parse(cursor)}
        assert len(ids) == len(set(ids)) > 3
        for cursor in ids:
            seen = ids.index(cursor)
            after = [move for move in whole if ids.index(move.id) > seen]
            with EventStream(url, cursor, headers=ann) as rest:
                assert after == rest.take("task", len(after))


def test_made_up_places_are_all_answered_alike(
    app: Flask, client: Client, redis: Redis, keys: Keys, ann: dict[str, str]
) -> None:
    """Of an entry of another owner, before one, and beyond all: else one could search for the newest."""
    submitted(client, owner="ann", id="anns")
    submitted(client, owner="bob", id="bobs")
    epoch, (moved_at, number) = client.reads.epoch(), client.get("bobs").cursor.split("-")
    old = app.test_client().get("/api/tasks", headers=ann).get_json()["last_event_id"]
    redis.delete(keys.signing_key)
    places = [f"{epoch}.{int(moved_at) + ms}-{number}" for ms in (-(10**6), 0, 1, 10**6)]
    with in_process(create_app(client=client, require_tokens=True)) as served:
        for cursor in (*places, old, "x"):
            with EventStream(f"{served.url}/api/events", cursor, headers=ann) as stream:
                assert ["unreadable"] == [reset.data["reason"] for reset in stream.take("reset")], cursor


# What others' tasks are waited for


def test_a_task_depends_on_none_of_another_owner(client: Client, store: Store) -> None:
    """Else its owner is told of that one, by whomever it was submitted; what is nobody's is for all."""
    publish(store)
    for owner in ("ann", "bob", None):
        submitted(client, owner=owner, id=f"of-{owner}")
    with pytest.raises(InvalidTask, match="'of-bob', or it is another owner's"):
        submitted(client, owner="ann", depends_on=["of-ann", "of-bob"])
    assert submitted(client, owner="ann", depends_on=["of-ann", "of-None"])
    assert submitted(client, depends_on=["of-ann", "of-bob"])

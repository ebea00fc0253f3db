"""What a caller who is bound to an owner learns of others in passing: nothing, not even that something happened."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.keys import Keys
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from redis import Redis
from web_tools import end_retention, publish, submitted


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

"""What handlers kept, over HTTP: pictures to look at, everything else to save, and nothing beside it."""

from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from web_tools import publish

PNG = b"\x89PNG\r\n\x1a\n and so on"


@pytest.fixture
def folder(tmp_path: Path, client: Client, store: Store) -> Path:
    """The folder of the task `t`'s artifacts, under one that the server reads."""
    publish(store)
    client.submit("work", id="t")
    made = tmp_path / "artifacts" / "t"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def web(folder: Path, client: Client) -> FlaskClient:
    """The API of a server that shares this folder."""
    settings = replace(client.settings, artifacts=str(folder.parent))
    return create_app(client=Client(settings, client.store.redis)).test_client()


def test_a_picture_is_shown_and_a_page_is_saved(web: FlaskClient, folder: Path) -> None:
    """What could run scripts in this origin is never shown by a browser, whatever its bytes say."""
    for name in ("cat.png", "evil.html", "evil.svg", "data"):
        (folder / name).write_bytes(PNG)
    with web.get("/api/tasks/t/artifacts/cat.png") as picture:
        assert ("image/png", PNG) == (picture.content_type, picture.data)
        assert picture.headers["Content-Disposition"].startswith("inline")
    for name in ("evil.html", "evil.svg", "data"):
        with web.get(f"/api/tasks/t/artifacts/{name}") as answer:
            headers = answer.headers
        assert ("application/octet-stream", "nosniff") == (headers["Content-Type"], headers["X-Content-Type-Options"])
        assert headers["Content-Disposition"].startswith("attachment")
        assert "sandbox" in headers["Content-Security-Policy"]


def test_they_are_listed_by_name(web: FlaskClient, folder: Path) -> None:
    """Parts that are still being written, links and folders are no artifacts."""
    (folder / "b.png").write_bytes(PNG)
    (folder / "a.txt").write_bytes(b"text")
    (folder / ".part").write_bytes(b"half")
    (folder / "inside").mkdir()
    (folder / "link.png").symlink_to(folder / "b.png")
    listed = web.get("/api/tasks/t/artifacts").get_json()
    assert [
        {"name": "a.txt", "size": 4, "is_picture": False},
        {"name": "b.png", "size": len(PNG), "is_picture": True},
    ] == listed["artifacts"]


def test_a_server_without_the_folder_lists_none(web: FlaskClient, folder: Path) -> None:
    """The workers may be on another machine; that is no error."""
    folder.rmdir()
    assert [] == web.get("/api/tasks/t/artifacts").get_json()["artifacts"]


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2fsecret", ".part", "link", "nothing.png", "a%00.png", "x" * 300])
def test_nothing_else_is_to_be_had(web: FlaskClient, folder: Path, name: str) -> None:
    """No name leads out of the task's folder, or to what is not whole."""
    (folder.parent / "secret").write_text("secret")
    (folder / ".part").write_bytes(b"half")
    (folder / "link").symlink_to(folder.parent / "secret")
    answer = web.get(f"/api/tasks/t/artifacts/{name}")
    assert (404, "application/problem+json") == (answer.status_code, answer.content_type)


def test_an_unknown_task_has_none(web: FlaskClient) -> None:
    """A folder may outlive its task; only who may see the task sees what it kept."""
    for path in ("/api/tasks/other/artifacts", "/api/tasks/other/artifacts/cat.png"):
        assert 404 == web.get(path).status_code


def test_one_that_goes_while_they_are_listed(web: FlaskClient, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is removed between the look at the folder and the look at the file is left out; the others stay."""
    (folder / "a.txt").write_bytes(b"text")
    monkeypatch.setattr(Path, "iterdir", lambda self: iter([self / "a.txt", self / "gone.txt"]))
    monkeypatch.setattr(Path, "is_file", lambda self: True)
    monkeypatch.setattr(Path, "is_symlink", lambda self: False)
    answer = web.get("/api/tasks/t/artifacts")
    assert ["a.txt"] == [one["name"] for one in answer.get_json()["artifacts"]]

"""What handlers kept, over HTTP: pictures to look at, everything else to save, and nothing beside it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract import Contract
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from ghostless.web import artifacts
from web_tools import publish
from werkzeug.test import TestResponse

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
def web(folder: Path, client: Client) -> Iterator[FlaskClient]:
    """The API of a server that shares this folder; each answer must be what the API says of itself."""
    settings = replace(client.settings, artifacts=str(folder.parent))
    app = create_app(client=Client(settings, client.store.redis))
    contract = Contract(app)
    yield app.test_client()
    assert [] == contract.breaches


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


CAT = "/api/tasks/t/artifacts/cat.png"
LISTED = "/api/tasks/t/artifacts"


def told(answer: TestResponse, status: int) -> str:
    """Check that an answer is a problem of this status, and return its kind."""
    assert (status, "application/problem+json") == (answer.status_code, answer.content_type)
    return answer.get_json(force=True)["type"]


@pytest.fixture
def cat(folder: Path) -> bytes:
    """What a handler kept as `cat.png`."""
    (folder / "cat.png").write_bytes(PNG)
    return PNG


@pytest.mark.parametrize("path", [LISTED, CAT])
def test_they_are_only_read(web: FlaskClient, cat: bytes, path: str) -> None:
    """405 for everything else, with what there is; HEAD is GET without the body."""
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        answer = web.open(path, method=method)
        assert "urn:ghostless:http-405" == told(answer, 405)
        assert {"GET", "HEAD", "OPTIONS"} == set(answer.headers["Allow"].split(", "))
    with web.head(path) as head, web.get(path) as whole:
        assert (200, b"") == (head.status_code, head.data)
        names = ("Content-Type", "Content-Length", "Content-Security-Policy", "X-Content-Type-Options")
        assert [whole.headers[name] for name in names] == [head.headers[name] for name in names]
        assert len(whole.data) == int(head.headers["Content-Length"])


END = len(PNG) - 1


@pytest.mark.parametrize(("part", "first", "last"), [("0-3", 0, 3), ("4-", 4, END), ("-2", END - 1, END)])
def test_a_part_of_one(web: FlaskClient, cat: bytes, part: str, first: int, last: int) -> None:
    """206 with these bytes, guarded as the whole file is."""
    with web.get(CAT, headers={"Range": f"bytes={part}"}) as answer:
        assert (206, cat[first : last + 1]) == (answer.status_code, answer.data)
        assert f"bytes {first}-{last}/{len(cat)}" == answer.headers["Content-Range"]
        assert "sandbox" in answer.headers["Content-Security-Policy"]
        assert "nosniff" == answer.headers["X-Content-Type-Options"]


@pytest.mark.parametrize("part", [f"bytes={len(PNG)}-", "bytes=9-2", "bytes=-", "lines=1-2", "nonsense"])
def test_a_part_that_there_is_not(web: FlaskClient, cat: bytes, part: str) -> None:
    """416, with how long the file is."""
    answer = web.get(CAT, headers={"Range": part})
    assert "urn:ghostless:range-not-satisfiable" == told(answer, 416)
    assert f"{len(cat)} bytes" in answer.get_json(force=True)["detail"]


def test_one_that_the_client_has(web: FlaskClient, folder: Path, cat: bytes) -> None:
    """304, until the file is another one."""
    with web.get(CAT) as whole:
        tag = {"If-None-Match": whole.headers["ETag"]}
    with web.get(CAT, headers=tag) as same:
        assert (304, b"") == (same.status_code, same.data)
    (folder / "cat.png").write_bytes(cat + b"more")
    with web.get(CAT, headers=tag) as other:
        assert 200 == other.status_code


@pytest.mark.parametrize("path", [LISTED, CAT, f"{LISTED}/nothing.png"])
def test_another_owners_are_not_there(web: FlaskClient, client: Client, folder: Path, cat: bytes, path: str) -> None:
    """404, as of a task that there is not; for who may see the task they are."""
    tokens = {name: client.tokens.add(name, [Scope.READ], owner=name)[0] for name in ("ann", "bob")}
    client.submit("work", id="u", owner="ann")
    (folder.parent / "u").mkdir()
    (folder.parent / "u" / "cat.png").write_bytes(cat)
    of_ann = path.replace("/t/", "/u/")
    mine, others = ({"Authorization": f"Bearer {tokens[name]}"} for name in ("ann", "bob"))
    assert "urn:ghostless:task-not-found" == told(web.get(of_ann, headers=others), 404)
    with web.get(of_ann, headers=mine) as answer:
        assert (404 if "nothing" in path else 200) == answer.status_code


@pytest.mark.parametrize("path", [LISTED, CAT])
def test_redis_is_away(folder: Path, client: Client, cat: bytes, path: str) -> None:
    """503: without it nobody can tell whose the task is."""
    settings = replace(client.settings, redis_url="redis://127.0.0.1:1", artifacts=str(folder.parent))
    answer = create_app(client=Client(settings)).test_client().get(path)
    assert "urn:ghostless:storage-unavailable" == told(answer, 503)
    assert 0 < int(answer.headers["Retry-After"])


def test_one_that_goes_when_it_is_asked_for(
    web: FlaskClient, folder: Path, cat: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """404 in whichever moment it is removed."""
    for moment in ("_is_of", "_kind"):
        there = getattr(artifacts, moment)

        def removed(path: Path, *rest: Any, there: Callable[..., Any] = there) -> Any:
            path.unlink()
            return there(path, *rest)

        with monkeypatch.context() as patches:
            patches.setattr(artifacts, moment, removed)
            assert "urn:ghostless:artifact-not-found" == told(web.get(CAT), 404)
        (folder / "cat.png").write_bytes(cat)

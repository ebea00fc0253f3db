"""The files that browsers load: as they are, revalidated each time, and nothing beside them."""

import re

import pytest
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.settings import Settings
from ghostless.web.static_files import FOLDER, TYPES
from ghostless.web.watch import TASKS_LIMIT


@pytest.fixture
def web() -> FlaskClient:
    """An application whose Redis is not there: files need none."""
    return create_app(Settings(redis_url="redis://127.0.0.1:1/0")).test_client()


def test_a_module_is_served_as_one(web: FlaskClient) -> None:
    """A browser runs a module only with the type of JavaScript, and is told to guess no other one."""
    answer = web.get("/static/client.js")
    assert (200, "text/javascript; charset=utf-8") == (answer.status_code, answer.headers["Content-Type"])
    assert FOLDER.joinpath("client.js").read_bytes() == answer.data
    assert "nosniff" == answer.headers["X-Content-Type-Options"]


def test_a_file_is_loaded_once_and_asked_for_each_time(web: FlaskClient) -> None:
    """So a deploy is seen at once, and costs a few bytes when nothing changed."""
    first = web.get("/static/client.js")
    assert "no-cache" == first.headers["Cache-Control"]
    again = web.get("/static/client.js", headers={"If-None-Match": first.headers["ETag"]})
    assert (304, b"") == (again.status_code, again.data)


@pytest.mark.parametrize(
    "name",
    ["", "none.js", "client", "../serve.py", "%2e%2e/serve.py", "../../app.py", "client.js%00", f"{'a' * 300}.js"],
)
def test_nothing_else_is_served(web: FlaskClient, name: str) -> None:
    """No other kind of file, and nothing outside of the folder."""
    assert 404 == web.get(f"/static/{name}").status_code


def test_every_file_has_a_kind() -> None:
    """What is put into the folder can be loaded."""
    assert set() == {path.suffix[1:] for path in FOLDER.rglob("*") if path.is_file()} - TYPES.keys()


def test_a_stream_names_as_many_tasks_as_the_server_takes() -> None:
    """The client's number is the server's: one more would be refused, and one less is polled without need."""
    [limit] = re.findall(r"TASKS_LIMIT = (\d+);", FOLDER.joinpath("client", "feed.js").read_text(encoding="utf-8"))
    assert TASKS_LIMIT == int(limit)

"""Ids and names that nothing can have, in each place of each route: refused, with nothing written or repeated."""

import json
from collections.abc import Callable, Iterator

import pytest
from flask import Flask
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from odd_ids import TEXTS, Asked, in_bodies, in_paths, in_queries
from redis import Redis
from scripts.snapshot import difference, snapshot
from web_tools import publish, submitted
from werkzeug.test import TestResponse


@pytest.fixture
def web(client: Client, store: Store) -> Iterator[FlaskClient]:
    """The API; what the examples of its description name is there, and the task `t`."""
    publish(store, "work", "video.thumbnails")
    submitted(client, id="t")
    app = create_app(client=client)
    yield app.test_client()
    app.extensions["ghostless"].hub.close()


@pytest.mark.parametrize(("asked_with", "statuses"), [(in_paths, {404, 405}), (in_bodies, {422}), (in_queries, {422})])
def test_what_nothing_can_be_called_is_refused_everywhere(
    web: FlaskClient,
    redis: Redis,
    caplog: pytest.LogCaptureFixture,
    asked_with: Callable[[Flask, str], Iterator[Asked]],
    statuses: set[int],
) -> None:
    """By each rule of the application with each of its methods, in each body and query; what is added is walked too."""
    caplog.set_level("DEBUG")
    before = snapshot(redis)
    for text in TEXTS.values():
        for asked in asked_with(web.application, text):
            answer = web.open(asked.target, method=asked.method, json=asked.body)
            assert answer.status_code in statuses, asked
            assert_told_plainly(answer, text, asked)
    assert {} == difference(before, snapshot(redis))
    for record in caplog.records:
        assert record.getMessage().isprintable(), record


def assert_told_plainly(answer: TestResponse, text: str, asked: Asked) -> None:
    """Check that the answer is a problem, or a page, in which nothing of the text can do anything."""
    for name, value in answer.headers:
        assert value.isprintable(), (asked, name)
        assert "evil" not in value, (asked, name)
    assert "<script" not in answer.text or answer.mimetype != "text/html", asked
    if asked.method == "HEAD":
        assert b"" == answer.data, asked
    elif answer.mimetype == "text/html":
        assert asked.path.startswith("/tasks/"), asked
        assert not set("\0\r\u2028") & set(answer.text), asked
    else:
        assert "application/problem+json" == answer.content_type, asked
        assert answer.text.isascii(), asked  # with everything else escaped
        assert answer.status_code == json.loads(answer.data)["status"], asked

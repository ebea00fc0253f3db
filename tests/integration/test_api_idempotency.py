"""`Idempotency-Key`: a submit that is sent again, however often and from wherever, is one task."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask.testing import FlaskClient
from ghostless.jobs.client import Client
from ghostless.jobs.reads import Reads
from redis import Redis
from web_tools import Hand
from werkzeug.test import TestResponse

KEY = "8e03978e-40d5-43e8"


def send(web: FlaskClient, key: str, **wish: Any) -> TestResponse:
    """Submit a task with a key."""
    return web.post("/api/tasks", json={"type": "work"} | wish, headers={"Idempotency-Key": key})


def problem(answer: TestResponse, status: int, kind: str) -> dict[str, Any]:
    """Check that an answer is this problem, and return it."""
    told = answer.get_json(force=True)
    assert (status, f"urn:ghostless:{kind}") == (answer.status_code, told["type"]), told
    return told


def test_a_resent_submit_is_answered_alike(web: FlaskClient, reads: Reads, hand: Hand) -> None:
    """The same task and place as the first time, also when it went on meanwhile: its state is what it is now."""
    first, again = send(web, KEY, params={"n": 1}), send(web, KEY, params={"n": 1})
    assert (202, True, "2") == (first.status_code, first.json["created"], first.headers["Retry-After"])
    assert (200, False) == (again.status_code, again.json["created"])
    assert (first.json["id"], first.headers["Location"]) == (again.json["id"], again.headers["Location"])
    hand.run()
    assert "SUCCESS" == send(web, KEY, params={"n": 1}).json["state"]
    assert 1 == reads.ledger()["submitted"]


def test_many_at_once_are_one_task(web: FlaskClient, reads: Reads) -> None:
    """Nobody is told that the first is still being processed: key and task are written in one step."""
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: send(web.application.test_client(), KEY), range(32)))
    assert [200] * 31 + [202] == sorted(answer.status_code for answer in answers)
    assert 1 == len({answer.json["id"] for answer in answers}) == reads.ledger()["submitted"]


def test_the_key_of_another_request_is_refused(web: FlaskClient, reads: Reads) -> None:
    """422, with the task that has the key: other params or another type are another request. An id is a 409 as ever."""
    task_id = send(web, KEY, params={"n": 1}, id="a").json["id"]
    assert task_id == problem(send(web, KEY, params={"n": 2}), 422, "idempotency-key-reused")["task"]
    assert task_id == problem(send(web, KEY, params={"n": 2}, id="b"), 422, "idempotency-key-reused")["task"]
    assert task_id == problem(send(web, "other", params={"n": 2}, id="a"), 409, "task-conflict")["task"]
    assert 1 == reads.ledger()["submitted"]


def test_the_key_of_a_purged_task_starts_nothing_anew(web: FlaskClient, client: Client, redis: Redis) -> None:
    """409: what the first request asked for was done, and is past."""
    task_id = send(web, KEY).json["id"]
    client.cancel(task_id)
    redis.zadd(client.store.keys.retention, {task_id: 0})
    client.store.purge()
    assert task_id == problem(send(web, KEY), 409, "task-conflict")["task"]


@pytest.mark.parametrize(
    ("one", "other"),
    [("abc", '"abc"'), ("abc", "  abc\t"), (r"a\b", r'"a\\b"'), ("k" * 255, '"' + "k" * 255 + '"'), ("'", '"\'"')],
)
def test_a_key_may_be_quoted(web: FlaskClient, reads: Reads, one: str, other: str) -> None:
    """A string of RFC 8941 is the same key as its content."""
    assert send(web, one).json["id"] == send(web, other).json["id"]
    assert 1 == reads.ledger()["submitted"]


@pytest.mark.parametrize(
    "key",
    ["", '""', " ", '"abc', 'abc"', 'a"b', '"a"b"', r'"a\b"', "a b", "k" * 256, '"' + "k" * 256 + '"', "é", "a;b c"],
)
def test_a_key_that_cannot_be_one_is_refused(web: FlaskClient, reads: Reads, key: str) -> None:
    """400, and nothing is stored: taken as no key, the request could be done twice."""
    told = problem(send(web, key), 400, "invalid-idempotency-key")
    assert "Idempotency-Key" == told["errors"][0]["parameter"]
    assert 0 == reads.ledger()["submitted"]

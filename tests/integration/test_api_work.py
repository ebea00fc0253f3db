"""Workers over HTTP: what each route does, under the same fence as a worker with a connection to Redis."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from audit import audit
from flask.testing import FlaskClient
from ghostless.jobs.client import Client
from ghostless.statemachine import State
from redis import Redis
from web_tools import Hand, submitted
from werkzeug.test import TestResponse

TOKEN = "0123456789abcdef"


class HttpHand:
    """A worker over HTTP that does what a test says."""

    def __init__(self, web: FlaskClient, name: str = "far") -> None:
        self.web, self.name = web, name
        self.task: dict[str, Any] = {}

    def claim(self, queue: str = "work", **wishes: Any) -> TestResponse:
        """Claim, and remember what came."""
        body = {"worker": self.name, "types": ["work"]} | wishes
        answer = self.web.post(f"/api/queues/{queue}/claim", json=body)
        if answer.status_code == 200:
            self.task = answer.json or {}
        return answer

    @property
    def mine(self) -> dict[str, Any]:
        """Who writes."""
        return {name: self.task[name] for name in ("worker", "attempt", "token")}

    def beat(self) -> TestResponse:
        """Renew the lease."""
        return self.web.put(f"/api/tasks/{self.task['id']}/heartbeat", json=self.mine)

    def say(self, what: str, **more: Any) -> TestResponse:
        """Report something of the attempt."""
        return self.web.post(f"/api/tasks/{self.task['id']}/{what}", json=self.mine | more)


@pytest.fixture
def far(web: FlaskClient) -> HttpHand:
    """A worker over HTTP."""
    return HttpHand(web)


@pytest.fixture
def holding(far: HttpHand, client: Client) -> HttpHand:
    """A worker over HTTP that holds a task."""
    submitted(client)
    assert 200 == far.claim().status_code
    return far


def kind_of(answer: TestResponse) -> tuple[int, str]:
    """Return the status and the kind of a problem."""
    return answer.status_code, (answer.json or {})["type"].removeprefix("urn:ghostless:")


def test_a_claim_brings_all_that_a_worker_needs(far: HttpHand, client: Client, hand: Hand) -> None:
    """Params, attempt, token, clocks, and what the tasks returned that it depends on."""
    first = submitted(client)
    hand.run()
    task_id = submitted(client, params={"n": 3}, depends_on=[first], owner="ada")
    answer = far.claim(token=TOKEN)
    assert {
        "id": task_id, "type": "work", "queue": "work", "owner": "ada", "worker": "far", "attempt": 1, "token": TOKEN,
        "params": {"n": 3}, "checkpoint": None, "results": {first: None}, "timeout": 1800.0, "stall_timeout": None,
        "lease": 60.0, "heartbeat": 5.0,
    } == answer.json  # fmt: skip
    task = client.get(task_id)
    assert (State.PROCESSING, "far") == (task.state, task.worker_id)
    assert "worker:far" == client.history(task_id)[-1].actor


def test_the_guide_shows_the_fields_of_a_claim(holding: HttpHand) -> None:
    """As they come, no more and no less."""
    guide = Path(__file__).parents[2] / "docs" / "http-workers.md"
    shown = re.search(r"```json\n([^`]*\"params\".*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    assert list(json.loads(shown[1])) == list(holding.task)


def test_nothing_to_claim_is_no_error(far: HttpHand, client: Client) -> None:
    """204, also for other types and other queues, and in a paused queue."""
    assert (204, b"") == (far.claim().status_code, far.claim().data)
    submitted(client)
    assert [204, 204] == [far.claim(types=["other"]).status_code, far.claim(queue="other").status_code]
    client.pause_queue("work")
    assert 204 == far.claim().status_code
    client.resume_queue("work")
    assert 200 == far.claim().status_code


def test_a_repeated_claim_gets_the_same_task(far: HttpHand, client: Client) -> None:
    """Its first answer was lost; another token gets another task, and without one the server makes one."""
    submitted(client)
    submitted(client)
    first, again, other = far.claim(token=TOKEN), far.claim(token=TOKEN), far.claim()
    assert first.json == again.json
    assert (first.json or {})["id"] != (other.json or {})["id"]
    assert 16 == len((other.json or {})["token"])


def test_plain_jobs_of_rq_are_left_to_others(far: HttpHand, client: Client, redis: Redis) -> None:
    """A worker over HTTP cannot run them, and gets the tasks behind them."""
    redis.hset(client.store.keys.rq_job("plain"), mapping={"origin": "work", "data": "x"})
    redis.rpush(client.store.keys.rq_queue("work"), "plain")
    task_id = submitted(client)
    assert task_id == (far.claim().json or {})["id"]
    assert ["plain"] == redis.lrange(client.store.keys.rq_queue("work"), 0, -1)


def test_a_whole_life(holding: HttpHand, client: Client, redis: Redis) -> None:
    """Beat, progress, checkpoint, log, and the result: everything stands in the task and its history."""
    task_id = holding.task["id"]
    told = holding.beat().json
    assert {
        "id": task_id, "state": "PROCESSING", "attempt": 1, "action": "continue", "lease": 60.0, "heartbeat": 5.0,
    } == told  # fmt: skip
    assert told == holding.say("progress", fraction=0.5, message="half").json
    assert told == holding.say("checkpoint", value={"step": 5}).json
    assert told == holding.say("log", lines=["one", "two"], call="c1").json
    assert told == holding.say("log", lines=["one", "two"], call="c1").json
    task = client.get(task_id)
    assert (0.5, "half") == (task.progress, task.message)
    assert ["one", "two"] == redis.lrange(client.store.keys.log(task_id), 0, -1)
    done = holding.say("complete", result={"n": 6})
    assert (200, {"id": task_id, "state": "SUCCESS", "attempt": 1}) == (done.status_code, done.json)
    assert {"n": 6} == client.get(task_id).result
    assert ["SUBMIT", "START", "COMPLETE"] == [entry.event for entry in client.history(task_id)]
    assert [] == audit(redis, client.store.keys, [task_id])


def test_an_end_that_is_repeated_is_answered_alike(far: HttpHand, client: Client) -> None:
    """Its first answer was lost; an end that says something else than what stands is stale."""
    ends = [
        ("complete", {"result": 1}, "SUCCESS"),
        ("fail", {"error": "it broke"}, "RETRY_WAITING"),
        ("fail", {"error": "it broke", "retryable": False}, "FAILED"),
        ("suspend", {"reason": "shutdown"}, "PENDING"),
    ]
    for what, more, state in ends:
        task_id = submitted(client)
        far.claim(token=TOKEN)
        first, again = far.say(what, **more), far.say(what, **more)
        assert (200, state) == (first.status_code, (first.json or {})["state"])
        assert first.json == again.json
        other = "fail" if what == "complete" else "complete"
        assert (409, "stale-attempt") == kind_of(far.say(other))
        assert (409, "stale-attempt") == kind_of(far.beat())
        client.cancel(task_id)


def test_a_cancel_reaches_the_worker_with_its_next_call(holding: HttpHand, client: Client) -> None:
    """Every call answers what is to be done; `stopped` confirms, `complete` comes too late and is told so."""
    client.cancel(holding.task["id"])
    assert "cancel" == (holding.beat().json or {})["action"]
    assert "cancel" == (holding.say("progress", fraction=0.1).json or {})["action"]
    done = [holding.say("stopped"), holding.say("stopped"), holding.say("complete")]
    assert [(200, "CANCELLED")] * 3 == [(one.status_code, (one.json or {})["state"]) for one in done]


def test_a_pause_goes_on_from_the_checkpoint(holding: HttpHand, client: Client) -> None:
    """`pause` in the answers, `suspend` to confirm it; the next attempt gets what was saved."""
    client.pause(holding.task["id"])
    assert "pause" == (holding.say("checkpoint", value=[1]).json or {})["action"]
    assert "PAUSED" == (holding.say("suspend").json or {})["state"]
    client.resume(holding.task["id"])
    holding.claim()
    assert (2, [1]) == (holding.task["attempt"], holding.task["checkpoint"])


def test_a_task_that_nobody_cancelled_cannot_be_stopped(holding: HttpHand) -> None:
    """409 with the state that it is in."""
    assert (409, "illegal-move") == kind_of(holding.say("stopped"))
    assert "PROCESSING" == (holding.say("stopped").json or {})["state"]


@pytest.mark.parametrize(
    ("reason", "counter"),
    [("exception", "failures"), ("deadline", "timeouts"), ("stalled", "timeouts"), ("crashed", "losses")],
)
def test_each_reason_uses_its_own_budget(holding: HttpHand, client: Client, reason: str, counter: str) -> None:
    """As with a worker of ours; the delay that was asked for is kept, and text and message are there."""
    told = {"error": "Traceback\n  x\nValueError: no", "reason": reason, "retry_after": 60}
    assert "RETRY_WAITING" == (holding.say("fail", **told).json or {})["state"]
    task = client.get(holding.task["id"])
    assert 1 == getattr(task, counter)
    assert task.due_at is not None
    assert task.due_at >= task.entered_at + 60_000
    assert told["error"] == task.error
    entry = client.history(task.id)[2]
    assert (reason, "ValueError: no", "worker:far") == (entry.reason, entry.message, entry.actor)


WRITES: dict[str, dict[str, Any]] = {
    "heartbeat": {},
    "progress": {"fraction": 1},
    "checkpoint": {"value": 1},
    "log": {"lines": ["x"]},
    "complete": {},
    "fail": {},
    "suspend": {},
    "stopped": {},
}


@pytest.mark.parametrize("what", WRITES)
def test_nobody_writes_without_the_attempts_token(holding: HttpHand, client: Client, redis: Redis, what: str) -> None:
    """Another token, another attempt, or an attempt that lost the task: 409 that says what to do, and no change."""
    task_id, send = holding.task["id"], holding.web.put if what == "heartbeat" else holding.web.post
    before = redis.hgetall(client.store.keys.task(task_id))
    for wrong in ({"token": "f" * 16}, {"attempt": 2}):
        answer = send(f"/api/tasks/{task_id}/{what}", json=holding.mine | WRITES[what] | wrong)
        assert (409, "stale-attempt") == kind_of(answer)
        assert "its work must stop" in (answer.json or {})["detail"]
    assert before == redis.hgetall(client.store.keys.task(task_id))
    none = send(f"/api/tasks/none/{what}", json=holding.mine | WRITES[what])
    assert (404, "task-not-found") == kind_of(none)


def test_wrong_input_is_named_by_field(holding: HttpHand) -> None:
    """Names, bounds and values that JSON allows and UTF-8 does not; nothing is written."""
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("progress", {"fraction": 1.5}, "/fraction"),
        ("progress", {"fraction": True}, "/fraction"),
        ("progress", {}, "/fraction"),
        ("log", {"lines": []}, "/lines"),
        ("log", {"lines": ["x"] * 101}, "/lines"),
        ("complete", {"result": "\ud800"}, "/result"),
        ("checkpoint", {"value": {"\ud800": 1}}, "/value"),
        ("complete", {"worker": "a b"}, "/worker"),
        ("complete", {"worker": "a\n"}, "/worker"),
        ("complete", {"token": "nothex"}, "/token"),
        ("complete", {"attempt": 0}, "/attempt"),
        ("fail", {"reason": "worker_lost"}, "/reason"),
        ("fail", {"retry_after": -1}, "/retry_after"),
        ("suspend", {"reason": "deadline"}, "/reason"),
    ]
    for what, more, place in cases:
        answer = holding.say(what, **more)
        assert (422, "invalid-body") == kind_of(answer), (what, more)
        assert place == (answer.json or {})["errors"][0]["pointer"]
    assert 422 == holding.claim(types=[]).status_code
    assert 422 == holding.claim(token="T").status_code
    assert "PROCESSING" == (holding.beat().json or {})["state"]


def test_a_result_over_the_limit_is_refused_and_the_attempt_goes_on(holding: HttpHand) -> None:
    """413 that says where to put it; the worker may still fail the attempt, or send less."""
    assert (413, "too-large") == kind_of(holding.say("complete", result="x" * 1024 * 1024))
    assert "continue" == (holding.beat().json or {})["action"]


def test_long_texts_are_cut_to_what_a_task_keeps(holding: HttpHand, client: Client) -> None:
    """As with a worker of ours: 64 bytes of a progress message, 2 KB of a line, 64 KB of an error."""
    holding.say("progress", fraction=0, message="m" * 1000)
    holding.say("log", lines=["l" * 10_000])
    assert 64 == len(client.get(holding.task["id"]).message or "")
    holding.say("fail", error="e" * 100_000)
    assert 64 * 1024 >= len(client.get(holding.task["id"]).error or "") > 60_000


# Many beats at once


@pytest.fixture
def many(far: HttpHand, client: Client) -> Callable[[int], list[dict[str, Any]]]:
    """Let the worker hold so many tasks."""

    def claim(number: int) -> list[dict[str, Any]]:
        for _ in range(number):
            submitted(client)
        return [far.claim().json or {} for _ in range(number)]

    return claim


def beats(tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the body of a batch."""
    return {"worker": "far", "tasks": [{name: task[name] for name in ("id", "attempt", "token")} for task in tasks]}


def test_each_beat_of_a_batch_has_its_own_answer(
    far: HttpHand, client: Client, redis: Redis, many: Callable[[int], list[dict[str, Any]]]
) -> None:
    """A stale, a missing and a damaged one hurt no other, and are told apart."""
    tasks = many(6)
    keys = client.store.keys
    client.cancel(tasks[1]["id"])
    client.pause(tasks[2]["id"])
    tasks[3]["token"] = "f" * 16
    redis.hset(keys.task(tasks[4]["id"]), "attempt", "many")
    tasks.append({"id": "none", "attempt": 1, "token": TOKEN})
    for task in tasks[:3]:
        redis.pexpire(keys.heartbeat(task["id"]), 5000)
    answer = far.web.post("/api/heartbeats", json=beats(tasks))
    assert [
        ("ok", "PROCESSING", "continue"), ("ok", "CANCELLING", "cancel"), ("ok", "PAUSING", "pause"),
        ("stale", "PROCESSING", "stop"), ("damaged", None, "continue"), ("ok", "PROCESSING", "continue"),
        ("missing", None, "stop"),
    ] == [(one["outcome"], one["state"], one["action"]) for one in (answer.json or {})["tasks"]]  # fmt: skip
    assert all(redis.pttl(keys.heartbeat(task["id"])) > 5000 for task in tasks[:3])


# Types


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def test_a_type_is_published_over_http(web: FlaskClient, client: Client) -> None:
    """Its params are checked at a submit, its terms hold, and it goes to its queue."""
    body = {"queue": "far", "schema": SCHEMA, "description": "doubles", "timeout": 5, "max_retries": 0}
    answer = web.put("/api/types/far.double", json=body)
    assert 200 == answer.status_code
    assert answer.json in (web.get("/api/types").json or {})["types"]
    assert 422 == web.post("/api/tasks", json={"type": "far.double", "params": {}}).status_code
    accepted = web.post("/api/tasks", json={"type": "far.double", "params": {"n": 1}})
    task = client.get((accepted.json or {})["id"])
    assert ("far", 5000, 0, 3) == (task.queue, task.policy.timeout, task.policy.max_retries, task.policy.max_losses)
    assert 200 == web.put("/api/types/far.double", json=body | {"schema": {}}).status_code


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, "/schema"),
        ({"schema": {"type": "objekt"}}, "/schema/type"),
        ({"schema": {"$ref": "http://127.0.0.1/x"}}, "/schema/$ref"),
        ({"schema": {}, "queue": "a b"}, "/queue"),
        ({"schema": {}, "timeout": 0}, "/timeout"),
        ({"schema": {}, "max_retries": 1.5}, "/max_retries"),
        ({"schema": {}, "timeout": 5, "stall_timeout": 5}, ""),
        ({"schema": {}, "cron": "* * * * *"}, "/cron"),
    ],
)
def test_a_type_that_cannot_be_used_is_not_published(
    web: FlaskClient, client: Client, body: dict[str, Any], place: str
) -> None:
    """422 by field, and nothing is stored."""
    answer = web.put("/api/types/far", json=body)
    assert (422, "invalid-body") == kind_of(answer)
    assert place == (answer.json or {})["errors"][0]["pointer"]
    assert "far" not in client.types()
    assert 404 == web.put("/api/types/a%20b", json={"schema": {}}).status_code


def test_a_worker_over_http_cannot_show_what_a_type_keeps_secret(web: FlaskClient, client: Client) -> None:
    """Clients go on to send the secret: a schema that does not keep it is refused, one that does is taken."""
    secret = {"type": "object", "properties": {"api_key": {"type": "string", "writeOnly": True}}}
    assert 200 == web.put("/api/types/kept", json={"queue": "work", "schema": secret}).status_code
    for schema in ({}, {"properties": {"api_key": {}}}, {"properties": {"other": {"writeOnly": True}}}):
        answer = web.put("/api/types/kept", json={"queue": "far", "schema": schema})
        assert (422, "invalid-body") == kind_of(answer)
        assert "api_key" in answer.text
    assert "work" == client.types()["kept"].queue
    assert 200 == web.put("/api/types/kept", json={"queue": "far", "schema": secret}).status_code
    accepted = web.post("/api/tasks", json={"type": "kept", "params": {"api_key": "s3cret", "apy_kei": "s3cret"}})
    assert 202 == accepted.status_code
    assert "s3cret" not in web.get(f"/api/tasks/{(accepted.json or {})['id']}").text


def test_wrong_params_in_great_number_are_answered_shortly(web: FlaskClient) -> None:
    """The first faults, that there are more, and nothing of the length of the body."""
    schema = {"properties": {"xs": {"items": {"type": "integer"}}}}
    assert 200 == web.put("/api/types/many", json={"queue": "far", "schema": schema}).status_code
    answer = web.post("/api/tasks", json={"type": "many", "params": {"xs": [""] * 160_000}})
    assert (422, "invalid-params") == kind_of(answer)
    assert len(answer.data) < 20_000
    unknown = web.post("/api/tasks", json={"type": "many", **{f"n{number}": 1 for number in range(100_000)}})
    assert (422, "invalid-body") == kind_of(unknown)
    assert "and more" in (unknown.json or {})["detail"]

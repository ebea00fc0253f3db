"""How often Redis is asked for a worker over HTTP: a pipeline is one round trip, whatever is in it."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from flask.testing import FlaskClient
from ghostless.benchmarks.observed import counted_trips
from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from ghostless.web.work import routes
from redis import Redis
from web_tools import Hand, submitted

NUMBER = 500
WORKER = "far"
CLAIM = {"worker": WORKER, "types": ["work"]}

Body = dict[str, Any]


def claimed(web: FlaskClient, client: Client) -> Body:
    """Return a task that the worker over HTTP has started."""
    submitted(client)
    answer = web.post("/api/queues/work/claim", json=CLAIM)
    assert 200 == answer.status_code
    return answer.json or {}


def who(task: Body) -> Body:
    """Return what shows that an attempt writes."""
    return {name: task[name] for name in ("worker", "attempt", "token")}


def beats(*tasks: Body) -> Body:
    """Return the body of a batch of beats."""
    return {"worker": WORKER, "tasks": [{name: task[name] for name in ("id", "attempt", "token")} for task in tasks]}


def forget_notes(web: FlaskClient) -> None:
    """Let the next note of each worker be due."""
    web.application.extensions["ghostless"].workers._told.clear()


TABLE: dict[str, tuple[str, str, Callable[[Body], Body], int, int]] = {
    "claim": ("POST", "/api/queues/work/claim", lambda _: CLAIM, 1, 2),
    "heartbeat": ("PUT", "/api/tasks/{id}/heartbeat", who, 1, 2),
    "heartbeats": ("POST", "/api/heartbeats", beats, 1, 1),
    "progress": ("POST", "/api/tasks/{id}/progress", lambda task: who(task) | {"fraction": 0.5}, 1, 2),
    "checkpoint": ("POST", "/api/tasks/{id}/checkpoint", lambda task: who(task) | {"value": 1}, 1, 2),
    "log": ("POST", "/api/tasks/{id}/log", lambda task: who(task) | {"lines": ["x"]}, 1, 2),
    "complete": ("POST", "/api/tasks/{id}/complete", lambda task: who(task) | {"result": 1}, 1, 1),
    "fail": ("POST", "/api/tasks/{id}/fail", lambda task: who(task) | {"error": "it broke"}, 1, 1),
    "suspend": ("POST", "/api/tasks/{id}/suspend", lambda task: who(task) | {"reason": "shutdown"}, 1, 1),
    "stopped": ("POST", "/api/tasks/{id}/stopped", who, 1, 1),
}
"""By the name of the route: its method, path and body, its round trips, and those that it takes once a beat."""


@pytest.mark.parametrize("name", TABLE)
def test_what_a_worker_does_is_one_round_trip(web: FlaskClient, client: Client, name: str) -> None:
    """And one more at most, once a beat, by which the worker is noted."""
    method, path, body, *wanted = TABLE[name]
    found: list[int] = []
    for is_due in (False, False, True):  # Redis does not know the script at the first time
        task = claimed(web, client)
        web.put(f"/api/tasks/{task['id']}/heartbeat", json=who(task))
        if name == "claim":
            submitted(client)
        elif name == "stopped":
            client.cancel(task["id"])
        if is_due:
            forget_notes(web)
        with counted_trips() as trips:
            answer = web.open(path.format(id=task["id"]), method=method, json=body(task))
        assert 200 == answer.status_code, answer.text
        found.append(trips.number)
    assert wanted == found[1:]


def test_no_route_of_workers_is_missing_above(web: FlaskClient) -> None:
    """A new one says what it costs."""
    prefix = f"{routes.name}."
    assert TABLE.keys() == {name.removeprefix(prefix) for name in web.application.view_functions if prefix in name}


def test_five_hundred_beats_are_one_round_trip(
    web: FlaskClient, client: Client, store: Store, redis: Redis, hand: Hand
) -> None:
    """Of as many tasks, each of whose leases is renewed; the note of their worker, which is due, goes with them."""
    claimed(web, client)
    for _ in range(NUMBER):
        submitted(client)
    attempts = [hand.start().held for _ in range(NUMBER)]
    tasks = [asdict(held) | {"id": held.task_id} for held in attempts]
    leases = [store.keys.heartbeat(held.task_id) for held in attempts]
    with redis.pipeline() as pipeline:
        for lease in leases:
            pipeline.pexpire(lease, 5000)
        pipeline.execute()
    forget_notes(web)
    with counted_trips() as trips:
        answer = web.post("/api/heartbeats", json=beats(*tasks))
    assert 1 == trips.number
    told = [(beat["id"], beat["outcome"], beat["state"]) for beat in (answer.json or {})["tasks"]]
    assert [(held.task_id, "ok", "PROCESSING") for held in attempts] == told
    with redis.pipeline() as pipeline:
        for lease in leases:
            pipeline.pttl(lease)
        assert all(left > 5000 for left in pipeline.execute())
    assert ["busy"] == [member.state for member in client.workers()]
    assert 422 == web.post("/api/heartbeats", json=beats(*tasks, tasks[0])).status_code


def test_scripts_that_redis_forgot_cost_no_round_trip(web: FlaskClient, client: Client, redis: Redis) -> None:
    """Beats and the note bring theirs along."""
    task = claimed(web, client)
    forget_notes(web)
    redis.script_flush("SYNC")
    with counted_trips() as trips:
        assert "ok" == (web.post("/api/heartbeats", json=beats(task)).json or {})["tasks"][0]["outcome"]
    assert 1 == trips.number


def test_what_cannot_be_noted_keeps_no_lease_from_being_renewed(
    web: FlaskClient, client: Client, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says that the worker is not listed for now."""
    task = claimed(web, client)
    forget_notes(web)
    redis.delete(client.store.keys.http_workers)
    redis.set(client.store.keys.http_workers, "no index")
    assert "ok" == (web.post("/api/heartbeats", json=beats(task)).json or {})["tasks"][0]["outcome"]
    assert "the worker far is not listed for now" in caplog.text

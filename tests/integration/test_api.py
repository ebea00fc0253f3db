"""The HTTP API on a real Redis: submit, follow, act, and what the whole looks like."""

import json
from datetime import UTC, datetime
from typing import Any

from flask.testing import FlaskClient
from ghostless.jobs.client import Client
from ghostless.jobs.reads import Reads
from ghostless.jobs.record import GpuMemory, WorkerRecord
from ghostless.jobs.store import Claim, NothingToClaim, Store
from ghostless.statemachine import Event
from redis import Redis
from web_tools import Hand, publish, submitted
from werkzeug.test import TestResponse


def problem(answer: TestResponse, status: int) -> dict[str, Any]:
    """Check that an answer is a problem of this status, and return it."""
    assert (status, "application/problem+json") == (answer.status_code, answer.content_type), answer.text
    document = json.loads(answer.data)
    assert status == document["status"]
    return document


# Submitting


def test_submit_answers_with_the_place_of_the_task(web: FlaskClient, client: Client) -> None:
    """202, and Location leads to the task, which holds every field that was asked for."""
    wish = {
        "type": "work", "params": {"n": 7}, "id": "my-task", "queue": "other", "delay": 60.5, "timeout": 9,
        "max_retries": 1, "owner": "ann", "metadata": {"page": [1, None]},
    }  # fmt: skip
    answer = web.post("/api/tasks", json=wish)
    assert 202 == answer.status_code
    assert {"id": "my-task", "state": "SCHEDULED", "created": True} == answer.json
    shown = web.get(answer.headers["Location"]).json
    task = client.get("my-task")
    assert task.to_dict() | {"cursor": shown["cursor"]} == shown
    assert ("work", {"n": 7}, "other", "ann", {"page": [1, None]}) == (
        task.type, task.params, task.queue, task.owner, task.metadata,
    )  # fmt: skip
    assert (9000, 1) == (task.policy.timeout, task.policy.max_retries)
    assert 60_500 == (task.due_at or 0) - task.submitted_at


def test_submit_twice_is_one_task(web: FlaskClient, reads: Reads) -> None:
    """The same id with the same params answers 200 with the task; with other params 409, and nothing is stored."""
    wish = {"type": "work", "params": {"n": 1}, "id": "a"}
    assert 202 == web.post("/api/tasks", json=wish).status_code
    again = web.post("/api/tasks", json=wish)
    assert (200, False) == (again.status_code, again.json["created"])
    assert "a" == problem(web.post("/api/tasks", json=wish | {"params": {"n": 2}}), 409)["task"]
    assert 1 == reads.ledger()["submitted"]


def test_run_at_is_kept_in_both_forms(web: FlaskClient, client: Client) -> None:
    """ISO 8601 with a zone and seconds since 1970 mean the same moment."""
    soon = client.store.redis.time()[0] + 3600
    web.post("/api/tasks", json={"type": "work", "id": "a", "run_at": soon})
    iso = datetime.fromtimestamp(soon, UTC).isoformat()
    assert 202 == web.post("/api/tasks", json={"type": "work", "id": "b", "run_at": iso}).status_code
    assert soon * 1000 == client.get("a").due_at == client.get("b").due_at


def test_a_type_that_nobody_serves_is_refused_with_a_hint(web: FlaskClient, reads: Reads) -> None:
    """A typo is told at submit, not found out by waiting."""
    assert ["work"] == problem(web.post("/api/tasks", json={"type": "wrok"}), 422)["near"]
    problem(web.post("/api/tasks", json={"type": "os.system", "params": {"command": "true"}}), 422)
    assert 0 == reads.ledger()["submitted"]


# Following


def test_a_task_is_not_sent_again_to_who_has_it(web: FlaskClient, client: Client, hand: Hand) -> None:
    """The ETag stands for what is shown: 304 until a move or progress changes it."""
    task_id = submitted(client)
    etag = web.get(f"/api/tasks/{task_id}").headers["ETag"]
    unchanged = web.get(f"/api/tasks/{task_id}", headers={"If-None-Match": f'"other", {etag}'})
    assert (304, b"", etag) == (unchanged.status_code, unchanged.data, unchanged.headers["ETag"])
    claimed = hand.start()
    started = web.get(f"/api/tasks/{task_id}", headers={"If-None-Match": etag})
    assert (200, "PROCESSING") == (started.status_code, started.json["state"])
    hand.store.progress(claimed.held, 0.5, "half")
    moved_on = web.get(f"/api/tasks/{task_id}", headers={"If-None-Match": started.headers["ETag"]})
    assert (200, 0.5) == (moved_on.status_code, moved_on.json["progress"])


def test_the_cursor_of_a_task_names_epoch_and_newest_move(web: FlaskClient, client: Client, reads: Reads) -> None:
    """A page goes on from the task it fetched, without a hole between the two."""
    task_id = submitted(client)
    newest = client.history(task_id)[-1].id
    assert f"{reads.epoch()}.{newest}" == web.get(f"/api/tasks/{task_id}").json["cursor"]
    assert f"{reads.epoch()}.{newest}" == web.get("/api/tasks").json["last_event_id"]
    assert f"{reads.epoch()}.{newest}" == web.get(f"/api/tasks/{task_id}/history").json["cursor"]


def test_history_tells_every_move(web: FlaskClient, client: Client, hand: Hand) -> None:
    """All moves, oldest first, with who and why."""
    task_id = submitted(client)
    hand.run()
    entries = web.get(f"/api/tasks/{task_id}/history").json["entries"]
    assert [("SUBMIT", None, "PENDING"), ("START", "PENDING", "PROCESSING"), ("COMPLETE", "PROCESSING", "SUCCESS")] == [
        (entry["event"], entry["from"], entry["to"]) for entry in entries
    ]
    assert ["client", "worker:hand", "worker:hand"] == [entry["actor"] for entry in entries]


def test_an_unknown_task_is_404_everywhere(web: FlaskClient) -> None:
    """Every route of a task says so, and names it."""
    for path in ("", "/history", "/events"):
        assert "nope" == problem(web.get(f"/api/tasks/nope{path}"), 404)["task"]
    for action in ("cancel", "pause", "resume", "retry"):
        assert "nope" == problem(web.post(f"/api/tasks/nope/{action}"), 404)["task"]
    assert "nope" == problem(web.get("/api/events?task=nope"), 404)["task"]


def test_a_purged_task_is_gone_and_says_when(web: FlaskClient, redis: Redis, client: Client) -> None:
    """410 tells a task whose retention ended from one that never was."""
    redis.set(client.store.keys.tombstone("old"), "SUCCESS 1700000000000")
    for path in ("", "/history", "/events"):
        assert 1700000000000 == problem(web.get(f"/api/tasks/old{path}"), 410)["purged_at"]


def test_a_damaged_record_is_told_without_its_content(web: FlaskClient, redis: Redis, client: Client) -> None:
    """500 for the task itself; the listing goes on and marks it."""
    good, bad = submitted(client), submitted(client)
    redis.hset(client.store.keys.task(bad), "policy", "s3cret")
    for path in ("", "/events"):
        assert "s3cret" not in json.dumps(problem(web.get(f"/api/tasks/{bad}{path}"), 500))
    listed = web.get("/api/tasks").json["tasks"]
    assert {bad: True, good: None} == {task["id"]: task.get("damaged") for task in listed}


# Listing


def test_pages_show_every_task_once_the_latest_first(web: FlaskClient, client: Client) -> None:
    """`next` leads from page to page; the last page has none."""
    ids = [submitted(client) for _ in range(25)]
    seen: list[Any] = []
    path = "/api/tasks?limit=10"
    while True:
        page = web.get(path).json
        seen += page["tasks"]
        if page["next"] is None:
            break
        path = f"/api/tasks?limit=10&cursor={page['next']}"
    assert sorted(ids) == sorted(task["id"] for task in seen)
    times = [task["entered_at"] for task in seen]
    assert sorted(times, reverse=True) == times


def test_filters_narrow_each_other_down(web: FlaskClient, client: Client, store: Store, hand: Hand) -> None:
    """State, type, queue and owner; a task is listed when all that is given fits."""
    publish(store, "work", "video")
    done = submitted(client, owner="ann")
    hand.run()
    waiting = submitted(client, owner="ann")
    other = submitted(client, type="video", queue="gpu")
    for query, expected in [
        ("state=SUCCESS", {done}),
        ("state=PENDING", {waiting, other}),
        ("owner=ann", {done, waiting}),
        ("owner=ann&state=PENDING", {waiting}),
        ("type=video", {other}),
        ("queue=gpu", {other}),
        ("queue=gpu&owner=ann", set()),
        ("", {done, waiting, other}),
    ]:
        assert expected == {task["id"] for task in web.get(f"/api/tasks?{query}").json["tasks"]}, query


# Acting


def test_cancel_at_once_and_by_asking(web: FlaskClient, client: Client, hand: Hand) -> None:
    """200 when it is cancelled, 202 while its worker has to confirm; asking again changes nothing."""
    running, waiting = submitted(client), submitted(client)
    hand.start()
    cancelled = web.post(f"/api/tasks/{waiting}/cancel", json={"message": "changed my mind\r\n"})
    assert (200, "CANCELLED") == (cancelled.status_code, cancelled.json["state"])
    for _ in range(2):
        asked = web.post(f"/api/tasks/{running}/cancel")
        assert (202, "CANCELLING") == (asked.status_code, asked.json["state"])
        assert "2" == asked.headers["Retry-After"]
    last = client.history(waiting)[-1]
    assert ("api", "user", "changed my mind\r\n") == (last.actor, last.reason, last.message)
    assert 3 == len(client.history(running))


def test_cancel_of_a_final_task_tells_how_it_ended(web: FlaskClient, client: Client, hand: Hand) -> None:
    """200 with the state it ended in: the truth, whatever was wished."""
    task_id = submitted(client)
    hand.run()
    answer = web.post(f"/api/tasks/{task_id}/cancel", json={})
    assert (200, "SUCCESS") == (answer.status_code, answer.json["state"])


def test_pause_and_resume(web: FlaskClient, client: Client, hand: Hand) -> None:
    """A waiting task pauses at once, a running one when its worker confirms; both come back."""
    running, waiting = submitted(client), submitted(client)
    hand.start()
    for task_id, status, state in [(waiting, 200, "PAUSED"), (running, 202, "PAUSING")]:
        answer = web.post(f"/api/tasks/{task_id}/pause")
        assert (status, state) == (answer.status_code, answer.json["state"])
    for task_id, state in [(waiting, "PENDING"), (running, "PROCESSING")]:
        answer = web.post(f"/api/tasks/{task_id}/resume")
        assert (200, state) == (answer.status_code, answer.json["state"])


def test_retry_gives_a_failed_task_another_life(web: FlaskClient, client: Client, hand: Hand) -> None:
    """Due at once; a task that did not fail is refused with the state it is in."""
    task_id, paused = submitted(client), submitted(client, queue="other")
    client.pause(paused)
    assert "PAUSED" == problem(web.post(f"/api/tasks/{paused}/retry"), 409)["state"]
    hand.run(event=Event.FAIL, retryable=False)
    answer = web.post(f"/api/tasks/{task_id}/retry")
    assert (200, "RETRY_WAITING") == (answer.status_code, answer.json["state"])
    assert "operator" == client.history(task_id)[-1].reason


def test_what_cannot_be_done_is_told_with_the_state(web: FlaskClient, client: Client, hand: Hand) -> None:
    """409, and nothing is written."""
    task_id = submitted(client)
    hand.run()
    before = len(client.history(task_id))
    for action in ("pause", "resume", "retry"):
        told = problem(web.post(f"/api/tasks/{task_id}/{action}"), 409)
        assert ("SUCCESS", task_id) == (told["state"], told["task"])
    assert before == len(client.history(task_id))


# The whole


def test_stats_count_states_queues_and_the_ledger(web: FlaskClient, client: Client, store: Store, hand: Hand) -> None:
    """One look at how the whole stands, with the watchdog's last sweep when there was one."""
    assert web.get("/api/stats").json["watchdog"] is None
    submitted(client)
    hand.run()
    submitted(client)
    store.sweep("watchdog:test")
    stats = web.get("/api/stats").json
    assert {"SUCCESS": 1, "PENDING": 1} == {state: count for state, count in stats["states"].items() if count}
    counted = {"submitted": 2, "live": 1, "final": 1, "purged": 0, "lost": 0, "missing": 0, "archived": 0}
    assert ({**counted, "stale_writes": 0}, {"work": 1}) == (stats["ledger"], stats["pending"])
    assert "watchdog:test" == stats["watchdog"]["actor"]
    assert isinstance(stats["watchdog"]["swept_at"], int)


def test_queues_tell_what_is_parked_in_them(web: FlaskClient, client: Client, store: Store) -> None:
    """By type; such a task is PENDING, and says since when it waits for a worker that serves its type."""
    task_id = submitted(client)
    store.claim(Claim.new("w", ["work"], ["another"]))
    assert [{"name": "work", "state": "running", "pending": 1, "parked": {"work": 1}}] == web.get("/api/queues").json[
        "queues"
    ]
    task = web.get(f"/api/tasks/{task_id}").json
    assert ("PENDING", True) == (task["state"], task["parked_at"] >= task["submitted_at"])


def test_queues_are_paused_and_resumed(web: FlaskClient, client: Client, store: Store, hand: Hand) -> None:
    """No task of a paused queue starts; a queue that nothing names is not made up."""
    submitted(client)
    assert {"name": "work", "state": "paused", "pending": 1, "parked": {}} == web.post("/api/queues/work/pause").json
    assert NothingToClaim("empty") == store.claim(Claim.new("w", ["work"], ["work"]))
    assert [{"name": "work", "state": "paused", "pending": 1, "parked": {}}] == web.get("/api/queues").json["queues"]
    assert "running" == web.post("/api/queues/work/resume", json={}).json["state"]
    hand.run()
    problem(web.post("/api/queues/typo/pause"), 404)
    assert {"work"} == client.reads.queues().keys()


def test_a_queue_can_be_paused_before_its_first_task(web: FlaskClient, store: Store) -> None:
    """A queue that a task type names exists."""
    publish(store, "later", queue="night")
    assert {"name": "night", "state": "paused", "pending": 0, "parked": {}} == web.post("/api/queues/night/pause").json


def test_types_show_what_a_submit_is_checked_against(web: FlaskClient) -> None:
    """Queue, policy and schema of each published type."""
    (kind,) = web.get("/api/types").json["types"]
    assert ("work", "work", "integer") == (kind["name"], kind["queue"], kind["schema"]["properties"]["n"]["type"])
    assert 1_800_000 == kind["policy"]["timeout"]


def test_workers_show_who_is_registered(web: FlaskClient, redis: Redis) -> None:
    """Name, queues, state and last sign of life; one whose record ran out is not shown."""
    redis.sadd("rq:workers", "rq:worker:w1", "rq:worker:dead")
    redis.hset(
        "rq:worker:w1", mapping={"birth": "2026-01-01T00:00:00Z", "state": "busy", "queues": "gpu,work", "pid": "7"}
    )
    (worker,) = web.get("/api/workers").json["workers"]
    assert ("w1", "busy", ["gpu", "work"], None) == (
        worker["name"], worker["state"], worker["queues"], worker["heartbeat_at"],
    )  # fmt: skip


def test_workers_tell_of_themselves(web: FlaskClient, redis: Redis) -> None:
    """What a worker of ours wrote with its last beat; one that fell silent is not busy, whatever it wrote."""
    record = WorkerRecord(version="1", beat_at=1_000, lease=15_000, task_id="t1", gpus=(GpuMemory(1, 2, "7"),))
    redis.sadd("rq:workers", "rq:worker:w1")
    redis.hset("rq:worker:w1", mapping={"state": "busy", "ghostless": record.to_json()})
    (worker,) = web.get("/api/workers").json["workers"]
    assert ("silent", 1_000, "t1") == (worker["state"], worker["heartbeat_at"], worker["record"]["task_id"])
    assert [{"used": 1, "total": 2, "device": "7"}] == worker["record"]["gpus"]
    assert worker["silent_for"] > 10**12


def test_ready_while_redis_answers(web: FlaskClient) -> None:
    """Both probes say yes."""
    assert (200, 200) == (web.get("/healthz").status_code, web.get("/readyz").status_code)

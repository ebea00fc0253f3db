"""Workers over HTTP are seen as long as they come back: listings and explanations tell the truth about them."""

import json
from collections.abc import Iterator

import pytest
from audit import audit
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.errors import WorkerNameTaken
from ghostless.jobs.fleet import SILENT, Member
from ghostless.jobs.keys import Keys
from ghostless.jobs.remote import RemoteWorkers
from ghostless.jobs.scripts import milliseconds
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from helpers import eventually, expect
from redis import BlockingConnectionPool, Redis
from web_tools import publish, submitted

CLAIM = "/api/queues/work/claim"
FAR = {"worker": "far", "types": ["work"]}


def seen(client: Client, name: str = "far") -> Member | None:
    """Return a worker as it is listed."""
    return next((worker for worker in client.workers() if worker.name == name), None)


@pytest.fixture
def quick(redis: Redis, settings: Settings) -> Client:
    """The core, with leases that are soon over."""
    return Client(Settings(redis_url=settings.redis_url, beat=0.05, lease=0.4, grace=0.1), redis)


@pytest.fixture
def quick_web(quick: Client, store: Store) -> Iterator[FlaskClient]:
    """The API with such leases."""
    publish(store)
    app = create_app(client=quick)
    yield app.test_client()
    app.extensions["ghostless"].hub.close()


def test_a_worker_over_http_is_listed_and_explained(web: FlaskClient, client: Client, redis: Redis) -> None:
    """Before its first claim nobody serves the queue; then it does, with its types, and works until it is done."""
    publish(client.store, "work", "none")
    task_id = submitted(client)
    assert "no worker listens" in client.explain(task_id).why
    client.pause_queue("work")
    web.post(CLAIM, json=FAR)
    client.resume_queue("work")
    worker = seen(client)
    assert worker is not None
    assert (True, "idle", ("work",), ("work",)) == (
        worker.over_http, worker.state, worker.queues, worker.record and worker.record.types,
    )  # fmt: skip
    [told] = (web.get("/api/workers").json or {})["workers"]
    assert ("far", None, None, None) == (told["name"], told["pid"], told["done"], told["failed"]), "nobody counts them"
    assert "the worker far starts it when its turn comes" in client.explain(task_id).next
    other = submitted(client, queue="elsewhere")
    assert "no worker listens" in client.explain(other).why
    web.post("/api/queues/elsewhere/claim", json=FAR | {"types": ["none"]})
    assert "far serves none" in client.explain(other).evidence
    assert {"work", "elsewhere"} == set((seen(client) or worker).queues)
    assert [] == audit(redis, client.store.keys, [task_id, other])


def test_a_claim_is_noted_on_one_connection(client: Client, settings: Settings, store: Store) -> None:
    """So that those who ask Redis at a time need no more connections than they are."""
    publish(store)
    pool = BlockingConnectionPool.from_url(settings.redis_url, decode_responses=True, max_connections=1, timeout=0)
    with Redis(connection_pool=pool) as single:
        RemoteWorkers(Store(single, settings)).listens("far", "work", ("work",), 0)
    assert seen(client)


def test_who_waits_longer_than_a_lease_is_no_silent_one(quick: Client) -> None:
    """It said how long it would wait; then it has its lease to come back."""
    publish(quick.store)
    workers = RemoteWorkers(quick.store)
    workers.listens("far", "work", ("work",), 30)
    workers.listens("near", "work", ("work",), 0)
    eventually(lambda: expect((seen(quick, "near") or Member).state == SILENT))
    worker = seen(quick)
    assert worker is not None
    assert ("idle", None) == (worker.state, worker.silent_for)


def test_who_does_not_come_back_is_silent_and_then_forgotten(
    quick_web: FlaskClient, quick: Client, redis: Redis
) -> None:
    """As a worker of ours is; nothing of it is left in Redis when another one comes."""
    quick_web.post(CLAIM, json=FAR)
    task_id = submitted(quick)
    eventually(lambda: expect("no worker listens" in quick.explain(task_id).why))
    eventually(lambda: expect(seen(quick) is None))
    quick_web.post("/api/queues/elsewhere/claim", json=FAR | {"worker": "other"})
    assert ["other"] == redis.zrange(quick.store.keys.http_workers, 0, -1)
    assert 0 == redis.exists(quick.store.keys.http_worker("far"))


def test_beats_keep_a_busy_worker_there(quick_web: FlaskClient, quick: Client) -> None:
    """While it works it claims nothing, and still serves its queue; alone or in a batch."""
    submitted(quick)
    task = quick_web.post(CLAIM, json=FAR).json or {}
    one = {name: task[name] for name in ("id", "attempt", "token")}
    held = {name: task[name] for name in ("worker", "attempt", "token")}
    for number in range(8):
        if number % 2:
            quick_web.put(f"/api/tasks/{task['id']}/heartbeat", json=held)
        else:
            quick_web.post("/api/heartbeats", json={"worker": "far", "tasks": [one]})
        eventually(lambda: expect((seen(quick) or Member).heartbeat_at), seconds=1)
        worker = seen(quick)
        assert worker is not None
        assert (None, ("work",)) == (worker.silent_for, worker.queues)
    assert "busy" == (seen(quick) or Member).state


def test_a_claim_of_what_redis_does_not_know_is_refused(web: FlaskClient, client: Client, redis: Redis) -> None:
    """Each time, and naming the types, so that the worker publishes them again; it is not listed until then."""
    for _ in range(2):
        refused = web.post(CLAIM, json=FAR | {"types": ["work", "other"]})
        told = refused.json or {}
        assert (409, "urn:ghostless:type-not-published") == (refused.status_code, told["type"])
        assert ["other"] == told["types"]
        assert "PUT /api/types/NAME" in told["detail"]
    assert seen(client) is None
    web.put("/api/types/other", json={"queue": "work", "schema": {}})
    assert 204 == web.post(CLAIM, json=FAR | {"types": ["work", "other"]}).status_code
    assert seen(client) is not None


def test_a_worker_is_noted_once_a_beat(web: FlaskClient, redis: Redis) -> None:
    """However often it claims; a longer wait is noted at once, since it would be silent too early otherwise."""
    redis.config_resetstat()
    for _ in range(20):
        web.post(CLAIM, json=FAR)
    web.application.extensions["ghostless"].workers.listens("far", "work", ("work",), 30)
    web.post(CLAIM, json=FAR)
    assert 2 == redis.info("commandstats")["cmdstat_zremrangebyscore"]["calls"]


def test_two_servers_note_one_worker(client: Client, store: Store, redis: Redis) -> None:
    """It claims from two queues by way of two processes, and works meanwhile: neither forgets what the other noted."""
    publish(store)
    one, other = RemoteWorkers(store), RemoteWorkers(store)
    one.listens("far", "a", ("work",), 30)
    other.listens("far", "b", ("work",), 30)
    one.beats("far")
    worker = seen(client)
    assert worker is not None
    assert ("busy", {"a", "b"}) == (worker.state, set(worker.queues))
    assert [] == audit(redis, store.keys)


def test_the_name_of_a_worker_with_a_connection_is_refused(
    web: FlaskClient, client: Client, redis: Redis, keys: Keys
) -> None:
    """Its last claim and its commands are kept under its name; one that has left gives its name away."""
    redis.hset(keys.rq_worker("near"), mapping={"birth": "2030-01-31T08:00:00Z", "state": "idle"})
    submitted(client)
    for _ in range(2):
        refused = web.post(CLAIM, json=FAR | {"worker": "near"})
        assert (409, "urn:ghostless:worker-name-taken") == (refused.status_code, (refused.json or {})["type"])
    with pytest.raises(WorkerNameTaken, match="a name of its own"):
        RemoteWorkers(client.store).listens("near", "work", ("work",), 0)
    redis.hset(keys.rq_worker("near"), "death", "2030-01-31T09:00:00Z")
    assert 200 == web.post(CLAIM, json=FAR | {"worker": "near"}).status_code


def test_a_stale_write_is_logged(web: FlaskClient, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Whose it was and of which attempt, whatever it was; again and again it is one line."""
    task_id = submitted(client)
    task = web.post(CLAIM, json=FAR).json or {}
    held = {name: task[name] for name in ("worker", "attempt")} | {"token": "0" * 16}
    one = {name: held[name] for name in ("attempt", "token")} | {"id": task_id}
    for _ in range(2):
        assert 409 == web.put(f"/api/tasks/{task_id}/heartbeat", json=held).status_code
        assert 409 == web.post(f"/api/tasks/{task_id}/complete", json=held).status_code
        many = web.post("/api/heartbeats", json={"worker": "other", "tasks": [one]}).json or {}
        assert "stale" == many["tasks"][0]["outcome"]
    lines = [record.getMessage() for record in caplog.records if "stale write" in record.getMessage()]
    assert [
        (f"worker {name} " in line, f"attempt 1 does not hold task {task_id}" in line)
        for name, line in zip(("far", "other"), lines, strict=True)
    ] == [(True, True)] * 2


@pytest.mark.parametrize(
    "damage",
    ["not json", "[]", '{"since": "x"}', '{"since": 1, "beat_at": 1, "wishes": {"work": 1, "b": {"until": {}}}}', None],
)
def test_what_is_known_of_a_worker_may_be_damaged(
    web: FlaskClient, client: Client, redis: Redis, keys: Keys, damage: str | None
) -> None:
    """It keeps nobody from his work, nor the others from being listed."""
    web.post(CLAIM, json=FAR)
    redis.delete(keys.http_worker("far"))
    if damage is None:
        redis.delete(keys.http_workers)
        redis.set(keys.http_workers, "x")
        RemoteWorkers(client.store).listens("far", "work", ("work",), 0)
    else:
        redis.set(keys.http_worker("far"), damage)
        assert seen(client) is None
        RemoteWorkers(client.store).listens("far", "work", ("work",), 0)
        assert seen(client) is not None
    submitted(client)
    assert 200 == web.post(CLAIM, json=FAR).status_code


def test_who_works_on_beyond_its_timeout_loses_the_task(quick_web: FlaskClient, quick: Client, redis: Redis) -> None:
    """A worker that beats and does not stop: the watchdog ends the attempt, as a timeout and not as a loss."""
    task_id = submitted(quick, timeout=0.1)
    mine = quick_web.post(CLAIM, json=FAR).json or {}
    assert 0.1 == mine["timeout"]
    held = {name: mine[name] for name in ("worker", "attempt", "token")}

    def told_off() -> str:
        quick.store.sweep("watchdog")
        answer = quick_web.put(f"/api/tasks/{task_id}/heartbeat", json=held)
        assert 409 == answer.status_code
        return (answer.json or {})["detail"]

    assert "its work must stop" in eventually(told_off)
    task, taken = quick.get(task_id), quick.history(task_id)[2]
    assert (1, 0) == (task.timeouts, task.losses)
    assert ("TIMEOUT", "deadline") == (taken.event, taken.reason)
    assert "worker far did not end the attempt in time" == taken.message
    assert [] == audit(redis, quick.store.keys, [task_id])


def test_workers_are_noted_at_a_full_redis(store: Store, client: Client, redis: Redis) -> None:
    """As their leases are renewed there: none of them looks dead."""
    publish(store)
    redis.config_set("maxmemory", 1)
    RemoteWorkers(store).listens("far", "work", ("work",), 0)
    RemoteWorkers(store).beats("far")
    redis.config_set("maxmemory", 0)
    assert "busy" == (seen(client) or Member).state


def test_a_record_of_an_earlier_version_is_kept_up(store: Store, client: Client, redis: Redis, keys: Keys) -> None:
    """A deploy may roll both ways: what one version wrote the other one reads, and writes on."""
    publish(store)
    now = milliseconds(redis.time())
    wish = {"until": now + 60_000, "types": ["work"]}
    earlier = {"since": 5, "beat_at": 5, "is_busy": False, "wishes": {"a": wish, "gone": wish | {"until": 5}}}
    redis.set(keys.http_worker("far"), json.dumps(earlier))
    RemoteWorkers(store).listens("far", "b", ("work",), 0)
    worker = seen(client)
    assert worker is not None
    assert (5, {"a", "b"}) == (worker.started_at, set(worker.queues))
    kept = json.loads(redis.get(keys.http_worker("far")) or "")
    assert earlier.keys() == kept.keys()
    assert wish == kept["wishes"]["a"]

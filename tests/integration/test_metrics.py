"""`GET /metrics`: the ledger, the states, the queues and the watchdog, as Prometheus reads them."""

from collections.abc import Callable
from typing import Any

import pytest
import requests
from flask.testing import FlaskClient
from ghostless.benchmarks.observed import counted_trips
from ghostless.jobs.client import Client
from ghostless.jobs.groups import BEGINNING
from ghostless.jobs.messages import Claim
from ghostless.jobs.store import Store
from ghostless.jobs.upkeep import Upkeep
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis
from scripts.seeding import submission
from web_tools import Hand, Served, opened, submitted


def numbers(web: FlaskClient) -> dict[str, float]:
    """Return every sample by its name and the value of its label."""
    answer = web.get("/metrics")
    assert (200, True) == (answer.status_code, answer.content_type.startswith("text/plain"))
    samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
    return {"/".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


def test_an_empty_database_has_its_zeros(web: FlaskClient) -> None:
    """Each state and counter is there from the beginning, so that rates and alerts work; nobody swept yet."""
    found = numbers(web)
    assert (0, 0) == (found["ghostless_tasks_submitted_total"], found["ghostless_tasks/FAILED"])
    assert (0, 0) == (found["ghostless_callback_hosts_waiting"], found["ghostless_callback_hosts_late"])
    assert "ghostless_last_sweep_age_seconds" not in found


def test_what_is_counted(web: FlaskClient, client: Client, store: Store, redis: Redis, hand: Hand) -> None:
    """The ledger adds up; the queues tell how many wait, how many of them for no worker, and since when."""
    for _ in range(3):
        submitted(client)
    hand.run()
    hand.start()
    store.claim(Claim.new("w", ["work"], ["another"]))
    gone = submitted(client)
    client.cancel(gone)
    redis.zadd(store.keys.retention, {gone: 0})
    store.purge()
    store.sweep("watchdog:test")
    Upkeep(store).patrol("watchdog:test")
    found = numbers(web)
    assert (4, 1, 0, 0) == tuple(
        found[f"ghostless_{name}"]
        for name in ("tasks_submitted_total", "tasks_purged_total", "tasks_archived_total", "stale_writes_total")
    )
    assert (1, 1, 1) == tuple(found[f"ghostless_tasks/{state}"] for state in ("PENDING", "PROCESSING", "SUCCESS"))
    assert (1, 1) == (found["ghostless_queue_pending/work"], found["ghostless_queue_parked/work"])
    assert 0 <= found["ghostless_queue_oldest_pending_seconds/work"] < 60
    assert 0 <= found["ghostless_last_sweep_age_seconds"] < 60
    assert 0 <= found["ghostless_audit_round_seconds"] < 60
    assert 0 == found["ghostless_tasks_missing"]


DAMAGES: dict[str, Callable[[Redis, str], Any]] = {
    "another type": lambda redis, name: redis.set(name, "poison"),
    "no number": lambda redis, name: redis.hset(name, "took", "soon"),
    "a digit that is none": lambda redis, name: redis.hset(name, "took", "²"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_patrol_costs_its_own_number_only(
    web: FlaskClient, client: Client, store: Store, redis: Redis, damage: str
) -> None:
    """How long the last audit took is not told then; everything else that asks for the last sweep answers."""
    task_id = submitted(client)
    store.sweep("watchdog:test")
    redis.delete(store.keys.patrol)
    DAMAGES[damage](redis, store.keys.patrol)
    found = numbers(web)
    assert "ghostless_last_sweep_age_seconds" in found
    assert "ghostless_audit_round_seconds" not in found
    assert "audit_round" not in web.get("/api/stats").get_json()["watchdog"]
    assert 200 == web.get(f"/api/tasks/{task_id}/explain").status_code
    assert client.reads.is_watched()


def test_a_task_that_vanished_is_missing(web: FlaskClient, client: Client, redis: Redis) -> None:
    """Somebody deleted it behind our back: that is a number to alert on."""
    task_id = submitted(client)
    redis.zrem(client.store.keys.state("PENDING"), task_id)
    assert 1 == numbers(web)["ghostless_tasks_missing"]


def test_the_cost_does_not_follow_the_queues(web: FlaskClient, store: Store, redis: Redis) -> None:
    """Twenty queues, each with a parked type, take as many round trips as one."""
    numbers_of_trips: list[int] = []
    for number in range(20):
        store.submit(submission(f"t{number}", queue=f"q{number}"))
        store.claim(Claim.new("w", [f"q{number}"], ["another"]))
        with counted_trips() as trips:
            found = numbers(web)
        numbers_of_trips.append(trips.number)
    assert 1 == found["ghostless_queue_parked/q19"]
    assert found["ghostless_queue_oldest_pending_seconds/q19"] < 60
    assert numbers_of_trips[0] > 0
    assert numbers_of_trips[1] == numbers_of_trips[-1]


def test_workers_and_listeners_are_counted(web: FlaskClient, client: Client, redis: Redis) -> None:
    """How many workers do what; how far each group of listeners is."""
    for name, state in (("w1", "busy"), ("w2", "idle"), ("w3", "idle")):
        redis.sadd("rq:workers", f"rq:worker:{name}")
        redis.hset(f"rq:worker:{name}", mapping={"state": state, "queues": "work"})
    submitted(client)
    client.listeners.create("mail", BEGINNING)
    found = numbers(web)
    assert (1, 2) == (found["ghostless_workers/busy"], found["ghostless_workers/idle"])
    assert (0, 0) == (found["ghostless_listener_parked/mail"], found["ghostless_listener_missed/mail"])
    assert 0 <= found["ghostless_listener_behind_seconds/mail"] < 60


def test_the_process_tells_of_its_requests_and_listeners(served: Served, client: Client) -> None:
    """Requests by status, errors and streams included; who listens now; when the hub last came round."""

    def asked() -> dict[str, float]:
        text = requests.get(f"{served.url}/metrics", timeout=5).text
        families = text_string_to_metric_families(text)
        return {"/".join([s.name, *s.labels.values()]): s.value for family in families for s in family.samples}

    assert "ghostless_hub_age_seconds" not in asked()
    task_id = submitted(client)
    assert 404 == requests.get(f"{served.url}/api/tasks/nope", timeout=5).status_code
    with opened(f"{served.url}/api/tasks/{task_id}/events"):
        found = asked()
        assert (1, 1) == (found["ghostless_http_listeners"], found["ghostless_http_requests_total/404"])
        assert 2 == found["ghostless_http_requests_total/200"]
        assert 0 <= found["ghostless_hub_age_seconds"] < 60

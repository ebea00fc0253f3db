"""`explain` over real records: what the client gathers, and how the command line and the API tell it."""

import json

import pytest
from ghostless.jobs.circumstances import RECENT, circumstances
from ghostless.jobs.client import Client
from ghostless.jobs.errors import TaskNotFound
from ghostless.jobs.store import Store
from ghostless.statemachine import Event
from redis import Redis
from web_tools import Hand, publish


@pytest.fixture(autouse=True)
def published(store: Store) -> None:
    """A type to submit."""
    publish(store)


def test_the_place_is_that_in_the_list(client: Client, hand: Hand, store: Store) -> None:
    """What a stopping worker handed back is at the head of its queue, though it came back last."""
    ids = [client.submit("work").task_id for _ in range(3)]
    list_of_tickets = store.keys.rq_queue("work")
    store.redis.lpush(list_of_tickets, store.redis.rpop(list_of_tickets))
    found = [circumstances(client.reads, task_id) for task_id in ids]
    assert [2, 3, 1] == [around.position for around in found]


def test_place_and_estimate(client: Client, hand: Hand) -> None:
    """A waiting task is told its place; how long tasks took lately is only said of those of its queue."""
    client.submit("work")
    hand.run()
    ids = [client.submit("work").task_id for _ in range(3)]
    found = [circumstances(client.reads, task_id) for task_id in ids]
    assert [(1, 3), (2, 3), (3, 3)] == sorted((around.position, around.pending) for around in found)
    assert all(around.usual is not None for around in found)
    assert "no worker listens on its queue work" == client.explain(ids[1]).why


def test_an_estimate_goes_by_its_own_type(client: Client, hand: Hand, store: Store) -> None:
    """However many tasks of other types ended since."""
    publish(store, "other")
    client.submit("work")
    hand.run()
    for _ in range(RECENT):
        client.submit("other")
        hand.run()
    assert circumstances(client.reads, client.submit("work").task_id).usual is not None
    assert circumstances(client.reads, client.submit("other", queue="elsewhere").task_id).usual is None


def test_a_running_task(client: Client, hand: Hand, redis: Redis) -> None:
    """The lease is looked at, not only the state: when it is gone, that is what is told."""
    task_id = client.submit("work").task_id
    hand.start()
    assert "the worker hand runs attempt 1" == client.explain(task_id).why
    redis.delete(client.store.keys.heartbeat(task_id))
    assert "has gone silent" in client.explain(task_id).why
    client.store.sweep("watchdog:test")
    told = client.explain(task_id)
    assert "the watchdog takes it away" in told.next
    assert told.next_at is not None


def test_a_watchdog_that_stopped(client: Client, hand: Hand, redis: Redis) -> None:
    """A trace of one that swept too long ago, or that cannot be read, promises nothing."""
    task_id, keys = client.submit("work").task_id, client.store.keys
    hand.start()
    redis.delete(keys.heartbeat(task_id))
    client.store.sweep("watchdog:test")
    for trace in ({"late_from": 1}, {"late_from": "soon", "swept_at": "yesterday", "judge_from": "inf"}):
        redis.hset(keys.watchdog, mapping=trace)
        told = client.explain(task_id)
        assert "nothing until a watchdog runs" in told.next
        assert told.next_at is None


def test_a_retry_names_what_failed(client: Client, hand: Hand) -> None:
    """The cause of the last attempt is the reason of the wait."""
    task_id = client.submit("work").task_id
    hand.run(event=Event.FAIL, message="ValueError: no model")
    told = client.explain(task_id)
    assert "attempt 1 ended: ValueError: no model" == told.why
    assert client.get(task_id).due_at == told.next_at
    assert "failures so far: 1; retried at most 3 times" in told.evidence


def test_a_full_redis(client: Client, hand: Hand, redis: Redis) -> None:
    """That nothing moves because Redis is full is told of every task that should move."""
    task_id = client.submit("work").task_id
    redis.config_set("maxmemory", 1)
    try:
        assert "its memory limit" in client.explain(task_id).next
    finally:
        redis.config_set("maxmemory", 0)


def test_an_unknown_task(client: Client) -> None:
    """What is not there is said to be not there, never done."""
    with pytest.raises(TaskNotFound):
        client.explain("nobody")


def test_json_form(client: Client, hand: Hand) -> None:
    """The answer is JSON as it stands."""
    task_id = client.submit("work").task_id
    told = json.loads(json.dumps(client.explain(task_id).to_dict()))
    assert {"id", "state", "since", "why", "next", "next_at", "evidence", "actions"} == set(told)
    assert task_id == told["id"]

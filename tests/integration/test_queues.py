"""Queues and workers as the core tells them."""

import pytest
from ghostless.jobs.client import Client
from ghostless.jobs.errors import CorruptRecord, QueueNotFound
from redis import Redis


def test_queues_that_anything_names_are_known(client: Client, redis: Redis) -> None:
    """A queue is known as soon as a task, a task type or a worker names it; others are refused, with near names."""
    client.store.publish_types(
        {"a.b": {"queue": "media", "policy": "1,1,1,1,1,1,1", "schema": {"type": "object"}, "description": ""}}
    )
    redis.sadd("rq:workers", "rq:worker:w1")
    redis.hset("rq:worker:w1", mapping={"birth": "2026-01-01T00:00:00Z", "queues": "gpu,cpu"})
    assert client.queues() == {"cpu": "running", "gpu": "running", "media": "running"}
    with pytest.raises(QueueNotFound) as caught:
        client.pause_queue("medai")
    assert caught.value.near == ("media",)
    assert redis.exists(client.store.keys.queues) == 0
    client.pause_queue("gpu")
    assert client.queues()["gpu"] == "paused"
    client.resume_queue("gpu")
    assert client.queues()["gpu"] == "running"


def test_a_hint_that_cannot_be_left_keeps_no_queue_paused(client: Client, redis: Redis) -> None:
    """The queue is resumed, and nothing is raised: a worker finds its tasks with its next poll."""
    client.store.pause_queue("gpu")
    redis.set(client.store.keys.wake("gpu"), "poison")
    client.resume_queue("gpu")
    assert client.queues()["gpu"] == "running"


def test_a_queue_that_cannot_be_resumed_is_told(client: Client, redis: Redis) -> None:
    """What stands where the states of the queues should be is an error, and it stays."""
    redis.set(client.store.keys.queues, "poison")
    with pytest.raises(CorruptRecord):
        client.store.resume_queue("gpu")
    assert redis.get(client.store.keys.queues) == "poison"

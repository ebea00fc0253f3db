"""The last events of a worker: kept until Redis has them, with Redis' time, capped."""

import pytest
from ghostless.jobs.diary import KEPT_FOR, MOST, Diary, worker_events
from ghostless.jobs.errors import GhostlessError
from ghostless.jobs.keys import Keys
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import ConnectionError


def test_events_are_read_newest_first(backend: Redis, keys: Keys) -> None:
    """With kind, text and the time at which they happened, by Redis' clock; the key has a TTL."""
    diary = Diary(backend, keys, "w1")
    diary.note("horse started", "process 12")
    diary.send()
    diary.note("horse died", "process 12: exit code 3")
    diary.note("horse started", "process 13")
    diary.send()
    found = worker_events(backend, keys, "w1")
    assert ["process 13", "process 12: exit code 3", "process 12"] == [event.text for event in found]
    assert ["horse started", "horse died", "horse started"] == [event.kind for event in found]
    seconds, _ = backend.time()
    assert all(abs(seconds * 1000 - event.at) < 60_000 for event in found)
    assert [event.at for event in found] == sorted((event.at for event in found), reverse=True)
    assert 0 < backend.ttl(keys.events("w1")) <= KEPT_FOR
    assert [] == worker_events(backend, keys, "w2")


def test_events_are_capped(backend: Redis, keys: Keys) -> None:
    """However many there are, the last hundred stay."""
    diary = Diary(backend, keys, "w1")
    for start in (0, MOST):
        for number in range(start, start + MOST + 5):
            diary.note("horse started", str(number))
        diary.send()
    found = worker_events(backend, keys, "w1")
    assert [str(number) for number in range(2 * MOST + 4, MOST + 4, -1)] == [event.text for event in found]


def test_events_wait_for_redis(redis: Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be sent is sent later, in its order, also when it had been stored and the reply was lost."""
    diary = Diary(redis, keys, "w1")
    diary.note("horse started", "process 12")
    diary.note("horse died", "process 12")

    execute = Pipeline.execute

    def execute_and_lose_the_reply(self: Pipeline, *args: object) -> None:
        execute(self, *args)
        raise ConnectionError("lost")

    monkeypatch.setattr(Pipeline, "execute", execute_and_lose_the_reply)
    with pytest.raises(GhostlessError):
        diary.send()
    monkeypatch.undo()
    diary.note("horse started", "process 13")
    diary.send()
    found = worker_events(redis, keys, "w1")
    assert ["process 13", "process 12", "process 12"] == [event.text for event in found]
    assert ["horse started", "horse died", "horse started"] == [event.kind for event in found]

"""What a worker tells of itself: kept small, read whatever stands there."""

import json

import pytest
from ghostless.jobs.fleet import Member, members, serving
from ghostless.jobs.keys import WORKER_RECORD
from ghostless.jobs.record import LONGEST_REASON, MOST_TYPES, GpuMemory, WorkerRecord
from redis import Redis

FULL = WorkerRecord(
    version="0.1.0",
    beat_at=1_000_000,
    lease=15_000,
    types=("image.generate",),
    set_aside={"video.cut": "its setup failed 3 times"},
    task_id="t1",
    attempt=2,
    since=990_000,
    stopping="no progress for 60 s",
    kill_at=1_060_000,
    lease_age=1_200,
    horse_pid=4711,
    horse_rss=2**31,
    gpus=(GpuMemory(10**9, 24 * 10**9),),
    health="10.0.0.5:9000",
)


def test_what_is_written_is_read() -> None:
    """Every field survives."""
    assert FULL == WorkerRecord.from_json(FULL.to_json())


def test_a_record_is_bounded() -> None:
    """A worker of very many types, or with a whole traceback as the reason, fills no Redis."""
    many = {f"type{number:060}": "x" * 100_000 for number in range(10_000)}
    text = WorkerRecord(types=tuple(many), set_aside=many).to_json()
    assert len(text) < MOST_TYPES * (2 * 80 + LONGEST_REASON)
    assert MOST_TYPES == len(json.loads(text)["types"])


@pytest.mark.parametrize(
    "text", [None, "", "null", "[]", "{", "[" * 10_000, '"text"', '{"types": 7}', '{"gpus": [{}]}']
)
def test_what_is_no_record_is_none(text: str | None) -> None:
    """Plain rq workers have none, and anybody may write to the hash."""
    assert WorkerRecord.from_json(text) is None


def test_a_record_of_another_version_is_read() -> None:
    """What it lacks has its default, what is not known here is passed over."""
    assert WorkerRecord(task_id="t1") == WorkerRecord.from_json('{"task_id": "t1", "planet": "Mars"}')


@pytest.mark.parametrize(("age", "state", "silent_for"), [(15_000, "busy", None), (20_000, "silent", 20_000)])
def test_a_worker_whose_record_is_older_than_its_lease_is_silent(age: int, state: str, silent_for: int | None) -> None:
    """Whatever it last said of itself; and it serves nobody."""
    stored = {"state": "busy", "queues": "gpu", WORKER_RECORD: FULL.to_json()}
    member = Member.read("w1", stored, now=1_000_000 + age)
    assert (state, silent_for) == (member.state, member.silent_for)
    assert ([] if silent_for else [member]) == serving("gpu", [member])


def test_a_stock_worker_is_never_silent(redis: Redis) -> None:
    """rq's own worker beats seldom, and tells no more than its hash."""
    redis.sadd("rq:workers", "rq:worker:stock")
    redis.hset("rq:worker:stock", mapping={"state": "busy", "last_heartbeat": "2020-01-01T00:00:00.000000Z"})
    (member,) = members(redis)
    assert ("busy", None, None) == (member.state, member.silent_for, member.record)

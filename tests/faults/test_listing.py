"""Many tasks, some of them damaged: every look at them answers, and no command of it holds Redis up (B58, B64).

How long each look takes beside 200,000 tasks, `python -m ghostless.benchmarks.looks` prints.
"""

import re
from collections.abc import Iterator

import pytest
from audit import audit
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Policy, State
from redis import Redis
from scripts.seeding import PLACE, QUEUE, TYPE, Scene, scene, submission

DAMAGED, FINAL, AT_ONCE = 50, 500, 1_000
SLOW = 20_000
"""Microseconds that no single command may take."""

PLACES = (
    *("/api/stats", "/api/queues", "/api/types", "/api/workers", "/api/schedules", "/api/tasks?limit=500"),
    *("/api/tasks?state=PENDING", f"/api/tasks?queue={QUEUE}", f"/api/tasks?type={TYPE}", "/api/tasks?owner=nobody"),
    *("/api/tasks/t2500", "/api/tasks/t2500/explain", "/api/tasks/t2500/history"),
)
FORBIDDEN = {"keys", "sort", "hvals", "hkeys", "zrange", "lrange", "scan"}
"""Commands by which a look at a page would become a look at everything. Sets hold types, workers or dependencies."""


COPY = """
local function copy(kind, from, to)
  local all = redis.call("HGETALL", kind .. from)
  redis.call("HSET", kind .. to, unpack(all))
end
local task, params, job, history = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local entry = redis.call("XRANGE", history, "-", "+", "COUNT", 1)[1][2]
local entered_at = redis.call("HGET", task .. "t0", "entered_at")
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local id = "t" .. number
  copy(task, "t0", id)
  copy(job, "t0", id)
  redis.call("COPY", params .. "t0", params .. id)
  entry[2] = id
  redis.call("HSET", task .. id, "h1", redis.call("XADD", history, "*", unpack(entry)))
  redis.call("RPUSH", KEYS[5], id)
  redis.call("ZADD", KEYS[6], entered_at, id)
  redis.call("ZADD", KEYS[7], entered_at, id)
  redis.call("ZADD", KEYS[8], redis.call("ZSCORE", KEYS[8], "t0"), id)
  redis.call("HINCRBY", KEYS[9], "submitted", 1)
end
"""
"""Makes copies of the first task, since so many submits would take long."""


@pytest.fixture
def number() -> int:
    """How many tasks there are."""
    return 20_000


@pytest.fixture
def crowd(redis: Redis, number: int) -> Iterator[Scene]:
    """Many tasks that wait in one queue."""
    stage = scene(redis)
    stage.store.submit(submission("t0", Policy(retention=1), owner=""))
    keys = stage.keys
    of_each = (keys.task(""), keys.params(""), keys.rq_job(""))
    indices = (keys.state(State.PENDING), keys.pending(QUEUE), keys.listed(PLACE))
    of_all = (keys.history, keys.rq_queue(QUEUE), *indices, keys.ledger)
    for first in range(1, number, AT_ONCE):
        redis.eval(COPY, 9, *of_each, *of_all, first, min(first + AT_ONCE, number) - 1)
    redis.config_set("slowlog-max-len", 10_000)
    redis.config_set("slowlog-log-slower-than", SLOW)
    yield stage
    redis.config_set("slowlog-log-slower-than", 10_000)
    redis.config_set("slowlog-max-len", 128)


@pytest.fixture
def web(crowd: Scene, settings: Settings) -> FlaskClient:
    """The API, asked without sockets; fifty of the tasks have no record, and fifty params that are no JSON."""
    names = [f"t{number}" for number in range(2 * DAMAGED)]
    crowd.redis.delete(*(crowd.keys.task(task_id) for task_id in names[:DAMAGED]))
    crowd.redis.mset({crowd.keys.params(task_id): b"\xff{" for task_id in names[DAMAGED:]})
    return create_app(client=Client(settings, crowd.redis)).test_client()


def test_every_look_is_short(crowd: Scene, web: FlaskClient) -> None:
    """It answers 200, with commands of bounded cost; on a busy machine the best of three tries counts."""
    crowd.redis.config_resetstat()
    for place in PLACES:
        assert any(how_slow(crowd.redis, web, place) == 0 for _ in range(3)), place
    used = {name.removeprefix("cmdstat_") for name in crowd.redis.info("commandstats")}
    assert used & FORBIDDEN == set()
    assert_only_the_damage(crowd)


def how_slow(redis: Redis, web: FlaskClient, place: str) -> int:
    """Look once; return how many commands took too long."""
    redis.slowlog_reset()
    assert web.get(place).status_code == 200
    return redis.slowlog_len()


@pytest.mark.parametrize("number", [5_000])
def test_every_page_comes_and_names_what_is_damaged(web: FlaskClient, crowd: Scene, number: int) -> None:
    """From the first page to the last each task is listed once; one without a record hides no other."""
    seen: dict[str, bool] = {}
    cursor = ""
    while cursor is not None:
        page = web.get(f"/api/tasks?limit=500{cursor and f'&cursor={cursor}'}").get_json()
        seen |= {task["id"]: "damaged" in task for task in page["tasks"]}
        cursor = page["next"]
    assert len(seen) == number
    assert {f"t{index}" for index in range(DAMAGED)} == {task_id for task_id, damaged in seen.items() if damaged}
    assert web.get(f"/api/tasks/t{DAMAGED}").status_code == 500, "one task is not shown with params made up"
    assert_only_the_damage(crowd)


def assert_only_the_damage(crowd: Scene) -> None:
    """Check that no look changed anything: the audit finds the tasks without a record, and nothing else."""
    gone = {f"t{number}" for number in range(DAMAGED)}
    strange = [line for line in audit(crowd.redis, crowd.keys) if not gone & set(re.findall(r"\bt\d+\b", line))]
    assert [line for line in strange if not line.startswith(("h: ", "c: entry "))] == []


def test_cancels_sweeps_and_the_doctor_are_bounded(crowd: Scene, settings: Settings, number: int) -> None:
    """Of all tasks five hundred are cancelled, and then purged, and all are audited: no command takes long.

    On a busy machine some do all the same, but not the same ones each time; a purge cannot be made twice, and half of
    its sweeps must be quick.
    """
    redis = crowd.redis
    redis.slowlog_reset()
    for index in range(0, number, number // FINAL):
        crowd.store.cancel(f"t{index}", "tester")
    assert redis.slowlog_len() <= FINAL / 100
    watchdog, slow = Watchdog(crowd.store, "w"), []
    while redis.zcard(crowd.keys.retention) and len(slow) < FINAL:
        redis.slowlog_reset()
        watchdog.sweep_all()
        slow.append(redis.slowlog_len())
    assert len(slow) >= FINAL / 100
    assert sorted(slow)[len(slow) // 2] == 0
    assert redis.hget(crowd.keys.ledger, "purged") == str(FINAL)
    always_slow = audited_slowly(redis, settings)
    for _ in range(3):
        always_slow &= audited_slowly(redis, settings) if always_slow else set()
    assert always_slow == set()
    assert [] == audit(redis, crowd.keys, [f"t{index}" for index in range(number)])


def audited_slowly(redis: Redis, settings: Settings) -> set[str]:
    """Let the doctor find all in order; return its commands that took too long."""
    redis.slowlog_reset()
    with connect(settings, exact=True) as exact:
        assert [] == list(Doctor(Store(exact, settings)).audit())
    return {str(entry["command"]) for entry in redis.slowlog_get(10_000)}


@pytest.mark.parametrize("number", [2_000])
def test_what_is_copied_is_whole(crowd: Scene, number: int) -> None:
    """The tasks of these tests are as if they had been submitted."""
    assert [] == audit(crowd.redis, crowd.keys, [f"t{index}" for index in range(number)])

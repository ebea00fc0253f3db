"""Many tasks, some of them damaged: every look at them answers, and no command of it holds Redis up (B58, B64)."""

import re
from collections.abc import Iterator

import pytest
from audit import audit
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Policy
from redis import Redis
from scripts.seeding import QUEUE, TYPE, Scene, scene, submission

NUMBER, DAMAGED, FINAL, AT_ONCE = 5_000, 50, 500, 1_000
SLOW = 20_000
"""Microseconds that no single command may take."""

PLACES = (
    *("/api/stats", "/api/queues", "/api/types", "/api/workers", "/api/schedules", "/api/tasks?limit=500"),
    *("/api/tasks?state=PENDING", f"/api/tasks?queue={QUEUE}", f"/api/tasks?type={TYPE}", "/api/tasks?owner=nobody"),
    *("/api/tasks/t2500", "/api/tasks/t2500/explain", "/api/tasks/t2500/history"),
)
FORBIDDEN = {"keys", "sort", "hvals", "hkeys", "zrange", "lrange", "smove", "scan"}
"""Commands by which a look at a page would become a look at everything."""


@pytest.fixture
def crowd(redis: Redis) -> Iterator[Scene]:
    """Five thousand tasks."""
    stage = scene(redis)
    for first in range(0, NUMBER, AT_ONCE):
        stage.store.submit_many(
            [submission(f"t{number}", Policy(retention=1)) for number in range(first, first + AT_ONCE)]
        )
    redis.config_set("slowlog-log-slower-than", SLOW)
    yield stage
    redis.config_set("slowlog-log-slower-than", 10_000)


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
        assert min(how_slow(crowd.redis, web, place) for _ in range(3)) == 0, place
    used = {name.removeprefix("cmdstat_") for name in crowd.redis.info("commandstats")}
    assert used & FORBIDDEN == set()
    assert_only_the_damage(crowd)


def how_slow(redis: Redis, web: FlaskClient, place: str) -> int:
    """Look once; return how many commands took too long."""
    redis.slowlog_reset()
    assert web.get(place).status_code == 200
    return redis.slowlog_len()


def test_every_page_comes_and_names_what_is_damaged(crowd: Scene, web: FlaskClient) -> None:
    """From the first page to the last each task is listed once; one without a record hides no other."""
    seen: dict[str, bool] = {}
    cursor = ""
    while cursor is not None:
        page = web.get(f"/api/tasks?limit=500{cursor and f'&cursor={cursor}'}").get_json()
        seen |= {task["id"]: "damaged" in task for task in page["tasks"]}
        cursor = page["next"]
    assert len(seen) == NUMBER
    assert {f"t{number}" for number in range(DAMAGED)} == {task_id for task_id, damaged in seen.items() if damaged}
    assert web.get(f"/api/tasks/t{DAMAGED}").status_code == 500, "one task is not shown with params made up"
    assert_only_the_damage(crowd)


def assert_only_the_damage(crowd: Scene) -> None:
    """Check that no look changed anything: the audit finds the tasks without a record, and nothing else."""
    gone = {f"t{number}" for number in range(DAMAGED)}
    strange = [line for line in audit(crowd.redis, crowd.keys) if not gone & set(re.findall(r"\bt\d+\b", line))]
    assert [line for line in strange if not line.startswith(("h: ", "c: entry "))] == []


def test_sweeps_are_bounded(crowd: Scene) -> None:
    """Five hundred tasks are to be purged: no command of the watchdog takes long, whatever else there is."""
    redis = crowd.redis
    for number in range(NUMBER - FINAL, NUMBER):
        crowd.store.cancel(f"t{number}", "tester")
    watchdog, slow = Watchdog(crowd.store, "w"), []
    while redis.zcard(crowd.keys.retention) and len(slow) < FINAL:
        redis.slowlog_reset()
        watchdog.sweep_all()
        slow.append(redis.slowlog_len())
    assert len(slow) >= FINAL / 100
    assert sorted(slow)[len(slow) // 2] == 0
    assert redis.hget(crowd.keys.ledger, "purged") == str(FINAL)
    assert [] == audit(redis, crowd.keys, [f"t{number}" for number in range(NUMBER)])

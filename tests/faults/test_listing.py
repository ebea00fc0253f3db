"""Many tasks, some of them damaged: every look at them answers, as quickly as at a few, and stops nobody (B64).

In CI a look is compared with the same one beside a few tasks, which holds on any machine; at its full size it has the
time of the recipe as well. What each takes beside 200,000 tasks, `python -m ghostless.benchmarks.looks` prints.
"""

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from audit import audit
from faults.crowds import fill, nth
from faults.sizes import IS_FULL, LISTED, PATIENCE
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.settings import Settings
from helpers import heard, noting_slow_commands
from redis import Redis
from scripts.seeding import QUEUE, TYPE, Scene, scene

pytestmark = pytest.mark.timeout(PATIENCE)

FEW, DAMAGED = 2_000, 50
"""Tasks beside which a look takes as long; tasks without a record, and as many with params that are no JSON."""

SLOW = 20_000
"""Microseconds that no single command may take."""

TRIES, DEARER = 30, 4
"""Looks at most, of which the quickest counts; how many times as long as beside a few tasks it may take."""

LONGEST = 0.3 if IS_FULL else math.inf
"""Seconds that a look may take."""


@dataclass(frozen=True, eq=False)
class Place:
    """A route of the API that looks at many tasks, or at one among many."""

    path: str
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.path

    def ask(self, web: FlaskClient) -> float:
        """Return the seconds that a good answer takes."""
        begun = time.perf_counter()
        answer = web.get(self.path) if self.body is None else web.post(self.path, json=self.body, headers=self.headers)
        assert answer.status_code in ((200, 202) if self.headers else (200,)), answer.text
        return time.perf_counter() - begun


ONE = nth(500)
EVERY_TASK = {"filter": {"type": TYPE}}
PLACES = (
    *map(Place, ("/api/stats", "/api/queues", "/api/types", "/api/workers", "/api/schedules", "/metrics", "/api/bulk")),
    *map(Place, ("/api/tasks?limit=500", "/api/tasks?state=PENDING", f"/api/tasks?queue={QUEUE}")),
    *map(Place, (f"/api/tasks?type={TYPE}", "/api/tasks?type=nothing", "/api/tasks?owner=nobody")),
    *map(Place, (f"/api/tasks/{ONE}", f"/api/tasks/{ONE}/explain", f"/api/tasks/{ONE}/history")),
    *(Place(f"/api/tasks/bulk/{action}", EVERY_TASK | {"dry_run": True}) for action in ("cancel", "pause", "retry")),
    Place("/api/tasks/bulk/cancel", EVERY_TASK, {"Idempotency-Key": "once"}),
)
FORBIDDEN = re.compile(
    r"(KEYS|SORT|SORT_RO|HVALS|HKEYS|SCAN) |"
    r"(ZRANGE|ZREVRANGE|ZRANGEBYSCORE|ZREVRANGEBYSCORE|LRANGE) (?!.* LIMIT )\S+ \S+ (-|\+?inf|\(?\d{4})"
)
"""Commands by which a look at a page would become a look at everything."""

WHOLE = re.compile(r"(HGETALL|SMEMBERS) (\S+)")
FIELDS = 100
"""Members of a hash or a set that is read whole, at most."""


@pytest.fixture
def number() -> int:
    """How many tasks there are."""
    return LISTED


@pytest.fixture
def crowd(redis: Redis, number: int) -> Iterator[Scene]:
    """Many tasks that wait in one queue; commands that take long are noted."""
    stage = scene(redis)
    fill(stage, number)
    with noting_slow_commands(redis, SLOW):
        yield stage


def damaged(number: int) -> tuple[set[str], set[str]]:
    """Return which tasks have no record and which have params that are no JSON: among the oldest and the newest."""
    places = [*range(DAMAGED), *range(number - DAMAGED, number)]
    return set(map(nth, places[::2])), set(map(nth, places[1::2]))


@pytest.fixture
def web(crowd: Scene, settings: Settings, number: int) -> FlaskClient:
    """The API, asked without sockets."""
    gone, broken = damaged(number)
    crowd.redis.delete(*map(crowd.keys.task, gone))
    crowd.redis.mset(dict.fromkeys(map(crowd.keys.params, broken), b"\xff{"))
    return create_app(client=Client(settings, crowd.redis)).test_client()


@pytest.fixture
def web_of_few(redis: Redis, settings: Settings) -> Iterator[FlaskClient]:
    """The API of another database of the same server, with a few tasks."""
    elsewhere = replace(settings, redis_url=settings.redis_url.removesuffix("/0") + "/1")
    with connect(elsewhere) as few:
        fill(scene(few), FEW)
        yield create_app(client=Client(elsewhere, few)).test_client()


def test_every_look_is_short(crowd: Scene, web: FlaskClient, web_of_few: FlaskClient, number: int) -> None:
    """It answers well, with commands of bounded cost, and as quickly as beside a few tasks.

    On a busy machine the best of some tries counts.
    """
    assert [str(place) for place in PLACES if not is_as_quick(place, web, web_of_few)] == []
    assert [str(place) for place in PLACES if all(how_slow(crowd.redis, web, place) for _ in range(3))] == []
    commands = sent(crowd.redis, web)
    assert [command for command in commands if FORBIDDEN.match(command)] == []
    whole = {found[2] for found in map(WHOLE.match, commands) if found}
    assert whole
    assert [name for name in whole if members(crowd.redis, name) > FIELDS] == []
    assert_only_the_damage(crowd, number)


def sent(redis: Redis, web: FlaskClient) -> list[str]:
    """Look at each place once; return the commands that Redis carried out."""
    return [told["command"] for told in heard(redis, lambda: [place.ask(web) for place in PLACES])]


def members(redis: Redis, name: str) -> int:
    """Return how many members a hash or a set has."""
    return {"hash": redis.hlen, "set": redis.scard, "none": lambda _: 0}[redis.type(name)](name)


def is_as_quick(place: Place, web: FlaskClient, web_of_few: FlaskClient) -> bool:
    """Tell whether a look takes hardly longer than beside a few tasks, and not too long."""
    beside_many, beside_few = [], []
    for _ in range(TRIES):
        beside_many.append(place.ask(web))
        beside_few.append(place.ask(web_of_few))
        if len(beside_few) > 3 and min(beside_many) <= min(LONGEST, DEARER * min(beside_few)):
            break
    print(f"{place}: {1000 * min(beside_many):.1f} ms, {min(beside_many) / min(beside_few):.1f} times as long")
    return min(beside_many) <= min(LONGEST, DEARER * min(beside_few))


def how_slow(redis: Redis, web: FlaskClient, place: Place) -> int:
    """Look once; return how many commands took too long."""
    redis.slowlog_reset()
    place.ask(web)
    return redis.slowlog_len()


@pytest.mark.parametrize("number", [5_000])
def test_every_page_comes_and_names_what_is_damaged(web: FlaskClient, crowd: Scene, number: int) -> None:
    """From the first page to the last each task is listed once; one without a record hides no other."""
    gone, broken = damaged(number)
    seen: dict[str, bool] = {}
    cursor = ""
    while cursor is not None:
        page = web.get(f"/api/tasks?limit=500{cursor and f'&cursor={cursor}'}").get_json()
        assert seen.keys().isdisjoint(task["id"] for task in page["tasks"])
        seen |= {task["id"]: "damaged" in task for task in page["tasks"]}
        cursor = page["next"]
    assert len(seen) == number
    assert gone == {task_id for task_id, is_damaged in seen.items() if is_damaged}
    answers = {web.get(f"/api/tasks/{task_id}").status_code for task_id in broken}
    assert answers == {500}, "one task is not shown with params made up"
    assert_only_the_damage(crowd, number)


def assert_only_the_damage(crowd: Scene, number: int) -> None:
    """Check that no look changed anything: the audit finds the tasks without a record, and nothing else."""
    gone, _ = damaged(number)
    strange = [line for line in audit(crowd.redis, crowd.keys) if not gone & set(re.findall(r"\bt\d+\b", line))]
    assert [line for line in strange if not line.startswith(("h: ", "c: entry "))] == []


@pytest.mark.parametrize("number", [2_000])
def test_what_is_copied_is_whole(crowd: Scene, number: int) -> None:
    """The tasks of these tests are as if they had been submitted."""
    assert [] == audit(crowd.redis, crowd.keys, map(nth, range(number)))

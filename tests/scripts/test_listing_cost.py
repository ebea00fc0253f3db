"""What a page of a listing costs, by whatever it is filtered: round trips and records, counted, not timed."""

from collections.abc import Iterator

import pytest
from ghostless.benchmarks.copies import Crowd
from ghostless.benchmarks.observed import counted_trips
from ghostless.benchmarks.size import ASKED, FILTERS
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.listing import Filter
from ghostless.jobs.model import Task
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from redis import Redis
from redis_server import RedisServer

STORED, QUEUED, PAGE = 3_000, 1_000, 50

LOOKED_AT, ROUND_TRIPS = 750, 5
"""Most records of which some fields are read for one page, and most round trips."""


@pytest.fixture(scope="module")
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    """A database with many tasks of two types and two queues, some of an owner, which these tests only read."""
    settings = Settings(redis_url=redis_server.socket_url)
    with connect(settings) as redis:
        redis.flushall()
        Crowd(Store(redis, settings)).grow(STORED, QUEUED)
        yield redis
        redis.flushall()


def calls(redis: Redis, command: str) -> int:
    """Return how often a command was called."""
    return redis.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


@pytest.mark.parametrize("wanted", FILTERS.values(), ids=list(FILTERS))
def test_a_page_costs_no_more_than_this(redis: Redis, client: Client, wanted: Filter) -> None:
    """The first page and the next ones: of what is not shown only some fields are read, and of no more than so many."""
    cursor = None
    for _ in range(3):
        redis.config_resetstat()
        with counted_trips() as trips:
            page = client.list(wanted, limit=PAGE, cursor=cursor)
        assert trips.number <= ROUND_TRIPS
        assert calls(redis, "hgetall") == len(page.tasks) <= PAGE
        assert calls(redis, "hmget") <= LOOKED_AT
        assert all(isinstance(task, Task) and wanted.accepts(task) for task in page.tasks)
        cursor = page.cursor
        if cursor is None:
            return


def test_each_filter_and_each_two_of_them_are_among_those() -> None:
    """So what the benchmark times is what is counted here; each of them finds something but those that say so."""
    asked = [
        {name for name in ASKED if getattr(wanted, name) is not None}
        for name, wanted in FILTERS.items()
        if "none" not in name
    ]
    assert all({one, other} in asked for one in ASKED for other in ASKED)

"""How often Redis is asked: a pipeline is one round trip, whatever is in it."""

import pytest
from ghostless.benchmarks.observed import counted_trips
from ghostless.jobs.client import Client
from ghostless.jobs.listing import LOOKED_AT, Filter
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import State
from redis import Redis
from scripts.seeding import QUEUE, TYPE, scene, submission

STORED = LOOKED_AT + 50


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        (Filter(), 50),
        (Filter(state=State.PENDING), 50),
        (Filter(state=State.PENDING, queue=QUEUE), 50),
        (Filter(owner="ann"), 50),
        (Filter(type=TYPE), 50),
        (Filter(state=State.PENDING, type=TYPE, owner="ann"), 50),
        (Filter(type="demo.none"), 0),
        (Filter(state=State.FAILED, type=TYPE, owner="ann"), 0),
    ],
)
def test_a_page_takes_five_round_trips_at_most(redis: Redis, client: Client, wanted: Filter, number: int) -> None:
    """By whatever it is filtered, and however many records it passes over; the next page of it as well."""
    stage = scene(redis)
    stage.store.submit_many([submission(f"t{index}", owner="ann") for index in range(STORED)])
    for cursor in (None, client.list(wanted).cursor):
        with counted_trips() as trips:
            page = client.list(wanted, limit=50, cursor=cursor)
        assert number == len(page.tasks) or cursor
        assert 1 <= trips.number <= 5


def test_a_watchdogs_round_takes_as_many_whatever_is_stored(redis: Redis) -> None:
    """With nothing due: one for each duty, one for the names of the queues, and one for each of these."""
    stage = scene(redis)
    watchdog, found = Watchdog(stage.store), list[int]()
    for number in (1, 300):
        stage.store.submit_many([submission(f"t{number}-{index}") for index in range(number)])
        stage.store.submit_many([submission(f"s{number}-{index}", delay=3_600_000) for index in range(number)])
        watchdog.sweep_all()
        with counted_trips() as trips:
            watchdog.sweep_all()
        found.append(trips.number)
    assert [8 + 1 + 1, 8 + 1 + 1] == found

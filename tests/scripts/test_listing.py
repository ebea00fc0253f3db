"""Listings: every task once, however many share a moment, and however the database changes meanwhile."""

from collections.abc import Iterator

import pytest
from ghostless.jobs.client import Client
from ghostless.jobs.errors import InvalidTask
from ghostless.jobs.listing import PAGE_LIMIT, Filter
from ghostless.jobs.model import Task
from ghostless.jobs.reads import Damaged
from ghostless.statemachine import State
from redis import Redis
from scripts.seeding import Scene, SpiedStore, submission

NUMBER, TOGETHER = 1_000, 250


@pytest.fixture
def stage(redis: Redis) -> Scene:
    """A thousand tasks, of which each 250 entered their state in the same millisecond."""
    stage = Scene(redis, SpiedStore(redis))
    ids = [f"t{number:04}" for number in range(NUMBER)]
    for start in range(0, NUMBER, 100):
        stage.store.submit_many([submission(task_id) for task_id in ids[start : start + 100]])
    scores = {task_id: 1_000_000 + number // TOGETHER for number, task_id in enumerate(ids)}
    with redis.pipeline() as pipeline:
        for task_id, score in scores.items():
            pipeline.hset(stage.keys.task(task_id), "entered_at", score)
        pipeline.zadd(stage.keys.state(State.PENDING), scores)
        pipeline.zadd(stage.keys.pending("q"), scores)
        pipeline.execute()
    return stage


def pages(client: Client, wanted: Filter = Filter(), limit: int = 50) -> Iterator[list[Task | Damaged]]:  # noqa: B008
    """Yield page after page, as a person who follows the cursor sees them."""
    cursor = None
    while True:
        page = client.list(wanted, limit=limit, cursor=cursor)
        yield list(page.tasks)
        cursor = page.cursor
        if cursor is None:
            return


@pytest.mark.parametrize("limit", [1, 37, 250, PAGE_LIMIT])
@pytest.mark.parametrize("wanted", [Filter(), Filter(state=State.PENDING), Filter(state=State.PENDING, queue="q")])
def test_every_task_is_listed_once_newest_first(stage: Scene, client: Client, limit: int, wanted: Filter) -> None:
    """A thousand tasks, 250 to a millisecond: none is missing, none comes twice, and the order is one."""
    if limit == 1:
        stage.redis.zremrangebyrank(stage.keys.state(State.PENDING), 0, -61)
        stage.redis.zremrangebyrank(stage.keys.pending("q"), 0, -61)
    read = list(pages(client, wanted, limit))
    ids = [task.id for page in read for task in page]
    expected = [f"t{number:04}" for number in reversed(range(NUMBER - 60 if limit == 1 else 0, NUMBER))]
    assert expected == ids
    assert {limit} >= {len(page) for page in read[:-1]}


def test_a_cursor_survives_inserts_moves_and_purges(stage: Scene, client: Client) -> None:
    """Between two pages tasks come, move and go: those that stayed where they were are listed once."""
    seen: list[str] = []
    for number, page in enumerate(pages(client, limit=41)):
        seen += [task.id for task in page]
        stage.store.submit(submission(f"new{number}"))
        stage.store.cancel(f"t{number:04}", "tester")
        last = page[-1].id if page else ""
        for key in (stage.keys.task(last), stage.keys.state(State.PENDING)):
            if key.endswith("PENDING"):
                stage.redis.zrem(key, last)
            else:
                stage.redis.delete(key)
    assert len(set(seen)) == len(seen)
    cancelled = {f"t{number:04}" for number in range(NUMBER // 41 + 2)}
    assert {f"t{number:04}" for number in range(NUMBER)} - cancelled <= set(seen)
    assert not [task_id for task_id in seen if task_id.startswith("new")]


def test_states_are_merged_by_time(redis: Redis, client: Client) -> None:
    """Tasks of several states stand in one order, and a state's own listing holds only its tasks."""
    stage = Scene(redis, SpiedStore(redis))
    for number in range(30):
        stage.store.submit(submission(f"t{number:02}", delay=60_000 * (number % 3 == 0)))
        if number % 3 == 1:
            stage.store.cancel(f"t{number:02}", "tester")
    tasks = [task for page in pages(client, limit=7) for task in page]
    assert 30 == len({task.id for task in tasks})
    assert sorted(tasks, key=lambda task: (task.entered_at, task.id), reverse=True) == tasks
    for state in (State.SCHEDULED, State.CANCELLED, State.PENDING):
        assert {state: 10} == {state: sum(len(page) for page in pages(client, Filter(state=state), 4))}
    assert [[]] == list(pages(client, Filter(state=State.FAILED)))


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        (Filter(owner="ann"), 5),
        (Filter(owner="ann", state=State.PENDING), 5),
        (Filter(owner="ann", state=State.FAILED), 0),
        (Filter(owner="bob"), 0),
        (Filter(type="demo.add"), 1_000),
        (Filter(type="demo.sub"), 0),
        (Filter(queue="q"), 1_000),
        (Filter(queue="other"), 0),
        (Filter(queue="other", state=State.PENDING), 0),
        (Filter(type="demo.add", queue="q", owner="ann", state=State.PENDING), 5),
    ],
)
def test_a_filter_finds_what_fits_however_rare(stage: Scene, client: Client, wanted: Filter, number: int) -> None:
    """Five tasks of an owner among a thousand are found by following the cursor, each once."""
    for owned in (0, 3, 499, 500, 999):
        stage.redis.hset(stage.keys.task(f"t{owned:04}"), "owner", "ann")
    tasks = [task for page in pages(client, wanted, 20) for task in page]
    assert number == len(tasks) == len({task.id for task in tasks})


def test_damaged_records_are_shown_and_hide_nobody(stage: Scene, client: Client) -> None:
    """A record that is gone, of a wrong type or unreadable is listed as damaged, and why; the others as ever."""
    keys = stage.keys
    stage.redis.delete(keys.task("t0001"), keys.task("t0002"))
    stage.redis.set(keys.task("t0002"), "text")
    stage.redis.hset(keys.task("t0003"), "attempt", "one")
    stage.redis.hdel(keys.task("t0004"), "queue")
    tasks = [task for page in pages(client, limit=PAGE_LIMIT) for task in page]
    damaged = {task.id: task.detail for task in tasks if isinstance(task, Damaged)}
    assert NUMBER == len(tasks)
    assert {"t0001", "t0002", "t0003", "t0004"} == damaged.keys()
    assert "the record is gone" == damaged["t0001"]
    assert "WRONGTYPE" in damaged["t0002"]
    assert "one" in damaged["t0003"]
    assert "queue" in damaged["t0004"]
    assert NUMBER - 4 == sum(len(page) for page in pages(client, Filter(type="demo.add"), PAGE_LIMIT))


def test_a_task_that_moved_on_is_not_shown_in_its_old_state(stage: Scene, client: Client) -> None:
    """The record is read after the index: a listing of one state shows no task of another."""
    stage.redis.hset(stage.keys.task("t0999"), "state", State.PROCESSING)
    first = client.list(Filter(state=State.PENDING), limit=3).tasks
    assert ["t0998", "t0997", "t0996"] == [task.id for task in first]


@pytest.mark.parametrize("limit", [0, -1, PAGE_LIMIT + 1])
def test_a_page_has_a_bounded_size(client: Client, limit: int) -> None:
    """A limit outside of 1 to 500 is refused."""
    with pytest.raises(InvalidTask, match=f"limit: expected 1 to {PAGE_LIMIT}, got {limit}"):
        client.list(limit=limit)


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "MTIz", "8J-YgCB4", "ü", "a" * 1000, "eCB4"])
def test_a_cursor_that_is_none_is_refused_or_ends_nowhere(client: Client, cursor: str) -> None:
    """Whatever a person puts in its place, the answer is InvalidTask or a page."""
    try:
        page = client.list(cursor=cursor)
    except InvalidTask as error:
        assert "cursor" == error.faults[0].field  # noqa: PT017
    else:
        assert () == page.tasks

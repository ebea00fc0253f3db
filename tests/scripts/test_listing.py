"""Listings: every task once, however many share a moment, and however the database changes meanwhile."""

import random
from collections.abc import Iterator

import pytest
from audit import audit
from ghostless.jobs.client import Client
from ghostless.jobs.errors import InvalidTask
from ghostless.jobs.listing import PAGE_LIMIT, Filter
from ghostless.jobs.messages import Claimed
from ghostless.jobs.model import Task
from ghostless.jobs.reads import Damaged
from ghostless.lua import LISTED_FROM
from ghostless.statemachine import STORED, Event, State
from helpers import heard
from redis import Redis
from scripts.seeding import ID, PLACE, Scene, SpiedStore, claimed, finish, scene, submission, wish

NUMBER, TOGETHER = 1_000, 250
OF_ANN = {f"t{number:04}" for number in (0, 3, 499, 500, 999)}


@pytest.fixture
def stage(redis: Redis) -> Scene:
    """A thousand tasks, of which each 250 entered their state in the same millisecond; five have an owner."""
    stage = Scene(redis, SpiedStore(redis))
    ids = [f"t{number:04}" for number in range(NUMBER)]
    for start in range(0, NUMBER, 100):
        some = ids[start : start + 100]
        stage.store.submit_many([submission(task_id, owner="ann" if task_id in OF_ANN else "") for task_id in some])
    scores = {task_id: 1_000_000 + number // TOGETHER for number, task_id in enumerate(ids)}
    with redis.pipeline() as pipeline:
        for task_id, score in scores.items():
            pipeline.hset(stage.keys.task(task_id), "entered_at", score)
        pipeline.zadd(stage.keys.state(State.PENDING), scores)
        pipeline.zadd(stage.keys.pending("q"), scores)
        pipeline.zadd(stage.keys.listed(PLACE), {name: LISTED_FROM[State.PENDING] + at for name, at in scores.items()})
        pipeline.zadd(stage.keys.owned("ann"), {task_id: scores[task_id] for task_id in OF_ANN})
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
        stage.redis.zremrangebyrank(stage.keys.listed(PLACE), 0, -61)
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
    tasks = [task for page in pages(client, wanted, 20) for task in page]
    assert number == len(tasks) == len({task.id for task in tasks})


def test_an_owners_tasks_are_found_without_a_look_at_others(stage: Scene, client: Client) -> None:
    """However rare he is: all are on one page, and a filter on top looks at his tasks only."""
    stage.redis.config_resetstat()
    assert [sorted(OF_ANN, reverse=True)] == [[task.id for task in page] for page in pages(client, Filter(owner="ann"))]
    assert "cmdstat_hmget" not in stage.redis.info("commandstats")
    assert [len(OF_ANN)] == [len(page) for page in pages(client, Filter(owner="ann", type="demo.add"))]
    assert len(OF_ANN) == stage.redis.info("commandstats")["cmdstat_hmget"]["calls"]


def test_an_owners_listing_shows_nobody_elses_task(stage: Scene, client: Client) -> None:
    """Whatever stands in the index: the record says whose a task is, and of a damaged one nobody can."""
    stage.redis.zadd(stage.keys.owned("ann"), {"t0001": 2e12, "t0002": 2e12, "gone": 2e12})
    stage.redis.hset(stage.keys.task("t0002"), "attempt", "one")
    found = [task.id for page in pages(client, Filter(owner="ann"), 2) for task in page]
    assert sorted(OF_ANN, reverse=True) == found


OWNERS = ("", "ann", "Ann Lee", "a:*", "PENDING", "ä" * 32)


def _live(stage: Scene, rng: random.Random) -> None:
    """Let something happen to some task."""
    task_id = f"t{rng.randrange(20)}"
    move = rng.choice(("submit", "cancel", "pause", "resume", "retry", "run", "purge"))
    if move == "submit":
        stage.store.submit(submission(f"t{rng.randrange(20)}", owner=rng.choice(OWNERS), delay=rng.choice((0, 60_000))))
    elif move == "run":
        claim = stage.store.claim(wish("w", f"{rng.getrandbits(32):08x}"))
        if isinstance(claim, Claimed) and rng.random() < 0.7:
            stage.held = claim.held
            finish(stage, rng.choice((Event.COMPLETE, Event.FAIL)))
    elif move == "purge":
        stage.redis.zadd(stage.keys.retention, {task_id: 0}, xx=True)
        stage.store.purge()
    elif stage.redis.exists(stage.keys.task(task_id)):
        getattr(stage.store, move)(task_id, "tester")


@pytest.mark.parametrize("seed", range(5))
def test_an_owners_listing_is_the_filter_of_all(redis: Redis, client: Client, seed: int) -> None:
    """Whatever happened to the tasks of many owners: each one's listing is what a look at all tasks finds of his."""
    stage, rng = scene(redis), random.Random(seed)
    for _ in range(100):
        _live(stage, rng)
    tasks = [task for page in pages(client) for task in page]
    assert len({task.owner for task in tasks}) > 2
    for owner in OWNERS[1:]:
        for state in (None, *STORED):
            expected = [task.id for task in tasks if task.owner == owner and state in (None, task.state)]
            found = [task.id for page in pages(client, Filter(state, owner=owner), 3) for task in page]
            assert expected == found, (owner, state)
    assert [] == audit(redis, stage.keys)


def test_tasks_without_an_owner_pay_nothing(redis: Redis) -> None:
    """No command of theirs names an index of owners; with an owner a move is one entry written, and its type asked."""
    stage = scene(redis)
    stage.store.submit(submission(owner=""))
    assert [] == _named(stage, stage.keys.owned(""))
    stage.start_over()
    stage.store.submit(submission(owner="ann"))
    name = stage.keys.owned("ann")
    assert [f"TYPE {name}", f"ZADD {name}"] * 3 == _named(stage, name)


def _named(stage: Scene, name: str) -> list[str]:
    """Run the task and retry it; return the commands that named a key that begins so, with the key."""

    def live() -> None:
        stage.held = claimed(stage.store).held
        finish(stage, Event.FAIL, retryable=False)
        stage.store.retry(ID, "tester")

    lines = (seen["command"].split()[:2] for seen in heard(stage.redis, live))
    return [" ".join(words) for words in lines if words[-1].startswith(name)]


def test_damaged_records_are_shown_and_hide_nobody(stage: Scene, client: Client) -> None:
    """A record that is gone, of a wrong type or unreadable is listed as damaged, and why; the others as ever.

    That is so by whatever an index tells of it; only whose it is nobody knows.
    """
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
    for wanted in (Filter(type="demo.add"), Filter(queue="q"), Filter(State.PENDING, "demo.add", "q")):
        assert tasks == [task for page in pages(client, wanted, PAGE_LIMIT) for task in page]
    assert len(OF_ANN) - 1 == sum(len(page) for page in pages(client, Filter(owner="ann"), PAGE_LIMIT)), (
        "t0003 is not shown"
    )


def test_a_task_that_moved_on_is_not_shown_in_its_old_state(stage: Scene, client: Client) -> None:
    """The record is read after the index: a listing of one state shows no task of another, and goes on behind it."""
    stage.redis.hset(stage.keys.task("t0999"), "state", State.PROCESSING)
    found = pages(client, Filter(state=State.PENDING), 3)
    assert [["t0998", "t0997"], ["t0996", "t0995", "t0994"]] == [[task.id for task in next(found)] for _ in range(2)]


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

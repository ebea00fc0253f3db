"""The index by queue and type: rare tasks among many are on the first page, and it is kept right without a word."""

import random
from itertools import product
from typing import Any

import pytest
from audit import audit
from ghostless.benchmarks.copies import ENDED, TYPES, Crowd
from ghostless.benchmarks.copies import OWNER as OFTEN
from ghostless.benchmarks.copies import QUEUE as CROWDED
from ghostless.benchmarks.observed import counted_trips
from ghostless.jobs import listing
from ghostless.jobs.client import Client
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.errors import CorruptRecord
from ghostless.jobs.listing import LOOKED_AT, Filter
from ghostless.jobs.messages import Claimed
from ghostless.jobs.shelves import Position
from ghostless.jobs.upkeep import Upkeep
from ghostless.lua import BAND, LISTED_FROM
from ghostless.statemachine import STORED, Event, State
from helpers import heard
from redis import Redis
from scripts.seeding import (
    BY_WATCHDOG,
    ID,
    OTHER_TYPE,
    PLACE,
    QUEUE,
    TYPE,
    Scene,
    claimed,
    finish,
    park,
    scene,
    step,
    submission,
    wish,
)
from scripts.test_listing import pages

RARE, FEW, MANY = "rare", 10, 20_000
PENDING, SCHEDULED = State.PENDING, State.SCHEDULED
COMMON, ALSO_COMMON = TYPES

GROUPS = {
    "type": dict(type=RARE, queue=CROWDED),
    "queue": dict(type=COMMON, queue=RARE, owner=OFTEN),
    "owner": dict(type=COMMON, queue=CROWDED, owner=RARE),
    "state and queue": dict(type=ALSO_COMMON, queue=ENDED),
    "state and type": dict(type=ALSO_COMMON, queue=CROWDED, delay=9_000_000),
}
"""Old tasks of which some value is rare, or which are rare by two values together that are common alone."""

RARELY = [
    (Filter(type=RARE), "type"),
    (Filter(queue=RARE), "queue"),
    (Filter(owner=RARE), "owner"),
    (Filter(PENDING, RARE), "type"),
    (Filter(SCHEDULED, ALSO_COMMON), "state and type"),
    (Filter(PENDING, queue=ENDED), "state and queue"),
    (Filter(PENDING, owner=RARE), "owner"),
    (Filter(type=RARE, queue=CROWDED), "type"),
    (Filter(type=COMMON, owner=RARE), "owner"),
    (Filter(queue=RARE, owner=OFTEN), "queue"),
    (Filter(PENDING, RARE, CROWDED), "type"),
    (Filter(PENDING, ALSO_COMMON, ENDED), "state and queue"),
    (Filter(SCHEDULED, ALSO_COMMON, CROWDED), "state and type"),
    (Filter(PENDING, COMMON, owner=RARE), "owner"),
    (Filter(PENDING, queue=RARE, owner=OFTEN), "queue"),
    (Filter(None, COMMON, RARE, OFTEN), "queue"),
    (Filter(PENDING, COMMON, RARE, OFTEN), "queue"),
]


def _name(group: str, number: int) -> str:
    return f"{group.replace(' ', '-')}{number}"


def _age(stage: Scene, task_id: str, entered_at: int) -> None:
    """Let a task have entered its state at this time (ms)."""
    task, keys = stage.redis.hgetall(stage.keys.task(task_id)), stage.keys
    stage.redis.hset(keys.task(task_id), "entered_at", entered_at)
    at = LISTED_FROM[task["state"]] + entered_at
    stage.redis.zadd(keys.listed(f"{task['queue']}:{task['type']}"), {task_id: at})
    for index in (keys.state(task["state"]), keys.pending(task["queue"]), keys.owned(task.get("owner", ""))):
        stage.redis.zadd(index, {task_id: entered_at}, xx=True)


def test_what_is_rare_among_many_is_on_the_first_page(redis: Redis, client: Client) -> None:
    """Ten old tasks among twenty thousand: each filter, pair and triple finds them at once, in five round trips."""
    stage = scene(redis)
    Crowd(stage.store).grow(MANY, MANY // 2)
    old = stage.now() - 7_200_000
    for group, terms in GROUPS.items():
        stage.store.submit_many([submission(_name(group, number), **{"owner": "", **terms}) for number in range(FEW)])
        for number in range(FEW):
            _age(stage, _name(group, number), old + number)
    for wanted, group in RARELY:
        redis.config_resetstat()
        with counted_trips() as trips:
            page = client.list(wanted)
        assert [_name(group, number) for number in reversed(range(FEW))] == [task.id for task in page.tasks], wanted
        assert page.cursor is None, wanted
        assert trips.number <= 5, wanted
        read = redis.info("commandstats")
        assert read["cmdstat_hgetall"]["calls"] == FEW, wanted
        assert read.get("cmdstat_hmget", {"calls": 0})["calls"] <= (LOOKED_AT if wanted.needs_records else 0), wanted


TYPES_OF_LIFE, QUEUES, OWNERS = (TYPE, OTHER_TYPE), (QUEUE, "other"), ("", "ann")


def _live(stage: Scene, rng: random.Random) -> None:
    """Let something happen to some task."""
    task_id = f"t{rng.randrange(25)}"
    move = rng.choice(("submit", "submit", "cancel", "pause", "resume", "retry", "run", "run", "purge", "requeue"))
    if move == "submit":
        chosen = dict(type=rng.choice(TYPES_OF_LIFE), queue=rng.choice(QUEUES), owner=rng.choice(OWNERS))
        stage.store.submit(submission(task_id, delay=rng.choice((0, 0, 60_000)), **chosen))
    elif move == "run":
        token = f"{rng.getrandbits(32):08x}"
        claim = stage.store.claim(wish("w", token, rng.choice(TYPES_OF_LIFE), queues=(rng.choice(QUEUES),)))
        if isinstance(claim, Claimed) and rng.random() < 0.7:
            stage.held = claim.held
            finish(stage, rng.choice((Event.COMPLETE, Event.FAIL)))
    elif move == "purge":
        stage.redis.zadd(stage.keys.retention, {task_id: 0}, xx=True)
        stage.store.purge()
    elif move == "requeue":
        stage.store.requeue(BY_WATCHDOG, rng.choice(QUEUES))
    elif stage.redis.exists(stage.keys.task(task_id)):
        getattr(stage.store, move)(task_id, "tester")


@pytest.mark.parametrize("seed", range(3))
def test_every_filter_is_that_of_all(redis: Redis, client: Client, seed: int) -> None:
    """Whatever happened to tasks of two types, queues and owners: a listing is what a look at all of them finds."""
    stage, rng = scene(redis), random.Random(seed)
    for _ in range(150):
        _live(stage, rng)
    tasks = [task for page in pages(client) for task in page]
    assert len({(task.type, task.queue) for task in tasks}) > 2
    for terms in product((None, *STORED), (None, *TYPES_OF_LIFE, "none"), (None, *QUEUES), (None, "ann")):
        wanted = Filter(*terms)
        expected = [task.id for task in tasks if wanted.accepts(task)]
        assert expected == [task.id for page in pages(client, wanted, 3) for task in page], wanted
    assert [] == audit(redis, stage.keys)


@pytest.mark.parametrize(
    "wanted", [Filter(type=TYPE), Filter(queue=QUEUE), Filter(PENDING, TYPE), Filter(type=TYPE, owner="ann")]
)
def test_a_cursor_survives_what_happens_meanwhile(redis: Redis, client: Client, wanted: Filter) -> None:
    """Between two pages tasks come, move and are purged: those that stay are shown once, and none of another kind."""
    stage = scene(redis)
    ids = [f"t{number:02}" for number in range(40)]
    for task_id in ids:
        stage.store.submit(submission(task_id, owner="ann"))
        stage.store.submit(submission(f"other-{task_id}", type=OTHER_TYPE, queue="other", owner="ann"))
    seen, moved = list[str](), set[str]()
    for number, page in enumerate(pages(client, wanted, 7)):
        seen += [task.id for task in page]
        stage.store.submit(submission(f"new{number}", owner="ann"))
        unseen = [task_id for task_id in ids if task_id not in {*seen, *moved}]
        for task_id in (*seen[-1:], *unseen[:2]):
            moved.add(task_id)
            stage.store.cancel(task_id, "tester")
        for task_id in unseen[:1]:
            redis.zadd(stage.keys.retention, {task_id: 0})
        stage.store.purge()
    assert len(seen) == len(set(seen))
    assert {*ids} - moved <= {*seen} <= {*ids}
    assert [] == audit(redis, stage.keys)


def test_a_move_costs_one_command(redis: Redis) -> None:
    """Only the first entry of a task names its place too; what is kept in it is small while there are few."""
    stage = scene(redis)

    def live() -> None:
        stage.store.submit(submission())
        stage.held = claimed(stage.store).held
        finish(stage, Event.FAIL, retryable=False)
        stage.store.retry(ID, "tester")
        redis.zadd(stage.keys.retention, {ID: 0})
        stage.store.cancel(ID, "tester")

    seen = [told["command"].split()[:2] for told in heard(redis, live)]
    listed = [word for word, *names in seen if names and names[0].startswith(stage.keys.listed(""))]
    assert ["ZADD"] * 5 == listed
    assert 1 == sum(names[:1] == [stage.keys.listed_places] for _, *names in seen)
    assert redis.object("encoding", stage.keys.listed(PLACE)) in ("listpack", "ziplist")


def test_a_place_is_named_while_it_has_tasks(redis: Redis) -> None:
    """The purge of a type's last task in a queue ends it; what is parked there counts as well."""
    stage = scene(redis)
    stage.store.submit(submission())
    park(stage)
    for number, (task_type, queue) in enumerate(product(TYPES_OF_LIFE, QUEUES)):
        stage.store.submit(submission(f"u{number}", type=task_type, queue=queue))
    for number in range(4):
        assert 4 - max(0, number - 1) == redis.scard(stage.keys.listed_places)
        stage.store.cancel(f"u{number}", "tester")
        redis.zadd(stage.keys.retention, {f"u{number}": 0})
        stage.store.purge()
    assert {PLACE} == redis.smembers(stage.keys.listed_places)
    assert [] == audit(redis, stage.keys, [ID])


def _of_an_earlier_version(stage: Scene, number: int) -> list[str]:
    """Store tasks in several states, as a version did that had no such index; return their ids."""
    ids = [f"t{index:03}" for index in range(number)]
    stage.store.submit_many([submission(task_id, type=TYPES_OF_LIFE[index % 2]) for index, task_id in enumerate(ids)])
    for task_id in ids[::3]:
        stage.store.cancel(task_id, "tester")
    stage.redis.delete(*stage.redis.keys(f"{stage.keys.listed('')}*"), stage.keys.listed_places)
    return ids


def test_watchdogs_enter_what_an_earlier_version_stored(redis: Redis, client: Client) -> None:
    """A little with each sweep, and without a word: no history tells of it, and nothing is logged."""
    stage = scene(redis)
    ids = _of_an_earlier_version(stage, 60)
    length = redis.xlen(stage.keys.history)
    problems = list[str]()
    for _ in range(100):
        problems += step(stage, "patrol").problems
    assert (length, []) == (redis.xlen(stage.keys.history), problems)
    assert {*ids} == {task.id for wanted in TYPES_OF_LIFE for task in client.list(Filter(type=wanted), limit=100).tasks}
    assert [] == audit(redis, stage.keys, ids)


def test_a_task_of_an_earlier_version_is_entered_with_its_next_move(redis: Redis, client: Client) -> None:
    """What happens to a task makes it found, wherever the watchdogs are."""
    stage = scene(redis)
    ids = _of_an_earlier_version(stage, 4)
    stage.store.cancel(ids[1], "tester")
    assert [ids[1]] == [task.id for task in client.list(Filter(queue=QUEUE)).tasks]
    assert {f"{QUEUE}:{OTHER_TYPE}"} == redis.smembers(stage.keys.listed_places)


def test_an_owner_misses_nothing_after_an_upgrade(redis: Redis, client: Client) -> None:
    """While the index by queue and type lacks his tasks, his own answers what else is asked of them."""
    stage = scene(redis)
    for number in range(3):
        stage.store.submit(submission(f"t{number}", owner="ann"))
    redis.delete(*redis.keys(f"{stage.keys.listed('')}*"), stage.keys.listed_places)
    for wanted in (Filter(type=TYPE, owner="ann"), Filter(PENDING, TYPE, QUEUE, "ann")):
        assert ["t2", "t1", "t0"] == [task.id for task in client.list(wanted).tasks]


@pytest.mark.parametrize("wanted", [Filter(queue=QUEUE), Filter(type=TYPE)])
def test_the_only_task_may_move_during_a_look(
    redis: Redis, client: Client, monkeypatch: pytest.MonkeyPatch, wanted: Filter
) -> None:
    """It starts after it was found out where to look: it is listed all the same, in the state that nobody was in."""
    stage = scene(redis)
    stage.store.submit(submission())
    look = listing.newest

    def start_and_look(*arguments: Any, **options: Any) -> list[Position]:
        claimed(stage.store)
        return look(*arguments, **options)

    monkeypatch.setattr(listing, "newest", start_and_look)
    assert [(ID, State.PROCESSING)] == [(task.id, task.state) for task in client.list(wanted).tasks]


def test_the_doctor_says_it_once(redis: Redis) -> None:
    """It tells how many tasks lack their entry, not of each; a repair enters all, and then nothing is wrong."""
    stage = scene(redis)
    ids = _of_an_earlier_version(stage, 60)
    length = redis.xlen(stage.keys.history)
    (problem,) = Doctor(stage.store).audit()
    assert ("b", "-", "repairable") == (problem.rule, problem.task_id, problem.outcome)
    assert "60 tasks were not where listings by queue or type look: ghostless:listed:*" == problem.what
    (problem,) = Doctor(stage.store, "tester").audit()
    assert problem.is_solved
    assert [] == list(Doctor(stage.store).audit())
    assert length == redis.xlen(stage.keys.history)
    assert [] == audit(redis, stage.keys, ids)


DAMAGES = {
    "gone": lambda s: s.redis.zrem(s.keys.listed(PLACE), ID),
    "at a wrong time": lambda s: s.redis.zadd(s.keys.listed(PLACE), {ID: 5}),
    "not named": lambda s: s.redis.srem(s.keys.listed_places, PLACE),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_lost_entry_is_put_back(redis: Redis, damage: str) -> None:
    """By watchdogs and the doctor, and told by the doctor."""
    stage = scene(redis)
    for repair in (Upkeep(stage.store).patrol, lambda actor: list(Doctor(stage.store, actor).audit())):
        stage.start_over()
        stage.store.submit(submission())
        DAMAGES[damage](stage)
        assert ["repairable"] == [problem.outcome for problem in Doctor(stage.store).audit()]
        redis.delete(stage.keys.patrol)
        repair(BY_WATCHDOG)
        assert [] == audit(redis, stage.keys, [ID])


def test_what_stands_in_a_foreign_place_is_removed(redis: Redis) -> None:
    """A task of another type, and one that is gone; the place that lists nothing any more is named no more."""
    stage = scene(redis)
    stage.store.submit(submission())
    for place, member in ((f"{QUEUE}:{OTHER_TYPE}", ID), (f"other:{TYPE}", "gone")):
        redis.zadd(stage.keys.listed(place), {member: 5})
        redis.sadd(stage.keys.listed_places, place)
    assert 2 == len([problem for problem in Doctor(stage.store, "tester").audit() if problem.is_solved])
    list(Doctor(stage.store, "tester").audit())  # what the first wrote into the quarantine
    assert [] == audit(redis, stage.keys, [ID])


@pytest.mark.parametrize("poisoned", [f"listed:{PLACE}", "listed_places"])
def test_an_index_of_another_type_stops_no_task(redis: Redis, client: Client, poisoned: str) -> None:
    """A task is submitted, run, retried and purged all the same; who lists is told, and so is who asks the doctor."""
    stage, name = scene(redis), f"ghostless:{poisoned}"
    redis.set(name, "poison")
    for task_id in (ID, "t2"):
        stage.store.submit(submission(task_id))
    stage.held = claimed(stage.store).held
    finish(stage, Event.FAIL, retryable=False)
    stage.store.retry(ID, "tester")
    stage.store.cancel(ID, "tester")
    redis.zadd(stage.keys.retention, {ID: 0})
    assert 1 == stage.store.purge().moved
    with pytest.raises(CorruptRecord, match="WRONGTYPE"):
        client.list(Filter(type=TYPE))
    assert any(name in problem.what for problem in Doctor(stage.store).audit())
    assert ["t2"] == [task.id for task in client.list().tasks]
    redis.delete(name)
    Upkeep(stage.store).patrol(BY_WATCHDOG)
    assert [] == audit(redis, stage.keys, ["t2"], purged=[ID])


def test_the_states_have_fixed_numbers() -> None:
    """They stand in databases: each stored state has its own, and times of one never reach those of the next."""
    assert set(STORED) == LISTED_FROM.keys()
    assert [number * BAND for number in range(1, len(STORED) + 1)] == sorted(LISTED_FROM.values())
    assert [3, 9, 12] == [LISTED_FROM[state] // BAND for state in (PENDING, State.SUCCESS, State.CANCELLED)]

"""What does not belong into an index leaves it, wherever it stands; what belongs there is not touched (B07)."""

from collections.abc import Callable

import pytest
from audit import audit
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.keys import INDICES, SINGLE_INDICES, Keys
from ghostless.jobs.reads import Damaged
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.upkeep import Upkeep
from ghostless.statemachine import Event, State
from redis import Redis
from scripts.seeding import (
    BY_WATCHDOG,
    OTHER_TYPE,
    OWNER,
    PLACE,
    QUEUE,
    TYPE,
    Scene,
    claimed,
    ending,
    put,
    scene,
    step,
    submission,
    wish,
)
from scripts.test_full_redis import full
from scripts.test_poison import BROKEN, MEMBERS, WRONG_TYPES, clear_poison, poison

GOOD = ("good1", "good2")
ILLEGAL = [b"with a blank", b"with\x00nul", b"g" * 300, b"\r\nLF", b"*", b"{}:"]
DAMAGED = [*WRONG_TYPES, *BROKEN]
STRANGERS = [*MEMBERS, *ILLEGAL]
SCORES = [float("-inf"), float("inf"), 0, -1, 1e300, 5e-324]


def submit(stage: Scene, **how: object) -> None:
    """Accept the good tasks."""
    stage.store.submit_many([submission(task_id, **how) for task_id in GOOD])


def start(stage: Scene) -> None:
    """Let the good tasks run."""
    submit(stage)
    for token in ("aa", "bb"):
        claimed(stage.store, wish(f"w-{token}", token))


def cancel(stage: Scene) -> None:
    """End the good tasks."""
    submit(stage)
    for task_id in GOOD:
        stage.store.cancel(task_id, "tester")


def park(stage: Scene) -> None:
    """Let a worker that does not serve the good tasks meet them."""
    submit(stage)
    stage.store.claim(wish("w", "ee", OTHER_TYPE))


def wait_for_first(stage: Scene) -> None:
    """Let the good tasks wait for another."""
    stage.store.submit(submission("first", delay=10**6))
    submit(stage, depends_on=("first",))


def end_untold(stage: Scene) -> None:
    """End the good tasks so that nobody was told yet who waits for them."""
    cancel(stage)
    for task_id in GOOD:
        stage.redis.hset(stage.keys.task(task_id), "dependents", 1)
        stage.redis.zadd(stage.keys.settling, {task_id: stage.now()})


CASES: dict[str, tuple[Callable[[Scene], object], Callable[[Keys], str]]] = {
    "deadlines": (start, lambda keys: keys.deadlines),
    "due": (lambda stage: submit(stage, delay=10**6), lambda keys: keys.due),
    "settling": (end_untold, lambda keys: keys.settling),
    "retention": (cancel, lambda keys: keys.retention),
    "state": (submit, lambda keys: keys.state(State.PENDING)),
    "owned": (submit, lambda keys: keys.owned(OWNER)),
    "listed": (submit, lambda keys: keys.listed(PLACE)),
    "pending": (submit, lambda keys: keys.pending(QUEUE)),
    "parked": (park, lambda keys: keys.parked(PLACE)),
    "dependents": (wait_for_first, lambda keys: keys.dependents("first")),
}
"""For each sort of index: what brings the good tasks into one, and its name."""


def prune_all(stage: Scene) -> list[str]:
    """Let the watchdogs look through all indices once; return what they told."""
    told: list[str] = []
    stage.redis.delete(stage.keys.prune)
    while stage.redis.hget(stage.keys.prune, "round") in (None, "0"):
        told += step(stage, "prune").problems
    return told


def test_each_sort_of_index_is_tried() -> None:
    """A new one needs a case here, and a line in `lua/places.lua`."""
    assert {*SINGLE_INDICES, *INDICES} == CASES.keys()


@pytest.mark.parametrize("sort", CASES)
def test_poison_leaves_each_index_and_the_good_ones_stay(redis: Redis, settings: Settings, sort: str) -> None:
    """Ids of nothing, of no legal form, of records of another type or with damaged fields: noted, told, taken out.

    Where tasks are counted, and listed by state, queue and type, the damaged stay; in listings nothing is no news.
    """
    stage = scene(redis)
    prepare, name_of = CASES[sort]
    prepare(stage)
    index = name_of(stage.keys)
    good = redis.zrange(index, 0, -1, withscores=True)
    assert {*GOOD} == dict(good).keys()
    poison(stage, State.PENDING)
    scores = (SCORES * len(STRANGERS))[: len(STRANGERS)]
    redis.zadd(index, dict(zip(STRANGERS, scores, strict=True)))

    told = prune_all(stage)

    kept = {*DAMAGED} if sort in ("state", "listed") else set()
    assert kept == {member for member in STRANGERS if redis.zscore(index, member) is not None}
    noted = 0 if sort == "listed" else len(STRANGERS) - len(kept)
    assert noted == len(told) == redis.hlen(stage.keys.quarantine)
    assert [] == prune_all(stage)
    clear_poison(stage)
    noted += len(prune_all(stage))
    assert good == redis.zrange(index, 0, -1, withscores=True)
    assert noted == (0 if sort == "listed" else len(STRANGERS))
    problems = audit(redis, stage.keys, GOOD, quarantined=noted)
    assert [] == [line for line in problems if sort != "settling" or "dependents" not in line]
    assert noted == sum(f"it was taken out of {index}" in line for line in examined(settings))


def examined(settings: Settings) -> list[str]:
    """Return what the doctor tells."""
    with connect(settings, exact=True) as exact:
        return [str(problem) for problem in Doctor(Store(exact, settings)).audit()]


@pytest.mark.parametrize("sort", CASES)
def test_a_sound_task_leaves_an_index_that_is_not_its_own(redis: Redis, sort: str) -> None:
    """One in another state, of another owner, queue or type, or that does not wait: its history tells of the repair."""
    stage = scene(redis)
    prepare, name_of = CASES[sort]
    prepare(stage)
    stage.store.submit(submission("stray", owner="another", queue="other", delay=10**6))
    if sort == "due":
        stage.store.cancel("stray", "tester")
    index = name_of(stage.keys)
    good = redis.zrange(index, 0, -1, withscores=True)
    redis.zadd(index, {"stray": float("inf")})

    (told,) = prune_all(stage)

    assert "task:stray: it is " in told
    assert told.endswith(f"and yet in {index}")

    assert good == redis.zrange(index, 0, -1, withscores=True)
    assert (Event.REPAIR, 0) == (stage.history[-1][0], redis.hlen(stage.keys.quarantine))
    assert [] == [line for line in audit(redis, stage.keys) if "stray" in line]


@pytest.mark.parametrize("way", ["prune", "recheck"])
def test_who_is_damaged_is_counted_and_listed(redis: Redis, way: str) -> None:
    """It is not missing in the ledger, every listing shows it as damaged, and once a person mends it all is well."""
    stage = scene(redis)
    stage.store.submit(submission("first", delay=10**6))
    stage.store.submit(submission("last", depends_on=("first",)))
    redis.hset(stage.keys.task("last"), "failures", "many")
    redis.delete(stage.keys.unmet("last"))
    told = prune_all(stage) if way == "prune" else stage.store.recheck(BY_WATCHDOG).problems
    assert any("failures" in line for line in told)
    assert 0 == Upkeep(stage.store).account(corrects=True).missing
    client = Client(Settings(), redis)
    for wanted in (Filter(state=State.BLOCKED), Filter(queue=QUEUE, type=TYPE, state=State.BLOCKED)):
        assert [Damaged] == [type(task) for task in client.list(wanted).tasks]
    redis.hset(stage.keys.task("last"), "failures", 0)
    Upkeep(stage.store).patrol(BY_WATCHDOG)
    assert [] == audit(redis, stage.keys, ["first", "last"], quarantined=redis.hlen(stage.keys.quarantine))


def test_what_a_purge_of_the_version_before_left_is_no_damage(redis: Redis) -> None:
    """It left the entries of what it purged in the listings by queue and type: they go, and no word of it."""
    stage = scene(redis)
    submit(stage)
    redis.zadd(stage.keys.listed(PLACE), {f"purged{number}": 1 for number in range(5)})
    assert [] == prune_all(stage)
    assert [] == audit(redis, stage.keys, GOOD)


def test_an_index_that_no_task_names_is_found(redis: Redis) -> None:
    """It goes by the keys there are: an index of an owner, a queue or a dependency that nobody has any more."""
    stage = scene(redis)
    put(stage, State.PENDING)
    others = [stage.keys.owned("nobody"), stage.keys.pending("gone"), stage.keys.parked("gone:gone")]
    others.append(stage.keys.dependents("gone"))
    for index in others:
        redis.zadd(index, {"gone": 1, "t1": 1})
    assert 2 * len(others) == len(prune_all(stage))
    assert 0 == redis.exists(*others)
    assert [] == audit(redis, stage.keys, ["t1"], quarantined=len(others))


def test_a_sorted_set_of_something_else_is_left_alone(redis: Redis) -> None:
    """Deliveries, workers over HTTP and what is not ours hold no tasks."""
    stage, others = scene(redis), ["another"]
    others += [stage.keys.due_deliveries("x.example"), stage.keys.due_receivers, stage.keys.http_workers]
    others.append(stage.keys.alert_window("timeouts"))
    for name in others:
        redis.zadd(name, {"x": 1})
    assert [] == prune_all(stage)
    assert len(others) == redis.exists(*others)


def test_a_long_index_is_gone_through_in_bounded_steps(redis: Redis) -> None:
    """Each step looks at some tens of members, whoever makes it, and none is passed over."""
    stage = scene(redis)
    index, number = stage.keys.owned(OWNER), 2_000
    redis.zadd(index, {f"gone{at}": at for at in range(number)})
    stage.redis.delete(stage.keys.prune)
    while redis.exists(index):
        redis.config_resetstat()
        step(stage, "prune")
        assert redis.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"] < 200
    assert number == redis.hlen(stage.keys.quarantine)


@pytest.mark.parametrize("sort", ["PENDING", "BLOCKED behind a hundred"])
def test_a_short_index_of_strays_is_gone_through_in_bounded_steps(redis: Redis, sort: str) -> None:
    """Redis answers all members of a short index at once: a step repairs some, the next ones the rest."""
    stage = scene(redis)
    others = [f"o{number:03}" for number in range(100)]
    strays = [f"s{number:03}" for number in range(120 if sort == "PENDING" else 20)]
    stage.store.submit_many([submission(task_id, delay=10**6) for task_id in others])
    how = {} if sort == "PENDING" else {"depends_on": tuple(others)}
    stage.store.submit_many([submission(task_id, **how) for task_id in strays])
    index = stage.keys.pending("another")
    redis.zadd(index, dict.fromkeys(strays, 1))
    redis.delete(stage.keys.prune)
    while redis.exists(index):
        before = redis.zcard(index)
        step(stage, "prune")
        assert before - redis.zcard(index) <= (20 if sort == "PENDING" else 4)
    told = [entry[0] for entry in stage.history if entry[0] == Event.REPAIR]
    assert len(strays) == len(told)


def test_it_prunes_at_a_full_redis(redis: Redis) -> None:
    """What is taken out frees memory; only the notes have to wait for none."""
    stage = scene(redis)
    put(stage, State.PENDING)
    redis.zadd(stage.keys.owned(OWNER), {"gone": 1})
    with full(redis):
        Upkeep(stage.store).prune(BY_WATCHDOG)
    assert redis.zscore(stage.keys.owned(OWNER), "gone") is None


# The set of what a task waits for


@pytest.mark.parametrize("member", [*MEMBERS[:4], *WRONG_TYPES, b"no-number", *ILLEGAL[:3], b"another"])
@pytest.mark.parametrize("way", ["recheck", "patrol"])
def test_poison_among_what_a_task_waits_for(redis: Redis, way: str, member: bytes) -> None:
    """The task waits for what it was submitted to wait for: it is not cancelled, the stranger is noted and told."""
    stage = scene(redis)
    stage.store.submit_many([submission("first"), submission("another", delay=10**6)])
    stage.store.submit(submission("last", depends_on=("first",)))
    poison(stage, State.PENDING)
    redis.sadd(stage.keys.unmet("last"), member)
    if way == "recheck":
        told = stage.store.recheck(BY_WATCHDOG).problems
    else:
        told = Upkeep(stage.store).patrol(BY_WATCHDOG).problems
    assert any(stage.keys.unmet("last") in line or "on which it does not depend" in line for line in told)
    assert {"first"} == redis.smembers(stage.keys.unmet("last"))
    assert 1 == redis.hlen(stage.keys.quarantine)
    stage.store.finish(claimed(stage.store).held, ending(Event.COMPLETE), "worker:w")
    assert State.PENDING == redis.hget(stage.keys.task("last"), "state")
    clear_poison(stage)
    assert [] == audit(redis, stage.keys, ["first", "last"], quarantined=1)


def test_the_end_of_a_stranger_cancels_nobody(redis: Redis) -> None:
    """A task that stands among the dependents of another by mistake goes on waiting for its own."""
    stage = scene(redis)
    stage.store.submit_many([submission("first"), submission("another")])
    stage.store.submit_many([submission(f"d-{other}", depends_on=(other,)) for other in ("first", "another")])
    redis.zadd(stage.keys.dependents("another"), {"d-first": 1})
    stage.store.cancel("another", "tester")
    assert [State.BLOCKED, State.CANCELLED] == [
        redis.hget(stage.keys.task(f"d-{other}"), "state") for other in ("first", "another")
    ]


@pytest.mark.parametrize("place", ["listed", "parked"])
def test_a_place_that_holds_nothing_any_more_is_named_no_more(redis: Redis, place: str) -> None:
    """The set that names the places of a kind is put right in the same step."""
    stage = scene(redis)
    keys = stage.keys
    names, member = {"listed": (keys.listed_places, "q:gone"), "parked": (keys.parked_types("q"), "gone")}[place]
    redis.sadd(names, member)
    redis.zadd(f"{keys.prefix}{place}:q:gone", {"nobody": 1})
    prune_all(stage)
    assert not redis.sismember(names, member)


@pytest.mark.parametrize("name", range(12))
def test_a_step_goes_on_where_the_last_one_was_whatever_came_and_went(redis: Redis, name: int) -> None:
    """Keys that are made or deleted between two steps move all others; the index that was begun is looked through."""
    stage = scene(redis)
    begun, others = stage.keys.owned(f"begun{name}"), [stage.keys.owned(f"other{number}") for number in range(60)]
    redis.zadd(begun, {f"gone{number}": number for number in range(90)})
    stage.redis.delete(stage.keys.prune)
    for number, other in enumerate(others):
        Upkeep(stage.store).prune(BY_WATCHDOG)
        if not redis.exists(begun):
            break
        assert stage.redis.hget(stage.keys.prune, "round") in (None, "0"), "a round has gone past it"
        redis.zadd(other, {f"x{at}": at for at in range(3)})
        redis.delete(others[number - 3])
        redis.hdel(stage.keys.prune, "at")
    assert not redis.exists(begun)

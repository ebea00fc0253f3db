"""Wrong types and corrupt fields: every script finds them before its first write and names what is wrong."""

import inspect
import itertools
import re
from contextlib import suppress

import pytest
from audit import audit
from ghostless.jobs.errors import CorruptRecord
from ghostless.jobs.groups import BEGINNING
from ghostless.jobs.keys import Keys
from ghostless.statemachine import Event, State
from helpers import heard
from redis import Redis
from scripts.listening import GROUP, HOST, URL, announce_callbacks, groups_of, listen
from scripts.seeding import (
    ALL,
    DEPENDENCY,
    ID,
    OTHER_TYPE,
    PARK,
    PLACE,
    PURGE_ARCHIVED,
    QUEUE,
    UNNAMED,
    Carrier,
    Scene,
    end_with_a_callback,
    finish,
    fire,
    scene,
    set_up,
    submission,
    wish,
)
from scripts.snapshot import difference, snapshot

OTHER = wish("w2", "cc33")


def _submit_all(stage: Scene):
    return stage.store.submit(submission(owner="ann", metadata_json="{}", idempotency_key="k1"))


def _another_waits(stage: Scene) -> None:
    stage.store.submit(submission("t2"))


def _a_callback_to_tell(stage: Scene) -> None:
    groups_of(stage.store).create(GROUP, BEGINNING)
    end_with_a_callback(stage)


RICH = (
    Carrier("submit", _submit_all, None),
    Carrier(
        "submit", lambda s: s.store.submit(submission(callback_url=URL)), None, lambda s: announce_callbacks(s.store)
    ),
    Carrier("listen", lambda s: listen(s.store, needed="callback"), State.PENDING, _a_callback_to_tell),
    Carrier("submit", lambda s: s.store.submit(submission(delay=60_000)), None),
    Carrier("finish", lambda s: finish(s, Event.COMPLETE, claim=OTHER), prepare=_another_waits),
    Carrier("finish", lambda s: finish(s, Event.COMPLETE), State.CANCELLING),
    Carrier("finish", lambda s: finish(s, Event.FAIL), State.PAUSING),
    Carrier("cancel", lambda s: s.store.cancel(ID, "tester"), State.PENDING),
    Carrier("cancel", lambda s: s.store.cancel(ID, "tester"), State.RETRY_WAITING),
    PURGE_ARCHIVED,
)
"""Calls that touch keys which the plain ones leave alone."""


def _another_depends(stage: Scene) -> None:
    stage.store.submit(submission("t2", depends_on=(ID,)))


DEPENDENT = (
    Carrier("submit", lambda s: s.store.submit(submission("t2", depends_on=(ID,), delay=60_000)), State.PENDING),
    Carrier("submit", lambda s: s.store.submit(submission("t2", depends_on=(ID,))), State.FAILED),
    Carrier("finish", lambda s: finish(s, Event.COMPLETE), prepare=_another_depends),
    Carrier("finish", lambda s: finish(s, Event.FAIL, retryable=False), prepare=_another_depends),
    Carrier("cancel", lambda s: s.store.cancel(ID, "tester"), State.BLOCKED),
    Carrier("cancel", lambda s: s.store.cancel(DEPENDENCY, "tester"), State.BLOCKED),
)
"""Calls that make tasks wait for each other, or end that."""

SINGLE = [carrier for carrier in ALL if carrier not in (PARK, UNNAMED)]
"""What acts on the one task only."""

BATCH = {
    *("unpark", "release", "sweep", "requeue", "settle", "recheck", "purge"),
    *("repair", "patrol", "prune", "unnamed", "recount", "work_bulk", "dispatch"),
}

MENDING = {"repair", "patrol", "prune"}


def touched(redis: Redis, carrier: Carrier) -> set[str]:
    """Return every key that the carrier's script names to Redis, as MONITOR sees it."""
    stage = scene(redis)
    set_up(stage, carrier)
    commands = [told["command"] for told in heard(redis, lambda: carrier.call(stage)) if told["client_type"] == "lua"]
    patterns_and_channels = ("SCAN", "PUBLISH")
    named = [command for command in commands if not command.startswith(patterns_and_channels)]
    found = {key for command in named for key in re.findall(r"(?:ghostless|rq):[^\s\"]+", command)}
    return {key for key in found if not key.startswith("rq:pubsub:") and key != stage.keys.live}


def right_type(keys: Keys, key: str) -> str:
    """Return the type that a key must have: the first word of its function's docstring."""
    for name, function in inspect.getmembers(Keys, lambda member: isinstance(member, property) or callable(member)):
        kind = (inspect.getdoc(function) or "").split(":")[0].split(" ")[0]
        if kind in ("hash", "string", "list", "zset", "set", "stream"):
            whole = isinstance(function, property)
            known = getattr(keys, name) if whole else getattr(keys, name)("")
            if key == known or (not whole and key.startswith(known)):
                return kind
    return {"rq:queues": "set", "rq:suspended": "string"}[key]


def spoil(redis: Redis, key: str, kind: str) -> None:
    """Replace whatever stands at a key by something small of another type."""
    redis.delete(key)
    writers = {
        "string": lambda: redis.set(key, "of another type"),
        "list": lambda: redis.rpush(key, "of another type"),
        "zset": lambda: redis.zadd(key, {"of another type": 1}),
        "set": lambda: redis.sadd(key, "of another type"),
    }
    writers[kind]()


@pytest.mark.parametrize("carrier", [*SINGLE, *RICH], ids=lambda carrier: f"{carrier.verb}-{carrier.state}")
def test_a_wrong_type_at_any_key_stops_the_script_before_its_first_write(redis: Redis, carrier: Carrier) -> None:
    """Whatever key has the wrong type: the answer names it and not a byte changed, or the move is whole."""
    stage, keys, names = scene(redis), Keys(), touched(redis, carrier)
    assert len(names) >= 2
    for key, kind in itertools.product(sorted(names), ("string", "list", "zset")):
        if kind != right_type(keys, key):
            stage.start_over()
            set_up(stage, carrier)
            spoil(redis, key, kind)
            assert_all_or_nothing(stage, carrier, key)


def assert_all_or_nothing(stage: Scene, carrier: Carrier, key: str) -> None:
    """Make the call beside a damaged key, and check that it did nothing, or all of its work, or set the task aside."""
    before, raised = snapshot(stage.redis), None
    try:
        word = fire(stage, carrier)
    except CorruptRecord as error:
        word, raised = "damaged", str(error)
    changed = difference(before, snapshot(stage.redis)).keys()
    where = (key, stage.redis.type(key), word, raised)
    if carrier.verb in MENDING and any(key in str(told) for told in stage.store.reply[2:]):
        return  # what is damaged is told, and the rest of the task put right
    if carrier.verb == "prune" and word == "kept":
        assert changed <= {stage.keys.prune}, where  # it looks for indices by their type
    elif word in ("moved", "claimed"):
        violations = audit(stage.redis, stage.keys, [] if carrier.verb == "purge" else [ID])
        assert [] == [violation for violation in violations if ID in violation and key not in violation], where
    elif carrier.verb in BATCH:
        problems = [raised] if raised else _told(stage, carrier)
        assert any(key in problem for problem in problems), where
        traces = {stage.keys.watchdog, stage.keys.patrol, stage.keys.prune, stage.keys.bulks_running}
        traces |= {name for name in changed if name.startswith(stage.keys.bulk(""))}  # which counts it as damaged
        # When it is looked at again, and that a task whose dependents cannot be read has none.
        postponed = {"requeue": {stage.keys.task(ID)}, "settle": {stage.keys.task(DEPENDENCY)}}.get(carrier.verb, set())
        was_set_aside = stage.redis.exists(stage.keys.set_aside(key))
        aside = {key, stage.keys.set_aside(key)} if was_set_aside else set()
        assert changed <= {*indices(stage), stage.keys.quarantine, *traces, *postponed, *aside}, where
    elif word == "empty":
        assert [key in problem for problem in stage.redis.hvals(stage.keys.quarantine)] == [True], where
        assert changed <= {*indices(stage), stage.keys.quarantine, stage.keys.wake(QUEUE)}
    else:
        assert word in ("damaged", "purged", "suspended"), where
        assert raised is None or key in raised, where
        assert set() == changed, where


def _told(stage: Scene, carrier: Carrier) -> list[str]:
    """Return the problems that a step over many told of."""
    return stage.store.reply[1] if carrier.verb == "dispatch" else stage.store.reply[2:]


@pytest.mark.parametrize("carrier", DEPENDENT, ids=lambda carrier: f"{carrier.verb}-{carrier.state}")
def test_a_wrong_type_beside_tasks_that_wait(redis: Redis, carrier: Carrier) -> None:
    """The call does nothing and names the key, or its task moves whole, whatever is damaged of those that wait."""
    stage, names = scene(redis), touched(redis, carrier)
    for key, kind in itertools.product(sorted(names), ("string", "list", "zset", "set")):
        if kind != right_type(stage.keys, key):
            stage.start_over()
            set_up(stage, carrier)
            spoil(redis, key, kind)
            assert_whole_or_nothing(stage, carrier, key)


def assert_whole_or_nothing(stage: Scene, carrier: Carrier, key: str) -> None:
    """Make the call beside a damaged key, let the watchdog settle what is left, and look at all that is not damaged."""
    before, told = snapshot(stage.redis), ""
    try:
        carrier.call(stage)
    except CorruptRecord as error:
        told = str(error)
    if told:
        assert key in told
        assert {} == difference(before, snapshot(stage.redis)), key
        return
    moved = stage.store.reply[0][1:3] if carrier.verb == "finish" else stage.store.reply[1:3]
    assert "id" == moved[0]
    with suppress(CorruptRecord):
        stage.store.settle()
    damaged = key.rpartition(":")[2]
    lines = [line for line in audit(stage.redis, stage.keys) if key not in line and damaged not in line]
    assert [] == [line for line in lines if f" {moved[1]} " in line or line.startswith("e:")], key


def indices(stage: Scene) -> set[str]:
    """Return the indices that a batch takes a damaged member from, or puts it further back in."""
    keys = stage.keys
    blocked = {keys.settling, keys.dependents(DEPENDENCY), keys.state(State.BLOCKED)}
    return {
        keys.due,
        keys.deadlines,
        keys.retention,
        keys.pending(QUEUE),
        keys.rq_queue(QUEUE),
        *parking(keys),
        *blocked,
        *(keys.due_receivers, keys.due_deliveries(HOST)),
    }


def parking(keys: Keys) -> set[str]:
    """Return the keys in which a task is parked."""
    return {keys.parked(PLACE), keys.parked_types(QUEUE)}


def test_a_wrong_type_beside_a_task_that_is_parked(redis: Redis) -> None:
    """The task is parked whole, set aside, or stays where it is, and what is wrong is named."""
    parking_only = Carrier("claim", lambda s: s.store.claim(wish("w2", "cc33", OTHER_TYPE)), State.PENDING)
    stage, keys, names = scene(redis), Keys(), touched(redis, parking_only)
    assert {keys.parked(PLACE), keys.parked_types(QUEUE), keys.pending(QUEUE)} < names
    for key, kind in itertools.product(sorted(names), ("string", "list", "zset", "set")):
        if kind != right_type(keys, key):
            stage.start_over()
            set_up(stage, parking_only)
            spoil(redis, key, kind)
            assert_parked_or_not(stage, parking_only, key)


def assert_parked_or_not(stage: Scene, carrier: Carrier, key: str) -> None:
    """Make the call beside a damaged key, and check that the task is in one place, or in quarantine."""
    before, told = snapshot(stage.redis), ""
    try:
        carrier.call(stage)
    except CorruptRecord as error:
        told = str(error)
    changed = difference(before, snapshot(stage.redis)).keys()
    if told:
        assert key in told
        assert set() == changed, key
    elif stage.redis.hlen(stage.keys.quarantine):
        assert [key in problem for problem in stage.redis.hvals(stage.keys.quarantine)] == [True]
    else:
        assert [] == [line for line in audit(stage.redis, stage.keys, [ID]) if ID in line and key not in line], key


NOT_NUMBERS = ("", "one", "1.5", "-1", "inf", "nan", "1e30", "0x1g")
FIELDS = [
    *((field, value) for field in ("attempt", "failures", "timeouts", "losses", "entries") for value in NOT_NUMBERS),
    *((field, value) for field in ("entered_at", "timeout_at", "parked_at") for value in NOT_NUMBERS),
    *(("state", value) for value in ("", "NOWHERE", "processing", State.TIMEOUT, None)),
    *(("policy", value) for value in ("", "1,x", "a,b,c,d,e,f,g", "1,2,3,4,5,6,-7", None)),
    ("type", None),
    ("type", "a,b"),
    ("queue", None),
    ("entered_at", None),
]
ON_NONE = {"put_back", "begin_bulk", "stop_bulk", "subscribe", "listen", "dismiss", "revise"}
"""What looks at the record of no task."""

ON_ONE_TASK = [
    carrier
    for carrier in (*SINGLE, *RICH)
    if carrier.verb not in {*BATCH, *ON_NONE, "claim"} and carrier.state is not None
]
SUBMIT_AGAIN = Carrier("submit", lambda s: s.store.submit(submission()), State.PENDING)


@pytest.mark.parametrize(("field", "value"), FIELDS)
def test_a_corrupt_field_is_named_and_nothing_is_written(redis: Redis, field: str, value: str | None) -> None:
    """Every verb that acts on one task answers a corrupt field of it with an error that names task and field."""
    stage = scene(redis)
    for carrier in (*ON_ONE_TASK, SUBMIT_AGAIN):
        stage.start_over()
        set_up(stage, carrier)
        corrupt(stage, field, value)
        before = snapshot(redis)
        with pytest.raises(CorruptRecord, match=f"{stage.keys.task(ID)} field {field}") as caught:
            carrier.call(stage)
        assert {} == difference(before, snapshot(redis)), (carrier.verb, str(caught.value))


def corrupt(stage: Scene, field: str, value: str | None) -> None:
    """Overwrite a field of the task, or remove it."""
    if value is None:
        stage.redis.hdel(stage.keys.task(ID), field)
    else:
        stage.redis.hset(stage.keys.task(ID), field, value)

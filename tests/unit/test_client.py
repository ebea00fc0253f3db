"""The core that everything above uses: what it answers, what it raises, and that a refusal stores nothing."""

import json
from typing import Any

import pytest
from audit import audit
from ghostless.jobs.client import MESSAGE_LIMIT, Client, Submitted
from ghostless.jobs.errors import (
    CorruptRecord,
    GhostlessError,
    IllegalMove,
    InvalidParams,
    InvalidTask,
    RedisFull,
    RedisRefused,
    RedisUnavailable,
    TaskConflict,
    TaskNotFound,
    UnknownTaskType,
)
from ghostless.jobs.scripts import translate
from ghostless.jobs.settings import Settings
from ghostless.jobs.submission import Request
from ghostless.statemachine import STORED, Event, Policy, State, Verdict, judge
from helpers import free_port
from redis import Redis
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
)
from scripts.seeding import ID, OWNER, Scene, SpiedStore, put
from scripts.snapshot import difference, snapshot

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 3}},
    "required": ["a"],
    "additionalProperties": False,
}


def publish(client: Client, name: str = "demo.add", schema: Any = SCHEMA) -> None:
    """Publish a task type as a worker does."""
    kind = {"queue": "q", "policy": Policy().pack(), "schema": schema, "description": "adds"}
    client.store.publish_types({name: kind})


@pytest.fixture
def ready(client: Client) -> Client:
    """A client of a database in which one type is published."""
    publish(client)
    return client


def test_a_task_is_accepted_once(ready: Client, redis: Redis) -> None:
    """The first submit creates it; the same wish again, in any order of keys, answers the same task."""
    first = ready.submit("demo.add", {"a": 1, "b": "x"}, id=ID, owner="ann", actor="cli")
    again = ready.submit("demo.add", {"b": "x", "a": 1}, id=ID)
    assert (Submitted(ID, State.PENDING, True), Submitted(ID, State.PENDING, False)) == (first, again)
    (entry,) = ready.history(ID)
    assert ("SUBMIT", "cli", "user", "ann") == (entry.event, entry.actor, entry.reason, entry.owner)
    assert [] == audit(redis, ready.store.keys, [ID])


def test_a_task_without_params_has_an_empty_object(client: Client) -> None:
    """`submit` of a type is enough; the id is made."""
    publish(client, "demo.free", {})
    task = client.get(client.submit("demo.free").task_id)
    assert ({}, "demo.free", "q") == (task.params, task.type, task.queue)


def test_a_taken_id_or_key_is_a_conflict_that_names_its_task(ready: Client, redis: Redis) -> None:
    """Other params under the same id or the same idempotency key raise TaskConflict and store nothing."""
    ready.submit("demo.add", {"a": 1}, id=ID, idempotency_key="order 7")
    before = snapshot(redis)
    with pytest.raises(TaskConflict, match=f"id '{ID}'"):
        ready.submit("demo.add", {"a": 2}, id=ID)
    with pytest.raises(TaskConflict, match="idempotency key 'order 7'") as caught:
        ready.submit("demo.add", {"a": 2}, idempotency_key="order 7")
    assert (ID, "order 7") == (caught.value.task_id, caught.value.idempotency_key)
    assert {} == difference(before, snapshot(redis))


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        ({"task_type": "demo.ad", "params": {"a": 1}}, UnknownTaskType),
        ({"task_type": "demo.add", "params": {}}, InvalidParams),
        ({"task_type": "demo.add", "params": {"a": 1}, "timeout": -1}, InvalidTask),
        ({"task_type": "demo.add", "params": {"a": float("nan")}}, InvalidTask),
    ],
)
def test_what_is_refused_is_not_stored(ready: Client, redis: Redis, wish: dict[str, Any], error: type) -> None:
    """A wrong wish raises before anything reaches Redis."""
    before = snapshot(redis)
    with pytest.raises(error):
        ready.submit(**wish)
    assert {} == difference(before, snapshot(redis))


def test_params_are_checked_whole(ready: Client) -> None:
    """Every fault is named by its path, not only the first."""
    with pytest.raises(InvalidParams) as caught:
        ready.submit("demo.add", {"a": "one", "b": "long", "c": 1})
    assert {"params.a", "params.b", "params"} == {fault.field for fault in caught.value.faults}


def test_an_unknown_type_is_told_with_its_likeness(ready: Client) -> None:
    """A near miss names what may have been meant; without one the advice is to start a worker."""
    with pytest.raises(UnknownTaskType, match=r"did you mean demo\.add\?"):
        ready.submit("demo.addd")
    with pytest.raises(UnknownTaskType, match="start a worker that serves it first"):
        ready.submit("something.else")


PUBLISHED = {"queue": "q", "policy": Policy().pack(), "schema": {}, "description": ""}


@pytest.mark.parametrize(
    "damage",
    [
        *("", "null", "7", "[]", "{}", "{", "[" * 100_000, b"\xff"),
        *({"queue": None}, {"queue": ""}, {"queue": "a b"}, {"policy": 7}, {"policy": "1e400"}),
        *({"schema": 7}, {"schema": {"type": "nothing"}}, {"schema": {"$ref": "#/nowhere"}}),
    ],
    ids=lambda damage: str(damage)[:20],
)
def test_a_damaged_type_keeps_nobody_from_the_others(ready: Client, redis: Redis, damage: Any) -> None:
    """What cannot be read of one published type is refused when it is asked for; the others are served."""
    text = json.dumps({**PUBLISHED, **damage}) if isinstance(damage, dict) else damage
    redis.hset(ready.store.keys.types, mapping={"damaged": text, b"\xfe": text})
    assert ready.submit("demo.add", {"a": 1})
    assert "demo.add" in ready.types()
    assert () == ready.store.requeue("watchdog", "q").problems
    with pytest.raises((UnknownTaskType, InvalidParams), match="damaged"):
        ready.submit("damaged")


def test_what_is_published_later_counts_at_once(ready: Client) -> None:
    """What a client remembers never refuses a submit: it reads again before it says no."""
    ready.submit("demo.add", {"a": 1})
    publish(ready, "demo.new", {})
    assert ready.submit("demo.new").created
    publish(ready, "demo.add", {})
    assert ready.submit("demo.add", {"anything": True}).created
    assert {"demo.add", "demo.new"} == ready.types().keys()


def test_many_are_submitted_in_their_order(ready: Client, redis: Redis) -> None:
    """Two hundred and fifty tasks, one twice and one in conflict: each has its answer in its place."""
    ready.submit("demo.add", {"a": -1}, id="t7")
    requests = [Request("demo.add", {"a": number}, id=f"t{number}") for number in range(250)]
    answers = ready.submit_many([*requests, requests[3]])
    assert isinstance(answers[7], TaskConflict)
    assert Submitted("t3", State.PENDING, False) == answers[250]
    good = [answer for at, answer in enumerate(answers) if at not in (7, 250)]
    assert [f"t{number}" for number in range(250) if number != 7] == [answer.task_id for answer in good]
    assert [] == audit(redis, ready.store.keys, [f"t{number}" for number in range(250)])


def test_one_wrong_among_many_stores_none(ready: Client, redis: Redis) -> None:
    """All are checked before the first is stored."""
    before = snapshot(redis)
    with pytest.raises(InvalidTask, match="id: expected text"):
        ready.submit_many([Request("demo.add", {"a": 1}), Request("demo.add", {"a": 1}, id="not an id")])
    assert {} == difference(before, snapshot(redis))


ACTIONS = {"cancel": Event.CANCEL, "pause": Event.PAUSE, "resume": Event.RESUME, "retry": Event.RETRY}


@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_person_is_told_the_truth(client: Client, redis: Redis, action: str, state: State) -> None:
    """Each action in each state: moved, already so, or IllegalMove with the state it is in."""
    put(Scene(redis, SpiedStore(redis)), state)
    event, act = ACTIONS[action], getattr(client, action)
    verdict, after = judge(state, event)
    if verdict is Verdict.REFUSED:
        with pytest.raises(IllegalMove, match=f"is {state}, and {event} is not possible there") as caught:
            act(ID)
        assert (ID, event, state) == (caught.value.task_id, caught.value.event, caught.value.state)
    else:
        answer = act(ID, actor="ann", message="because")
        assert (verdict, after, after) == (answer.word, answer.state, client.get(ID).state)
        if verdict is Verdict.MOVED:
            entry = client.history(ID)[-1]
            assert (event, "ann", "because") == (entry.event, entry.actor, entry.message)
    assert [] == audit(redis, client.store.keys, [ID])


@pytest.mark.parametrize("action", [*ACTIONS, "get", "history"])
def test_an_unknown_task_is_not_found(client: Client, redis: Redis, action: str) -> None:
    """Every call about an id that does not exist raises TaskNotFound, and writes nothing."""
    with pytest.raises(TaskNotFound, match="no task has the id 'nobody'"):
        getattr(client, action)("nobody")
    assert {} == snapshot(redis)


def test_a_long_message_is_cut_to_its_limit_in_bytes(client: Client, redis: Redis) -> None:
    """Two KB of UTF-8 are kept, cut between two characters."""
    put(Scene(redis, SpiedStore(redis)), State.PENDING)
    client.cancel(ID, message="é" * 5_000)
    assert "é" * (MESSAGE_LIMIT // 2) == client.history(ID)[-1].message


@pytest.mark.parametrize("state", STORED)
def test_a_task_is_shown_whole(client: Client, redis: Redis, state: State) -> None:
    """In every state: record and bulky values, as plain JSON, with the cursor of its newest entry."""
    put(Scene(redis, SpiedStore(redis)), state, metadata_json='{"m":1}')
    task = client.get(ID)
    view = json.loads(json.dumps(task.to_dict()))
    assert (ID, state, {"a": 1}, {"m": 1}, OWNER) == tuple(
        view[n] for n in ("id", "state", "params", "metadata", "owner")
    )
    assert client.history(ID)[-1].id == task.cursor
    assert ({"sum": 3} if state is State.SUCCESS else None) == task.result
    assert ("Traceback: it broke" if state in ("FAILED", "TIMEOUT_CANCELLED", "RETRY_WAITING") else None) == task.error
    assert (task.entered_at if task.is_final else None) == task.finished_at
    awaited = {State.SCHEDULED: 1} if state is State.BLOCKED else {}
    assert {**dict.fromkeys(STORED, 0), state: 1, **awaited} == client.counts()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "NOWHERE"), ("attempt", "one"), ("submitted_at", ""), ("entered_at", "x"), ("policy", "1,x"),
        ("progress", "half"), ("due_at", "soon"), ("failures", "many"),
        ("type", None), ("queue", None), ("submitted_at", None),
        # To the scripts these are damage, so such a task never moves: nobody may be told that it will.
        ("attempt", "-1"), ("attempt", "1_0"), ("attempt", " 1"), ("attempt", "١"), ("entered_at", str(2**53)),
        ("losses", "9" * 400), ("entries", "-1"), ("lease", ""), ("patience", "junk"), ("type", ""), ("type", "a b\n"),
        ("progress", "nan"), ("progress", "inf"),  # no JSON has a form for them
    ],
)  # fmt: skip
def test_a_damaged_record_is_named(client: Client, redis: Redis, field: str, value: str | None) -> None:
    """`get` raises CorruptRecord that names the task, and nothing else."""
    put(Scene(redis, SpiedStore(redis)), State.PENDING)
    if value is None:
        redis.hdel(client.store.keys.task(ID), field)
    else:
        redis.hset(client.store.keys.task(ID), field, value)
    with pytest.raises(CorruptRecord, match=ID):
        client.get(ID)


@pytest.mark.parametrize(
    ("field", "value"), [("entries", "many"), ("entries", "9"), ("h1", "garbage"), ("h1", ""), ("h1", "1-1")]
)
def test_a_damaged_history_is_named(client: Client, redis: Redis, field: str, value: str) -> None:
    """`history` raises CorruptRecord when it cannot tell the whole story."""
    put(Scene(redis, SpiedStore(redis)), State.PENDING)
    redis.hset(client.store.keys.task(ID), field, value)
    with pytest.raises(CorruptRecord, match=f"{ID}|history"):
        client.history(ID)


def test_values_of_a_wrong_type_or_no_json_are_named(client: Client, redis: Redis) -> None:
    """A record of another type, and a result that is no JSON, raise CorruptRecord."""
    put(Scene(redis, SpiedStore(redis)), State.SUCCESS)
    redis.set(client.store.keys.result(ID), "{")
    with pytest.raises(CorruptRecord, match=ID):
        client.get(ID)
    redis.set(client.store.keys.task("t2"), "text")
    for read in (client.get, client.history, client.cancel):
        with pytest.raises(CorruptRecord, match="t2"):
            read("t2")


def test_a_redis_that_is_not_there_is_told_as_such(tmp_path: Any) -> None:
    """Every call raises RedisUnavailable, with the address of the setting to look at."""
    client = Client(Settings(redis_url=f"redis://127.0.0.1:{free_port()}/0"))
    calls = [
        lambda: client.submit("demo.add"), lambda: client.get(ID), lambda: client.history(ID), lambda: client.list(),
        lambda: client.cancel(ID), client.counts, client.types,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RedisUnavailable, match="check GHOSTLESS_REDIS_URL"):
            call()


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (ConnectionError("refused"), RedisUnavailable),
        (TimeoutError("slow"), RedisUnavailable),
        (BusyLoadingError("LOADING Redis is loading the dataset in memory"), RedisUnavailable),
        (ReadOnlyError("You can't write against a read only replica."), RedisUnavailable),
        (ResponseError("BUSY Redis is busy running a script"), RedisUnavailable),
        (ResponseError("MISCONF Redis is configured to save RDB snapshots"), RedisUnavailable),
        (ResponseError("UNBLOCKED force unblock from blocking operation"), RedisUnavailable),
        (
            ResponseError("OOM command not allowed when used memory > 'maxmemory'. script: 1f, on @user_script:1."),
            RedisFull,
        ),
        (OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), RedisFull),
        (ResponseError("CORRUPT ghostless:task:t1: expected hash, got string"), CorruptRecord),
        (ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), CorruptRecord),
        (NoScriptError("No matching script."), RedisRefused),
        (ResponseError("NOPERM no permissions to run the hgetall command"), RedisRefused),
    ],
    ids=lambda value: str(value)[:24],
)
def test_errors_of_redis_become_ours(error: Exception, ours: type) -> None:
    """Every error of Redis is told as one of ours, so that no loop ends by one that it does not know."""
    assert ours is type(translate(error))  # type: ignore[arg-type]
    assert issubclass(ours, GhostlessError)

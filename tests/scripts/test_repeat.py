"""Calls that arrive twice, at once, or at a Redis that forgot the scripts: the outcome is that of one call."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from audit import audit
from ghostless.jobs.errors import RedisFull, StaleAttempt
from ghostless.jobs.keys import BEAT
from ghostless.jobs.messages import Claimed, NothingToClaim
from ghostless.jobs.settings import Settings
from ghostless.statemachine import Event, State
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry
from redis_server import RedisServer
from scripts.seeding import (
    ALL,
    HAND_OUT,
    ID,
    Carrier,
    Scene,
    SpiedStore,
    claimed,
    finish,
    fire,
    make_outdated,
    put,
    scene,
    set_up,
    submission,
    wish,
)
from scripts.snapshot import difference, snapshot


def _two_wait(stage: Scene) -> None:
    stage.store.submit(submission("t2"))
    stage.store.submit(submission("t3"))


def _finish_and_claim(event: Event) -> Carrier:
    claim = wish("w1", "cc33")
    return Carrier("finish", lambda s: finish(s, event, claim=claim), prepare=_two_wait)


CALLS = [
    *ALL,
    _finish_and_claim(Event.COMPLETE),
    _finish_and_claim(Event.FAIL),
    _finish_and_claim(Event.SUSPEND),
    Carrier(
        "submit", lambda s: s.store.submit(submission(idempotency_key="k", metadata_json="[1]", delay=9_000)), None
    ),
]
each_call = pytest.mark.parametrize(
    "carrier", CALLS, ids=[f"{number}-{call.verb}" for number, call in enumerate(CALLS)]
)
PURGED = {"purge"}


def settled(stage: Scene) -> dict[str, Any]:
    """Return the database without what a renewed lease and a later look of the watchdog may change."""
    keys, picture = stage.keys, snapshot(stage.redis)
    picture.pop(keys.watchdog, None)
    for key, (kind, expires_at, content) in picture.items():
        if isinstance(content, dict):
            content.pop("progress_at", None)
            content = {name: text for name, text in content.items() if not name.startswith(BEAT)}
        renewed = key.startswith((keys.heartbeat(""), keys.claim(""), keys.idempotency("")))
        picture[key] = (kind, bool(expires_at) if renewed else expires_at, content)
    return picture


@each_call
def test_a_call_that_is_sent_twice_does_its_work_once(backend: Redis, carrier: Carrier) -> None:
    """The very same bytes sent again leave the same database, and are not answered as a refusal (B40)."""
    stage = scene(backend)
    set_up(stage, carrier)
    first = fire(stage, carrier)
    told, before = stage.store.answer, settled(stage)
    stage.store.send_again()
    again = stage.store.answer
    assert {} == difference(before, settled(stage))
    if first == "claimed":
        assert told == again
    elif not isinstance(again[0], int) and carrier.verb not in HAND_OUT:
        assert again[0] in ("moved", "already", "stale", "refused"), again
        assert again[0] == "stale" or told[1:7] == again[1:7], "another state or attempt is told"
    assert [] == audit(backend, stage.keys, [] if carrier.verb in PURGED else [ID])


@each_call
def test_a_call_whose_reply_is_lost_is_sent_again_by_the_client_itself(
    redis: Redis, redis_server: RedisServer, carrier: Carrier
) -> None:
    """While Redis sleeps the client re-sends; Redis then runs every copy, and the work is done once (B40)."""
    stage = scene(redis)
    for _ in range(5):  # on a busy machine the sleep can be over before the client lost its patience
        stage.start_over()
        set_up(stage, carrier)
        copies = call_while_redis_sleeps(stage, redis_server, carrier)
        assert [] == audit(redis, stage.keys, [] if carrier.verb in PURGED else [ID])
        entries = [(entry["task"], entry["event"], entry["attempt"]) for _, entry in redis.xrange(stage.keys.history)]
        assert [] == [entry for entry, times in Counter(entries).items() if times > 1]
        if copies > 1:
            return
    pytest.fail("Redis never got a second copy of the call")


def call_while_redis_sleeps(stage: Scene, redis_server: RedisServer, carrier: Carrier) -> int:
    """Make the call with a client that waits for less than Redis sleeps; return how often Redis ran the script."""
    redis, path = stage.redis, str(redis_server.socket)
    retry = Retry(ConstantBackoff(0.01), 40, supported_errors=(ConnectionError, TimeoutError))
    with Redis(unix_socket_path=path, decode_responses=True, protocol=2, socket_timeout=0.03, retry=retry) as hasty:
        impatient = replace(stage, redis=hasty, store=SpiedStore(hasty))
        hasty.ping()
        redis.config_resetstat()
        sleeper = redis.connection_pool.get_connection()
        sleeper.send_command("DEBUG", "SLEEP", "0.1")
        with suppress(StaleAttempt):  # the second copy of a SUSPEND may come when the task is held anew
            carrier.call(impatient)
        sleeper.read_response()
        redis.connection_pool.release(sleeper)
    return redis.info("commandstats")["cmdstat_evalsha"]["calls"]


@each_call
def test_every_call_survives_that_redis_forgot_the_scripts(redis: Redis, carrier: Carrier) -> None:
    """After SCRIPT FLUSH the first call loads its script again and works (B53)."""
    stage = scene(redis)
    set_up(stage, carrier)
    redis.script_flush("SYNC")
    assert fire(stage, carrier) in ("moved", "claimed")
    assert [] == audit(redis, stage.keys, [] if carrier.verb in PURGED else [ID])


def test_calls_sent_together_survive_a_flush_of_the_scripts(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that are flushed between loading and call, inside one pipeline, are called again alone (B53)."""
    stage = scene(redis)
    pipeline = redis.pipeline

    def forgetful(**options: Any) -> Any:
        made = pipeline(**options)
        made.script_load = lambda script: made.execute_command("SCRIPT", "FLUSH", "SYNC")
        return made

    redis.script_flush("SYNC")
    monkeypatch.setattr(redis, "pipeline", forgetful)
    answers = stage.store.submit_many([submission("t1"), submission("t2"), submission("t1")])
    assert ["moved", "moved", "already"] == [answer.word for answer in answers]
    assert [] == audit(redis, stage.keys, ["t1", "t2"])


def test_calls_sent_together_have_an_answer_each(redis: Redis) -> None:
    """One damaged task among many does not hide what became of the others."""
    stage = scene(redis)
    redis.rpush(stage.keys.task("t2"), "of another type")
    answers = stage.store.submit_many([submission(f"t{number}") for number in (1, 2, 3)])
    assert ["Answer", "CorruptRecord", "Answer"] == [type(answer).__name__ for answer in answers]
    assert not any(isinstance(answer, RedisFull) for answer in answers)


def all_at_once(number: int, call: Callable[[int], Any]) -> list[Any]:
    """Make a call from many threads that begin together; return what each got."""
    gate = threading.Barrier(number)

    def wait_and_call(index: int) -> Any:
        gate.wait(10)
        return call(index)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(wait_and_call, range(number)))


def test_fifty_submits_of_one_id_make_one_task(redis: Redis) -> None:
    """One is accepted, 49 hear `already` (B61)."""
    stage = scene(redis)
    answers = all_at_once(50, lambda index: stage.store.submit(submission(actor=f"client{index}")))
    assert {"moved": 1, "already": 49} == Counter(answer.word for answer in answers)
    assert [ID] == stage.queue
    assert [] == audit(redis, stage.keys, [ID])


def test_fifty_ids_under_one_idempotency_key_make_one_task(redis: Redis) -> None:
    """One is accepted, 49 hear `already` with the id of the one that was."""
    stage = scene(redis)
    answers = all_at_once(50, lambda index: stage.store.submit(submission(f"t{index}", idempotency_key="order-7")))
    assert {"moved": 1, "already": 49} == Counter(answer.word for answer in answers)
    assert 1 == len({answer.task_id for answer in answers}) == len(stage.queue)
    assert [] == audit(redis, stage.keys, {answer.task_id for answer in answers})


@pytest.mark.parametrize("state", [state for state in State if state is not State.TIMEOUT])
def test_an_id_or_key_that_is_taken_by_another_wish_is_a_conflict(backend: Redis, state: State) -> None:
    """Another fingerprint under the same id, or the same idempotency key, is refused in every state (B61)."""
    stage = scene(backend)
    put(stage, state, idempotency_key="order-7")
    before = snapshot(backend)
    other = {"fingerprint": "another"}
    from_id = stage.store.submit(replaced(submission(), **other))
    from_key = stage.store.submit(replaced(submission("t2", idempotency_key="order-7"), **other))
    same_key = stage.store.submit(submission("t3", idempotency_key="order-7"))
    assert [("conflict", ID), ("conflict", ID), ("already", ID)] == [
        (answer.word, answer.task_id) for answer in (from_id, from_key, same_key)
    ]
    assert {} == difference(before, snapshot(backend))


def test_an_idempotency_key_outlives_its_task(backend: Redis) -> None:
    """While the key is remembered, a purged task's wish is not carried out a second time under another id."""
    stage = scene(backend)
    put(stage, State.CANCELLED, idempotency_key="order-7")
    make_outdated(stage)
    assert 1 == stage.store.purge().moved
    before, life = snapshot(backend), round(1000 * Settings().idempotency)
    assert life - 10_000 < backend.pttl(stage.keys.idempotency("order-7")) <= life
    answer = stage.store.submit(submission("t2", idempotency_key="order-7"))
    assert ("purged", ID) == (answer.word, answer.task_id)
    assert {} == difference(before, snapshot(backend))


def replaced(wish: Any, **changes: Any) -> Any:
    """Return a copy of a submission with other fields."""
    return type(wish)(**{name: getattr(wish, name) for name in wish.__slots__} | changes)


def test_fifty_claimers_of_one_task_have_one_winner(redis: Redis) -> None:
    """One gets it, 49 find the queue empty, and the attempt was counted once."""
    stage = scene(redis)
    put(stage, State.PENDING)
    replies = all_at_once(50, lambda index: stage.store.claim(wish(f"w{index}", f"{index:04x}")))
    assert {Claimed: 1, NothingToClaim: 49} == Counter(map(type, replies))
    assert "1" == stage.task["attempt"]
    assert [] == audit(redis, stage.keys, [ID])


def test_fifty_claimers_of_fifty_tasks_get_one_each(redis: Redis) -> None:
    """No task is given out twice, and none is left."""
    stage = scene(redis)
    for number in range(50):
        stage.store.submit(submission(f"t{number}"))
    replies = all_at_once(50, lambda index: stage.store.claim(wish(f"w{index}", f"{index:04x}")))
    assert {f"t{number}" for number in range(50)} == {reply.held.task_id for reply in replies}
    assert [] == audit(redis, stage.keys, {f"t{number}" for number in range(50)})


def test_a_repeated_claim_gets_the_same_task_until_the_attempt_ends(backend: Redis) -> None:
    """The same token is answered with the same attempt; a new one with the next task."""
    stage = scene(backend)
    _two_wait(stage)
    claim = wish("w1", "aa")
    first, second = claimed(stage.store, claim), claimed(stage.store, claim)
    assert ("t2", 1) == (first.held.task_id, first.held.attempt)
    assert (first.held, first.params, first.checkpoint) == (second.held, second.params, second.checkpoint)
    assert "t3" == claimed(stage.store, wish("w1", "bb")).held.task_id
    assert [] == audit(backend, stage.keys, ["t2", "t3"])


@pytest.mark.parametrize("rounds", [40])
def test_cancel_and_complete_at_once_agree_on_one_end(redis: Redis, rounds: int) -> None:
    """Whoever comes first: there is one final state, both are told the truth, and the history is legal (B30)."""
    store = SpiedStore(redis, Settings())
    for number in range(rounds):
        task_id = f"r{number}"
        store.submit(submission(task_id))
        held = claimed(store, wish("w1", f"{number:04x}")).held
        stage = Scene(redis, store, held)
        calls: list[Callable[[], Any]] = [
            lambda task_id=task_id: store.cancel(task_id, "tester"),
            lambda stage=stage: finish(stage, Event.COMPLETE)[0],
        ]
        cancel, complete = all_at_once(2, lambda index, calls=calls: calls[index]())
        state = redis.hget(store.keys.task(task_id), "state")
        assert (cancel.word, cancel.state, complete.state, state) in (
            ("moved", "CANCELLING", "CANCELLED", "CANCELLED"),
            ("already", "SUCCESS", "SUCCESS", "SUCCESS"),
        )
    assert [] == audit(redis, store.keys, [f"r{number}" for number in range(rounds)])

"""The fence: only the attempt that holds a task writes to it, and everybody else changes nothing (B15)."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from audit import audit
from ghostless.jobs.errors import StaleAttempt, TaskNotFound
from ghostless.jobs.messages import Held
from ghostless.statemachine import Event, Reason, State
from redis import Redis
from scripts.seeding import CARRIERS, ID, Carrier, Scene, claimed, finish, make_due, make_lost, put, scene, wish
from scripts.snapshot import difference, snapshot

HELD = {"heartbeat", "progress", "checkpoint", "log", "stage"}
WRITES = [carrier for event, carriers in CARRIERS.items() for carrier in carriers if carrier.verb in HELD]
ENDS = [carrier for carriers in CARRIERS.values() for carrier in carriers if carrier.verb == "finish"]
PERSONAL = [carrier for event in (Event.CANCEL, Event.PAUSE, Event.RESUME, Event.RETRY) for carrier in CARRIERS[event]]
ENDINGS = {Event.COMPLETE, Event.FAIL, Event.TIMEOUT, Event.STOPPED, Event.SUSPEND}
STRANGERS: list[tuple[str, Callable[[Held], Held]]] = [
    ("another token", lambda held: replace(held, token="dead")),
    ("no token", lambda held: replace(held, token="")),
    ("an earlier attempt", lambda held: replace(held, attempt=held.attempt - 1)),
    ("a later attempt", lambda held: replace(held, attempt=held.attempt + 1)),
]


@pytest.mark.parametrize("carrier", [*WRITES, *ENDS], ids=lambda carrier: carrier.verb)
@pytest.mark.parametrize(("who", "strange"), STRANGERS, ids=[who for who, _ in STRANGERS])
@pytest.mark.parametrize("state", [State.PROCESSING, State.PAUSING, State.CANCELLING])
def test_a_stranger_is_told_stale_and_changes_nothing(
    redis: Redis, carrier: Carrier, who: str, strange: Callable[[Held], Held], state: State
) -> None:
    """Every write of a worker with a wrong token or attempt answers `stale`, in every running state."""
    stage = scene(redis)
    stage.held = strange(put(stage, state))
    before = snapshot(redis)
    if carrier.verb == "finish":
        carrier.call(stage)
    else:
        with pytest.raises(StaleAttempt, match=f"attempt {stage.held.attempt} does not hold task {ID}"):
            carrier.call(stage)
    assert "stale" == stage.store.word
    assert {} == difference(before, snapshot(redis))
    assert "1" == redis.hget(stage.keys.ledger, "stale_writes")


@pytest.mark.parametrize("ledger", ["a string", "not a number", "at a full Redis"])
def test_a_stale_write_that_cannot_be_counted_is_answered_all_the_same(redis: Redis, ledger: str) -> None:
    """The counter is the least of it: whatever keeps it from being written, the stranger hears `stale`."""
    stage = scene(redis)
    stage.held = replace(put(stage, State.PROCESSING), token="dead")
    if ledger == "a string":
        redis.set(stage.keys.ledger, "no hash")
    elif ledger == "not a number":
        redis.hset(stage.keys.ledger, "stale_writes", "many")
    else:
        redis.config_set("maxmemory", 1)
    try:
        assert "stale" == finish(stage, Event.COMPLETE)[0].word
    finally:
        redis.config_set("maxmemory", 0)


@pytest.mark.parametrize(
    "carrier",
    [
        *WRITES,
        *ENDS,
        *(carrier for event in ("CANCEL", "PAUSE", "RESUME", "RETRY") for carrier in CARRIERS[Event(event)]),
    ],
    ids=lambda carrier: carrier.verb,
)
def test_a_task_that_does_not_exist_is_missing(redis: Redis, carrier: Carrier) -> None:
    """Every verb on an unknown id answers `missing` and writes nothing."""
    stage = scene(redis)
    if carrier.verb in HELD:
        with pytest.raises(TaskNotFound, match=ID):
            carrier.call(stage)
    else:
        carrier.call(stage)
    assert "missing" == stage.store.word
    assert {} == snapshot(redis)


def zombie(stage: Scene) -> Held:
    """Let the first attempt lose its task to a second one; return what the first still believes to hold."""
    loser = put(stage, State.PROCESSING)
    make_lost(stage)
    assert 1 == stage.store.sweep("watchdog").moved
    make_due(stage)
    stage.store.release("watchdog")
    stage.held = claimed(stage.store, wish("w2", "cc33")).held
    return loser


@pytest.mark.parametrize("carrier", [*WRITES, *ENDS], ids=lambda carrier: carrier.verb)
def test_an_owner_that_comes_back_cannot_touch_the_winner(redis: Redis, carrier: Carrier) -> None:
    """After the lease was lost and another attempt began, whatever the loser sends leaves every byte as it is."""
    stage = scene(redis)
    loser = zombie(stage)
    winner, before = stage.held, snapshot(redis)
    stage.held = loser
    if carrier.verb == "finish":
        carrier.call(stage)
    else:
        with pytest.raises(StaleAttempt):
            carrier.call(stage)
    assert "stale" == stage.store.word
    assert {} == difference(before, snapshot(redis))
    stage.held = winner
    assert "moved" == finish(stage, Event.COMPLETE)[0].word
    assert [] == audit(redis, stage.keys, [ID])


def test_the_loser_is_told_stale_before_anybody_else_has_the_task(redis: Redis) -> None:
    """The watchdog takes the token away with the task, so a late COMPLETE is not mistaken for a repeated one."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    make_lost(stage)
    stage.store.sweep("watchdog")
    before = snapshot(redis)
    assert "stale" == finish(stage, Event.COMPLETE)[0].word
    assert {} == difference(before, snapshot(redis))


def test_a_repeated_end_is_told_already_with_the_state_it_led_to(redis: Redis) -> None:
    """The attempt that ended a task and asks again hears what became of it, whatever it says the second time."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    finish(stage, Event.COMPLETE)
    before = snapshot(redis)
    for event in sorted(ENDINGS):
        answer, _ = finish(stage, event)
        assert ("already", State.SUCCESS) == (answer.word, answer.state)
    assert {} == difference(before, snapshot(redis))


@pytest.mark.parametrize("event", sorted(set(Event) - ENDINGS))
@pytest.mark.parametrize("state", [State.PROCESSING, State.PAUSING, State.CANCELLING])
def test_an_attempt_ends_only_by_an_event_that_ends_attempts(redis: Redis, event: Event, state: State) -> None:
    """`finish` refuses events that the table allows but that are not a worker's to end its attempt with."""
    stage = scene(redis)
    put(stage, state)
    before = snapshot(redis)
    assert "refused" == finish(stage, event, Reason.USER)[0].word
    assert {} == difference(before, snapshot(redis))


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), float("inf"), float("-inf")])
def test_progress_is_a_number_from_0_to_1(redis: Redis, fraction: float) -> None:
    """Any other number is refused before the first write: what is no JSON would stop the script half-way."""
    stage = scene(redis)
    put(stage, State.PROCESSING)
    before = snapshot(redis)
    with pytest.raises(Exception, match="fraction: expected a number from 0 to 1"):
        stage.store.progress(stage.held, fraction, "")
    assert {} == difference(before, snapshot(redis))

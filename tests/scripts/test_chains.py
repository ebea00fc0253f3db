"""What follows when an attempt ends badly: retries, budgets, pauses and cancels, step by step."""

from dataclasses import replace

import pytest
from audit import audit
from ghostless.statemachine import Event, Policy, Reason, State
from redis import Redis
from scripts.seeding import (
    ID,
    PATIENT,
    Scene,
    claimed,
    ending,
    finish,
    make_due,
    make_lost,
    put,
    scene,
    submission,
    wish,
)

LIMITS = {"failures": "max_retries", "timeouts": "max_timeouts", "losses": "max_losses"}
ENDINGS = [
    (Event.FAIL, Reason.EXCEPTION, "failures"),
    (Event.FAIL, Reason.BAD_RESULT, "failures"),
    (Event.FAIL, Reason.CRASHED, "losses"),
    (Event.FAIL, Reason.WORKER_LOST, "losses"),
    (Event.TIMEOUT, Reason.DEADLINE, "timeouts"),
    (Event.TIMEOUT, Reason.STALLED, "timeouts"),
    (Event.TIMEOUT, Reason.HEARTBEAT_LOST, "losses"),
]


def entries(stage: Scene) -> list[dict[str, str]]:
    """Return the history as it is written."""
    return [entry for _, entry in stage.redis.xrange(stage.keys.history)]  # type: ignore[misc]


def start_again(stage: Scene) -> None:
    """Release the waiting task and start its next attempt."""
    make_due(stage)
    stage.store.release("watchdog")
    number = int(stage.task["attempt"]) + 1
    stage.held = claimed(stage.store, wish("w1", f"{number:04x}")).held


@pytest.mark.parametrize(("event", "reason", "counter"), ENDINGS)
def test_a_retried_end_is_two_entries_and_uses_one_of_its_own_budget(
    backend: Redis, event: Event, reason: Reason, counter: str
) -> None:
    """FAIL or TIMEOUT, then RETRY, in one script; one counter rises by one, the others stay unset (B39)."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    answer, _ = finish(stage, event, reason, asked=7_000)
    ended, retried = entries(stage)[-2:]
    assert ("moved", State.RETRY_WAITING, 1) == (answer.word, answer.state, answer.attempt)
    assert (event, "PROCESSING", "worker:w1", reason, "said so") == tuple(
        ended[name] for name in ("event", "from", "actor", "reason", "message")
    )
    assert ("RETRY", ended["to"], "RETRY_WAITING", "policy", "policy") == tuple(
        retried[name] for name in ("event", "from", "to", "actor", "reason")
    )
    assert retried["message"].startswith(f"retry 1 of {getattr(PATIENT, LIMITS[counter])} in ")
    assert {counter: "1"} == {name: stage.task[name] for name in LIMITS if name in stage.task}
    assert [] == audit(backend, stage.keys, [ID])


@pytest.mark.parametrize(("event", "reason", "counter"), ENDINGS)
def test_a_used_up_budget_ends_the_task(backend: Redis, event: Event, reason: Reason, counter: str) -> None:
    """With a limit of two there are three attempts; then FAIL leaves FAILED, and TIMEOUT gives up, saying why."""
    stage = scene(backend)
    put(stage, State.PROCESSING, replace(PATIENT, **{LIMITS[counter]: 2}))
    for used in (1, 2):
        finish(stage, event, reason)
        assert (State.RETRY_WAITING, str(used)) == (stage.task["state"], stage.task[counter])
        start_again(stage)
    finish(stage, event, reason)
    expected = State.FAILED if event is Event.FAIL else State.TIMEOUT_CANCELLED
    assert (expected, "3", "3") == (stage.task["state"], stage.task["attempt"], stage.task[counter])
    if event is Event.TIMEOUT:
        assert ("GIVE_UP", f"{counter} used up: 2 retries allowed") == (
            entries(stage)[-1]["event"],
            entries(stage)[-1]["message"],
        )
    assert [] == audit(backend, stage.keys, [ID])


def test_budgets_are_counted_separately(backend: Redis) -> None:
    """One failure, one timeout, one loss and a shutdown: each budget has lost one, the shutdown used none."""
    stage = scene(backend)
    put(stage, State.PROCESSING, replace(PATIENT, max_retries=1, max_timeouts=1, max_losses=1))
    finish(stage, Event.FAIL)
    start_again(stage)
    finish(stage, Event.TIMEOUT, Reason.DEADLINE)
    start_again(stage)
    finish(stage, Event.FAIL, Reason.CRASHED)
    start_again(stage)
    finish(stage, Event.SUSPEND, Reason.SHUTDOWN)
    assert State.PENDING == stage.task["state"]
    stage.held = claimed(stage.store, wish("w1", "ffff")).held
    assert {"failures": "1", "timeouts": "1", "losses": "1", "attempt": "5"}.items() <= stage.task.items()
    finish(stage, Event.FAIL)
    assert State.FAILED == stage.task["state"]
    assert [] == audit(backend, stage.keys, [ID])


def test_ten_shutdowns_use_up_nothing(backend: Redis) -> None:
    """A task that is handed back ten times still has all of its budgets (B39)."""
    stage = scene(backend)
    put(stage, State.PROCESSING, replace(PATIENT, max_retries=0, max_timeouts=0, max_losses=0))
    for number in range(10):
        finish(stage, Event.SUSPEND, Reason.SHUTDOWN)
        stage.held = claimed(stage.store, wish("w1", f"{number:04x}")).held
    assert "11" == stage.task["attempt"]
    assert set() == LIMITS.keys() & stage.task.keys()
    assert [] == audit(backend, stage.keys, [ID])


def test_a_shutdown_puts_its_task_at_the_front_of_the_queue(backend: Redis) -> None:
    """SUSPEND and RESUME are one call, and the task is the next one to start, ahead of those that waited."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    stage.store.submit(submission("t2"))
    stage.store.checkpoint(stage.held, '{"step":3}')
    finish(stage, Event.SUSPEND, Reason.SHUTDOWN)
    assert [ID, "t2"] == stage.queue
    assert [("SUSPEND", "PROCESSING", "PAUSED"), ("RESUME", "PAUSED", "PENDING")] == stage.history[-2:]
    assert [] == audit(backend, stage.keys, [ID, "t2"])
    again = claimed(stage.store, wish("w2", "cc"))
    assert (ID, 2, {"step": 3}) == (again.held.task_id, again.held.attempt, again.checkpoint)


def test_a_resumed_task_waits_behind_the_others(backend: Redis) -> None:
    """RESUME by a person puts the task at the end of its queue."""
    stage = scene(backend)
    put(stage, State.PAUSED)
    stage.store.submit(submission("t2"))
    stage.store.resume(ID, "tester")
    assert ["t2", ID] == stage.queue


@pytest.mark.parametrize("reason", [Reason.EXCEPTION, Reason.CRASHED])
def test_a_pause_outlives_a_failure(backend: Redis, reason: Reason) -> None:
    """FAIL of a task that is to pause: FAIL, RETRY and PAUSE in one script, and resumed it starts at once."""
    stage = scene(backend)
    put(stage, State.PAUSING)
    finish(stage, Event.FAIL, reason)
    expected = [
        ("FAIL", "PAUSING", "FAILED"),
        ("RETRY", "FAILED", "RETRY_WAITING"),
        ("PAUSE", "RETRY_WAITING", "PAUSED"),
    ]
    assert expected == stage.history[-3:]
    assert [] == audit(backend, stage.keys, [ID])
    stage.store.resume(ID, "tester")
    assert "PENDING" == stage.task["state"]
    assert [] == audit(backend, stage.keys, [ID])


def test_a_pause_does_not_outlive_the_last_failure(backend: Redis) -> None:
    """FAIL with no retry left ends a task that was to pause."""
    stage = scene(backend)
    put(stage, State.PAUSING, replace(PATIENT, max_retries=0))
    finish(stage, Event.FAIL)
    assert ("FAIL", "PAUSING", "FAILED") == stage.history[-1]
    assert [] == audit(backend, stage.keys, [ID])


@pytest.mark.parametrize("event", [Event.FAIL, Event.TIMEOUT, Event.COMPLETE, Event.STOPPED, Event.SUSPEND])
def test_cancel_beats_whatever_the_worker_reports(backend: Redis, event: Event) -> None:
    """A cancel that was accepted ends in CANCELLED: no retry, no result, no checkpoint, no budget used (B30, B31)."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    stage.store.checkpoint(stage.held, "[1]")
    stage.store.cancel(ID, "tester")
    answer, _ = finish(stage, event)
    assert ("moved", "CANCELLED") == (answer.word, answer.state)
    assert (event, "CANCELLING", "CANCELLED") == stage.history[-1]
    assert 0 == backend.exists(stage.keys.result(ID), stage.keys.checkpoint(ID))
    assert set() == LIMITS.keys() & stage.task.keys()
    assert [] == audit(backend, stage.keys, [ID])


def test_cancel_beats_the_loss_of_the_worker(backend: Redis) -> None:
    """A worker that dies after the cancel was asked for leaves a cancelled task, not a retried one (B31)."""
    stage = scene(backend)
    put(stage, State.CANCELLING)
    make_lost(stage)
    assert 1 == stage.store.sweep("watchdog").moved
    assert ("TIMEOUT", "CANCELLING", "CANCELLED") == stage.history[-1]
    assert [] == audit(backend, stage.keys, [ID])


def test_cancel_of_a_task_whose_retry_is_due_wins(backend: Redis) -> None:
    """A cancelled task does not come back when the time of its retry comes (B31)."""
    stage = scene(backend)
    put(stage, State.RETRY_WAITING)
    make_due(stage)
    stage.store.cancel(ID, "tester")
    assert 0 == stage.store.release("watchdog").looked_at
    assert ("CANCEL", "RETRY_WAITING", "CANCELLED") == stage.history[-1]
    assert [] == audit(backend, stage.keys, [ID])


def test_an_error_that_is_not_worth_a_retry_ends_the_task(backend: Redis) -> None:
    """`retryable=False` leaves FAILED, or gives up a timeout, whatever the budgets say."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    finish(stage, Event.FAIL, Reason.INVALID_PARAMS, retryable=False)
    assert (State.FAILED, "invalid_params") == (stage.task["state"], stage.task["reason"])
    assert "Traceback: it broke" == backend.get(stage.keys.error(ID))
    assert [] == audit(backend, stage.keys, [ID])


@pytest.mark.parametrize("state", [State.FAILED, State.TIMEOUT_CANCELLED])
def test_an_operators_retry_is_due_at_once_with_fresh_budgets(backend: Redis, state: State) -> None:
    """RETRY by a person: due now, no counter left, and all retries of the policy are to be had again."""
    stage = scene(backend)
    put(stage, state, replace(PATIENT, max_retries=1))
    assert "moved" == stage.store.retry(ID, "ann", message="fixed the input").word
    assert set() == LIMITS.keys() & stage.task.keys()
    assert stage.task["due_at"] == stage.task["entered_at"]
    assert [] == audit(backend, stage.keys, [ID])
    assert 1 == stage.store.release("watchdog").moved
    stage.held = claimed(stage.store, wish("w1", "ee")).held
    finish(stage, Event.FAIL)
    assert "RETRY_WAITING" == stage.task["state"]


@pytest.mark.parametrize("asked", [0, 1, 2_500, 3_600_000])
def test_a_retry_never_comes_earlier_than_asked_for(backend: Redis, asked: int) -> None:
    """The jitter is added to the delay that the handler asked for, up to the cap of the policy (B41)."""
    for fraction, jitter in ((0.0, 0), (0.25, 1_000), (0.999999, 3_999)):
        stage = scene(backend)
        stage.start_over()
        put(stage, State.PROCESSING, Policy(backoff_base=4_000, backoff_cap=5_000))
        stage.store.finish(stage.held, ending(Event.FAIL, asked=asked), "worker:w1", fraction=fraction)
        assert asked + jitter == int(stage.task["due_at"]) - int(stage.task["entered_at"])


def test_a_success_forgets_the_error_and_the_checkpoint_of_earlier_attempts(backend: Redis) -> None:
    """After a failed attempt and a good one there is a result, and neither error nor checkpoint."""
    stage = scene(backend)
    put(stage, State.PROCESSING)
    stage.store.checkpoint(stage.held, "[1]")
    finish(stage, Event.FAIL)
    assert "Traceback: it broke" == backend.get(stage.keys.error(ID))
    start_again(stage)
    finish(stage, Event.COMPLETE)
    assert '{"sum":3}' == backend.get(stage.keys.result(ID))
    assert 0 == backend.exists(stage.keys.error(ID), stage.keys.checkpoint(ID))
    assert [] == audit(backend, stage.keys, [ID])

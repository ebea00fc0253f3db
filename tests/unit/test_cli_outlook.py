"""The sentence that says what happens next."""

from dataclasses import replace

import pytest
from ghostless.jobs.cli.outlook import Around, outlook
from ghostless.jobs.model import Task
from ghostless.statemachine import STORED, Policy, State

NOW = 1_000_000


def task(state: State) -> Task:
    """Return a task in a state, with the times that the state has."""
    return Task(
        id="t1",
        type="work",
        queue="gpu",
        state=state,
        attempt=1,
        submitted_at=NOW,
        entered_at=NOW,
        policy=Policy(),
        due_at=NOW + 5_000,
        timeout_at=NOW + 600_000,
    )


@pytest.mark.parametrize("state", STORED)
def test_every_state_has_an_outlook(state: State) -> None:
    """No task is ever shown without what comes next."""
    assert outlook(task(state), Around(NOW))


@pytest.mark.parametrize(
    ("state", "around", "part"),
    [
        (State.PENDING, Around(NOW), "`ghostless worker gpu`"),
        (State.PENDING, Around(NOW, workers=["w1"]), "the worker w1 starts it"),
        (State.PENDING, Around(NOW, workers=["w1", "w2"]), "one of 2 workers"),
        (State.PENDING, Around(NOW, queue_paused=True, workers=["w1"]), "`ghostless queues resume gpu`"),
        (State.SCHEDULED, Around(NOW), "in 5.0 s"),
        (State.RETRY_WAITING, Around(NOW), "attempt 2 from"),
        (State.RETRY_WAITING, Around(NOW, watchdog=False), "`ghostless watchdog`"),
        (State.PROCESSING, Around(NOW), "in 10 min"),
        (State.PAUSED, Around(NOW), "`ghostless resume t1`"),
        (State.FAILED, Around(NOW), "`ghostless retry t1`"),
        (State.SUCCESS, Around(NOW), "kept until"),
    ],
)
def test_the_outlook_names_the_time_or_the_command(state: State, around: Around, part: str) -> None:
    """What moves a task by itself is told with its time; what waits for a person, with what to type."""
    assert part in outlook(task(state), around)


def test_the_outlook_names_the_clocks_that_are_on() -> None:
    """What else may end a running attempt, and what may put its end off."""
    clocked = replace(task(State.PROCESSING), policy=Policy(stall_timeout=60_000, extend_by=1))
    told = outlook(clocked, Around(NOW))
    assert told.endswith(", later while it reports progress, or after 60 s without progress")
    assert "progress" not in outlook(task(State.PROCESSING), Around(NOW))

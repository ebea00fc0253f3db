"""Random sequences of all operations do to Redis what a small model in plain Python says, and answer alike."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from faults.machine import Machine
from faults.machine_crowds import WAYS
from faults.machine_listeners import STATUS
from faults.machine_uses import Uses
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.bulk import ACTIONS
from ghostless.jobs.client import Client
from ghostless.jobs.recurrence import MISFIRES
from ghostless.jobs.settings import Settings
from ghostless.statemachine import FINAL, TABLE, UNRECORDED, Event
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

ARROWS = {(str(state), str(event)) for state, event in TABLE if event not in UNRECORDED}
"""Every arrow that changes a history."""

ENDS = {(how, str(state)) for how in ("found", "awaited") for state in FINAL}
"""How a dependency ends: before the task that depends on it is submitted, or while that waits."""

DUTIES = {
    *(("bulk", action) for action in ACTIONS),
    *{("stopped", "midway"), ("stopped", "at once"), ("put back",), ("unserved",)},
    *(("crowd", way) for way in WAYS),
    *(("subscribed", where) for where in ("end", "beginning")),
    *((what, truth) for what in ("ended together", "taken over", "replayed") for truth in ("True", "False")),
    *(("delivery", what) for what in (*STATUS, "told too late")),
    *((how,) for how in ("purged", "archived", "kept for the archive")),
    *(("repaired", who) for who in ("doctor", "watchdog")),
    *(("lost", index) for index in ("state", "pending", "parked", "dependents", "due", "deadlines", "retention")),
    *(("run", f"of one that {what}") for what in ("lives", "died")),
    *{("pause", "not due"), ("resume", "due"), ("remove", "due")},
    *(("missed", misfire) for misfire in MISFIRES),
    *{("left out", "skip"), ("more time", "reported"), ("no more time", "reported"), ("no more time", "silent")},
}
"""What happens beside the table: to tasks that are over, to several at once, to indices, schedules, clocks, and those
who are told.
"""

SEQUENCES, AT_MOST, MOVES = 70, 200, 25
"""Sequences of so many moves; more of them until everything was reached, which is so long before."""

LONG = settings.get_current_profile_name() == "long"
BOUNDED = settings(
    max_examples=25,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> Uses:
    """What is used of the product."""
    return Uses(monkeypatch)


@pytest.fixture
def web(redis: Redis, uses: Uses) -> FlaskClient:
    """The API, without a server."""
    app = create_app(client=Client(Settings(), redis))
    uses.watch(app)
    return app.test_client()


@pytest.mark.timeout(0 if LONG else 600)  # a failure takes time, to find the shortest sequence that fails
def test_every_sequence_agrees_with_the_model(redis: Redis, tmp_path: Path, web: FlaskClient) -> None:
    """Whoever does whatever in whichever order: state, answers, budgets, history and indices are the model's."""
    run_state_machine_as_test(
        lambda: Machine(redis, tmp_path, web, Counter()), settings=settings() if LONG else BOUNDED
    )


def test_sequences_of_moves_agree_with_the_model(redis: Redis, tmp_path: Path, web: FlaskClient, uses: Uses) -> None:
    """Led by a chance that is even they meet every arrow of the table, each end of a dependency, and each duty.

    They use every script, every route and every method that writes, but for those that say why not.
    """
    reached: Counter[tuple[str, ...]] = Counter()
    for seed in range(AT_MOST):
        missing = (ARROWS | ENDS | DUTIES) - {what for what, number in reached.items() if number}
        if seed >= SEQUENCES and not missing | uses.missing():
            break
        machine, chance = Machine(redis, tmp_path, web, reached), Random(seed)
        machine.begin(seed)
        for _ in range(MOVES):
            acts = (machine.move, machine.keep_house, machine.act_for_many)
            (act,) = chance.choices(acts, (0.6 if machine.tasks else 0, 0.2, 0.2))
            act(chance.getrandbits(32))
            machine.agrees_with_the_model()
            machine.schedules_agree()
            machine.plain_jobs_agree()
            machine.deliveries_agree()
        machine.end_what_others_wait_for(chance.getrandbits(32))
        seldom = min(machine.tasks.values(), key=lambda task: reached[task.state, Event.REPAIR])
        machine.lose_an_entry(seldom.number, chance.randrange(9), chance.random() < 0.5)
        if seed % 10 == 0:
            machine.end_before_a_crowd(chance.getrandbits(32))
        machine.agrees_with_the_model()
        machine.is_sound()
        if seed % 2:
            machine.look_at_all()
        machine.look_around()
        machine.teardown()
    assert (set(), set(), set()) == (missing, uses.missing(), uses.idle_reasons()), seed

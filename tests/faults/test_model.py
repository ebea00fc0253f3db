"""Random sequences of all operations do to Redis what a small model in plain Python says, and answer alike."""

from collections import Counter
from random import Random

import pytest
from faults.machine import Machine
from ghostless.statemachine import FINAL, TABLE, UNRECORDED, Event
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

ARROWS = {(str(state), str(event)) for state, event in TABLE if event not in UNRECORDED | {Event.REPAIR}}
"""Every arrow that changes a history, but for repairs: they are made where something is wrong."""

ENDS = {(how, str(state)) for how in ("found", "awaited") for state in FINAL}
"""How a dependency ends: before the task that depends on it is submitted, or while that waits."""

SEQUENCES, MOVES = 100, 20

LONG = settings.get_current_profile_name() == "long"
BOUNDED = settings(
    max_examples=25,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(0 if LONG else 600)  # a failure takes time, to find the shortest sequence that fails
def test_every_sequence_agrees_with_the_model(redis: Redis) -> None:
    """Whoever does whatever in whichever order: state, answers, budgets, history and indices are the model's."""
    run_state_machine_as_test(lambda: Machine(redis, Counter()), settings=settings() if LONG else BOUNDED)


def test_sequences_of_moves_agree_with_the_model(redis: Redis) -> None:
    """Led by a chance that is even they meet every arrow of the table, and every end of a dependency in both ways."""
    reached: Counter[tuple[str, ...]] = Counter()
    for seed in range(SEQUENCES):
        machine, chance = Machine(redis, reached), Random(seed)
        machine.begin(seed)
        for _ in range(MOVES):
            machine.move(chance.getrandbits(32))
            machine.agrees_with_the_model()
        machine.end_what_others_wait_for(chance.getrandbits(32))
        machine.agrees_with_the_model()
        machine.is_sound()
        machine.teardown()
    assert set() == (ARROWS | ENDS) - reached.keys()

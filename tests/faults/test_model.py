"""Random sequences of all operations do to Redis what a small model in plain Python says, and answer alike."""

import pytest
from faults.machine import Machine
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

LONG = settings.get_current_profile_name() == "long"
BOUNDED = settings(
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(0 if LONG else 600)  # a failure takes time, to find the shortest sequence that fails
def test_every_sequence_agrees_with_the_model(redis: Redis) -> None:
    """Whoever does whatever in whichever order: state, answers, budgets, history and indices are the model's."""
    run_state_machine_as_test(lambda: Machine(redis), settings=settings() if LONG else BOUNDED)

"""Where a task comes to rest, by what the history tells: what a subscription to a state is handed."""

from collections.abc import Callable

import pytest
from ghostless.jobs.consumer import Consumer
from ghostless.jobs.groups import BEGINNING, Groups
from ghostless.jobs.settings import Settings
from ghostless.statemachine import Event, Policy, State
from redis import Redis
from scripts.seeding import BY_PERSON, ID, Scene, finish, put, scene, submission


@pytest.fixture
def stage(backend: Redis) -> Scene:
    """A store on an empty database."""
    return scene(backend)


def write_anew(stage: Scene, milliseconds: int) -> None:
    """Write the history again with as many ms between one entry and the next."""
    entries = stage.redis.xrange(stage.keys.history)
    stage.redis.delete(stage.keys.history)
    for number, (_, fields) in enumerate(entries):
        stage.redis.xadd(stage.keys.history, fields, id=f"{5 + number * milliseconds}-{number + 1}")


def from_the_beginning(stage: Scene, *wanted: str) -> list[str]:
    """Return the events that a new group is handed."""
    groups = Groups(stage.redis, Settings())
    groups.create(wanted[0], BEGINNING)
    heard = Consumer(groups, wanted[0], "one", 60.0).listen(wanted, 99)
    assert heard
    return [handed.entry.event for handed in heard.handed]


def fail_and_retry(stage: Scene) -> None:
    """Let the policy retry a failure."""
    put(stage, State.PROCESSING)
    finish(stage, Event.FAIL)


def fail_and_retry_while_pausing(stage: Scene) -> None:
    """Let the policy retry a failure of a task that is to pause."""
    put(stage, State.PAUSING)
    finish(stage, Event.FAIL)


def hand_back(stage: Scene) -> None:
    """Let a worker that stops hand its task back."""
    put(stage, State.PROCESSING)
    finish(stage, Event.SUSPEND)


def submit_behind_a_failure(stage: Scene) -> None:
    """Submit a task that depends on one that was cancelled."""
    put(stage, State.CANCELLED)
    stage.store.submit(submission("t2", depends_on=(ID,)))


def fail_and_retry_by_a_person(stage: Scene) -> None:
    """Let a task fail for good, and a person retry it at once."""
    put(stage, State.FAILED)
    stage.store.retry(ID, BY_PERSON)


def pause_and_resume(stage: Scene) -> None:
    """Let a person pause a task and resume it at once."""
    put(stage, State.PENDING)
    stage.store.pause(ID, BY_PERSON)
    stage.store.resume(ID, BY_PERSON)


def pause_a_running_task_and_resume(stage: Scene) -> None:
    """Let a worker carry a pause out, and a person resume the task at once."""
    put(stage, State.PAUSING)
    finish(stage, Event.SUSPEND)
    stage.store.resume(ID, BY_PERSON)


@pytest.mark.parametrize("milliseconds", [0, 1])
@pytest.mark.parametrize(
    ("happen", "state", "rests"),
    [
        (fail_and_retry, State.FAILED, []),
        (fail_and_retry_while_pausing, State.FAILED, []),
        (fail_and_retry_while_pausing, State.RETRY_WAITING, []),
        (fail_and_retry_while_pausing, State.PAUSED, ["PAUSE"]),
        (hand_back, State.PAUSED, []),
        (submit_behind_a_failure, State.BLOCKED, []),
        (fail_and_retry_by_a_person, State.FAILED, ["FAIL"]),
        (pause_and_resume, State.PAUSED, ["PAUSE"]),
        (pause_a_running_task_and_resume, State.PAUSED, ["SUSPEND"]),
    ],
)
def test_time_does_not_tell_where_a_task_comes_to_rest(
    stage: Scene, milliseconds: int, happen: Callable[[Scene], None], state: State, rests: list[str]
) -> None:
    """A script can cross a millisecond, and a person can act within one: only what follows, and by whom, tells."""
    happen(stage)
    write_anew(stage, milliseconds)
    assert rests == from_the_beginning(stage, state)


@pytest.mark.parametrize(("retries", "rests"), [(0, ["FAIL"]), (3, [])])
def test_a_state_stands_for_coming_to_rest_there(stage: Scene, retries: int, rests: list[str]) -> None:
    """A failure that is retried passes through FAILED; the event FAIL tells of each."""
    put(stage, State.PROCESSING, Policy(max_retries=retries))
    finish(stage, Event.FAIL)
    assert rests == from_the_beginning(stage, State.FAILED)
    assert ["FAIL"] == from_the_beginning(stage, Event.FAIL)

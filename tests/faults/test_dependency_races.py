"""Dependencies that end while their children are submitted, and at the same moment: nobody is forgotten (B43)."""

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from audit import audit
from ghostless.statemachine import Event, State
from redis import Redis
from scripts.seeding import BY_WORKER, Scene, claimed, ending, scene, submission, wish

SEED, ROUNDS, ROUNDS_OF_THREE, AT_A_TIME = 7, 1_000, 200, 10
PARENT_LASTS, CHILD_COMES = 0.005, 0.015
"""Seconds from the start of a parent to its end, and from its submit to that of its child at the latest."""


@pytest.fixture
def stage(redis: Redis) -> Scene:
    """An empty database."""
    return scene(redis)


def started(stage: Scene, number: int) -> Callable[[], str]:
    """Start the next task; return what completes it, and answers its state."""
    held = claimed(stage.store, wish(f"w{number}", f"{number:04x}")).held
    return lambda: stage.store.finish(held, ending(Event.COMPLETE), BY_WORKER)[0].state


def submit_child(stage: Scene, task_id: str, *parents: str, after: float = 0.0) -> str:
    """Submit a task that waits for others, a little later; return its state."""
    time.sleep(after)
    return stage.store.submit(submission(task_id, depends_on=parents, queue="next")).state


def assert_released(stage: Scene, children: list[str], parents: list[str]) -> None:
    """Check that each child waits for a worker, was released once at most, and that all is in order."""
    states = {stage.redis.hget(stage.keys.task(task_id), "state") for task_id in children}
    assert states == {State.PENDING}
    released = Counter(
        entry["task"] for _, entry in stage.redis.xrange(stage.keys.history) if entry["event"] == Event.RELEASE
    )
    assert set(released.values()) == {1}
    assert 0 < len(released) < len(children), "the race was won by either side"
    assert [] == audit(stage.redis, stage.keys, [*parents, *children])


def test_a_dependency_that_ends_while_its_child_is_submitted(stage: Scene) -> None:
    """A thousand times, whichever comes first, the submit or the end."""
    chance = random.Random(SEED)
    delays = [chance.uniform(0, CHILD_COMES) for _ in range(ROUNDS)]

    def play(number: int) -> None:
        stage.store.submit(submission(f"p{number}"))
        child = children.submit(submit_child, stage, f"c{number}", f"p{number}", after=delays[number])
        complete = started(stage, number)
        time.sleep(PARENT_LASTS)
        assert complete() == State.SUCCESS
        assert child.result() in (State.BLOCKED, State.PENDING)

    with ThreadPoolExecutor(AT_A_TIME) as children, ThreadPoolExecutor(AT_A_TIME) as parents:
        list(parents.map(play, range(ROUNDS)))
    assert_released(stage, [f"c{number}" for number in range(ROUNDS)], [f"p{number}" for number in range(ROUNDS)])


def test_three_dependencies_that_end_at_once(stage: Scene) -> None:
    """The last of three that end in parallel releases the child, be it submitted before, between or after them."""
    chance, parents = random.Random(SEED), [f"p{number}" for number in range(3 * ROUNDS_OF_THREE)]
    stage.store.submit_many([submission(task_id) for task_id in parents])
    with ThreadPoolExecutor(4) as pool:
        for first in range(0, len(parents), 3):
            acts = [started(stage, first + index) for index in range(3)]
            acts.append(partial(submit_child, stage, f"c{first}", *parents[first : first + 3]))
            chance.shuffle(acts)
            list(pool.map(lambda act: act(), acts))
    assert_released(stage, [f"c{first}" for first in range(0, len(parents), 3)], parents)

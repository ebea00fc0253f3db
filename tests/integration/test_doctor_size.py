"""No command of the doctor takes longer the more is stored."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from ghostless.jobs.batches import TOGETHER
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import Event
from helpers import heard
from redis import Redis
from redis.connection import AbstractConnection
from scripts.seeding import Scene, claimed, ending, scene, submission

FEW, MANY = 300, 1_200
"""Stored tasks: with the many there are more keys, members, tickets and entries of each kind than go over in one."""


def store(stage: Scene, first: int, last: int) -> None:
    """Store tasks: one in two is over, the others wait in their queue."""
    stage.store.submit_many([submission(f"t{number}") for number in range(first, last)])
    for _ in range(first, last, 2):
        stage.store.finish(claimed(stage.store).held, ending(Event.COMPLETE), "worker:w")


@contextmanager
def widest_answer() -> Generator[list[int]]:
    """Note how many elements the longest answer has, of all that this process reads."""
    read, found = AbstractConnection.read_response, [0]

    def noting(connection: AbstractConnection, *arguments: Any, **options: Any) -> Any:
        answer = read(connection, *arguments, **options)
        found[0] = max([found[0], *map(len, parts(answer))])
        return answer

    def parts(answer: Any) -> Iterator[list[Any]]:
        if isinstance(answer, list):
            yield answer
            for part in answer:
                yield from parts(part)

    with patch.object(AbstractConnection, "read_response", noting):
        yield found


def widest_call(redis: Redis, act: Callable[[], object]) -> int:
    """Return how many commands the longest call of a script made, of all that an act calls; MONITOR sees them."""
    most = calls = 0
    for seen in heard(redis, act):
        calls = calls + 1 if seen["client_type"] == "lua" else 0
        most = max(most, calls)
    return most


@pytest.fixture
def examine(redis: Redis, settings: Settings) -> Iterator[Callable[[], list[object]]]:
    """What the doctor tells."""
    with connect(settings, exact=True) as exact:
        yield lambda: list(Doctor(Store(exact, settings)).audit())


def test_no_command_goes_over_more_the_more_is_stored(redis: Redis, examine: Callable[[], list[object]]) -> None:
    """An answer has a bounded length, members with their scores, and no call of a script does more beside more."""
    stage, found = scene(redis), list[tuple[int, int]]()
    for first, last in ((0, FEW), (FEW, MANY)):
        store(stage, first, last)
        with widest_answer() as longest:
            assert [] == examine()
        found.append((longest[0], widest_call(redis, examine)))
    (_, call_few), (answer, call_many) = found
    assert answer <= 2 * TOGETHER + 100 < 2 * MANY
    assert call_many < 1.2 * call_few

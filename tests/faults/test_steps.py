"""Kill at every step: whatever dies or loses its connection at whichever command, no task is lost or doubled."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.step_chores import CHORES
from faults.step_keepers import KEEPERS
from faults.step_operations import OPERATIONS
from faults.step_rest import REST
from faults.steps import Operation, Walk
from redis import Redis
from redis_server import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def walk(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """What walks on the server of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        walks_all = "GHOSTLESS_EVERY_STEP" in os.environ
        walk = Walk(redis_server.port, tmp_path_factory.mktemp("steps"), walks_all=walks_all)
        yield walk
        print(f"{walk.steps} deaths and cuts")


@pytest.mark.parametrize(
    "operation", OPERATIONS + CHORES + KEEPERS + REST, ids=lambda operation: operation.name.replace(" ", "-")
)
def test_every_step(walk: Walk, redis: Redis, operation: Operation) -> None:
    """Killed or cut off before and after each of its commands, the operation leaves nothing that stays wrong."""
    violations = walk.walk(operation)
    print(*violations, sep="\n")
    assert [] == violations

"""A fleet of real processes for each test; after it nothing may be left, neither processes nor damage."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from audit import audit, leftovers
from fleet import QUICK, Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.model import Task
from ghostless.jobs.settings import Settings
from helpers import eventually
from redis import Redis
from redis_server import RedisServer


@pytest.fixture
def server(own_server: Callable[..., RedisServer]) -> RedisServer:
    """A Redis of this test's own, which keeps its data over a restart."""
    return own_server(durable=True)


@pytest.fixture
def client(server: RedisServer) -> Client:
    """The core, on the same clocks as the fleet."""
    return Client(Settings.from_environment({**QUICK, "GHOSTLESS_REDIS_URL": server.url}))


@pytest.fixture
def fleet(server: RedisServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Processes on that Redis, ended by pid; fails the test when one of their children outlives them."""
    running = Fleet(server.url, tmp_path)
    yield running
    left = running.end()
    if request.node.stash.get(FAILED, False):
        print(running.logs())
    assert left == []


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note a failure, so that the fleet's logs are shown with it."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture
def rq_redis(server: RedisServer) -> Redis:
    """The connection as rq wants it."""
    return Redis.from_url(server.url, protocol=2)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The file in which handlers note what they do."""
    return tmp_path / "trace"


@pytest.fixture
def serving(fleet: Fleet, client: Client) -> Callable[..., None]:
    """Start a watchdog and workers, and return when a worker published its types."""

    def start(workers: int = 1) -> None:
        fleet.watchdog()
        for number in range(workers):
            fleet.worker("default", name=f"w{number}", tasks="lifecycle")
        eventually(lambda: _assert(client.types()), seconds=20)

    return start


def _assert(holds: object) -> None:
    assert holds


def ended(client: Client, task_id: str, *states: str, seconds: float = 25.0) -> Task:
    """Return the task once it is in one of these states."""

    def check() -> Task:
        task = client.get(task_id)
        assert task.state in states, task
        return task

    return eventually(check, seconds)


def story(client: Client, task_id: str) -> list[str]:
    """Return the events of a task's history, in order."""
    return [entry.event for entry in client.history(task_id)]


def assert_clean(client: Client, fleet: Fleet, *task_ids: str) -> None:
    """Check the database against the audit, and that no temporary folder of an attempt stays."""
    with connect(client.settings) as redis:
        assert audit(redis, client.store.keys, task_ids) == []
    eventually(lambda: assert_no_folder_left(fleet))


def assert_no_folder_left(fleet: Fleet) -> None:
    """Check that no attempt has a temporary folder; a killed worker's are removed by the others."""
    folders = [folder for folder in fleet.temporary.glob("ghostless-*/worker-*/*") if folder.is_dir()]
    assert leftovers(folders=folders) == []

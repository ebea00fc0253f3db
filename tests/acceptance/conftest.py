"""A fleet of real processes for each test; after it nothing may be left, neither processes nor damage."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from audit import audit
from fleet import QUICK, Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.model import Entry, Task
from ghostless.jobs.probe import Finding, ask
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from helpers import eventually, expect, free_port, is_running
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
def end(tmp_path: Path) -> Path:
    """The file for which some handlers wait; `touch` lets them end."""
    return tmp_path / "end"


@pytest.fixture
def serving(fleet: Fleet, client: Client) -> Callable[..., None]:
    """Start a watchdog and workers, and return when a worker published its types."""

    def start(workers: int = 1) -> None:
        fleet.watchdog()
        for number in range(workers):
            fleet.worker("default", name=f"w{number}", tasks="lifecycle")
        eventually(lambda: expect(client.types()), seconds=20)

    return start


# Starting


def publish(fleet: Fleet, *modules: str) -> None:
    """Publish the types of task modules as a deploy step does, with no worker about."""
    options = [option for module in modules or ("lifecycle",) for option in ("--tasks", module)]
    assert fleet.start("types", "publish", *options).wait(timeout=20) == 0


def rq_worker(
    fleet: Fleet, *options: str, queues: tuple[str, ...] = ("default",), tasks: str = "lifecycle"
) -> "subprocess.Popen[bytes]":
    """Start rq's own command."""
    fleet.environment["GHOSTLESS_TASKS"] = tasks
    return fleet.spawn([sys.executable, "-m", "rq.cli", "worker", *queues, "--url", fleet.url, *options])


def rq(fleet: Fleet, *arguments: str) -> str:
    """Run rq's command line; return what it says."""
    command = [sys.executable, "-m", "rq.cli", *arguments, "--url", fleet.url]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def submit_when_known(client: Client, task_type: str, params: dict[str, object], **wishes: object) -> str:
    """Submit once a worker published the type; return the id."""

    def submit() -> str:
        assert task_type in client.types()
        return client.submit(task_type, params, **wishes).task_id

    return eventually(submit, seconds=20)


# Health


def serve_health(fleet: Fleet, url: str | None = None) -> str:
    """Start a watchdog, and a worker w0 that answers for its health; return where, once it is idle."""
    port = free_port()
    fleet.watchdog()
    options = ["--tasks", "lifecycle", "--name", "w0", "--health-port", str(port)]
    fleet.start("--redis-url", url or fleet.url, "worker", "default", *options)
    address = f"127.0.0.1:{port}"
    eventually(lambda: assert_told(address, "200 idle"), seconds=25)
    return address


def assert_told(address: str, expected: str) -> None:
    """Check what a worker answers for its health."""
    assert re.match(expected, asked(address).text), asked(address)


def asked(address: str) -> Finding:
    """Ask a worker for its health."""
    return ask(address, 2, "w0")


@contextmanager
def watched(address: str) -> Generator[list[str]]:
    """Ask a worker for its health again and again; what it answered is in the list when the block ends."""
    answers: list[str] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            answers.append(asked(address).text)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield answers
    finally:
        is_over.set()
        thread.join()


# Following


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


def entry_of(client: Client, task_id: str, event: str) -> Entry:
    """Return the newest entry of an event."""
    return [entry for entry in client.history(task_id) if entry.event == event][-1]


def seconds_between(client: Client, task_id: str, first: str, last: str) -> float:
    """Return the time between two events, by Redis' clock."""
    return (entry_of(client, task_id, last).at - entry_of(client, task_id, first).at) / 1000


def owner(client: Client, fleet: Fleet, task_id: str) -> "subprocess.Popen[bytes]":
    """Return the process of the worker that runs a task; the worker must have been named at its start."""
    name = client.get(task_id).worker_id
    return next(process for process in fleet.processes if name in process.args)  # type: ignore[operator]


def running(trace: Path, least: int = 1) -> list[str]:
    """Return what the handlers noted, once there are at least so many notes."""

    def check() -> list[str]:
        lines = trace.read_text().splitlines() if trace.exists() else []
        assert len(lines) >= least
        return lines

    return eventually(check, seconds=25)


def begun(trace: Path, attempt: int) -> None:
    """Wait until an attempt noted something."""
    eventually(lambda: expect(attempt in attempts_in(trace)), seconds=25)


def attempts_in(trace: Path) -> list[int]:
    """Return the attempt of each note, in order."""
    return [int(line.split()[0]) for line in trace.read_text().splitlines()]


def logged_pids(client: Client, task_id: str) -> list[int]:
    """Return the pids that the handler logged, once it did."""

    def check() -> list[int]:
        lines = [line for line in client.reads.log(task_id) if line[0].isdigit()]
        assert lines
        return [int(part) for part in lines[0].split()]

    return eventually(check)


# Checking


def assert_in_turn(trace: Path) -> None:
    """Check that no attempt noted anything once a later one had begun."""
    attempts = attempts_in(trace)
    assert attempts == sorted(attempts), "an earlier attempt ran on beside a later one"


def assert_gone(*pids: int) -> None:
    """Check that all of these processes have ended."""
    assert [] == [pid for pid in pids if is_running(pid)]


def assert_clean(client: Client, fleet: Fleet, *task_ids: str, forgotten: Iterable[str] = ()) -> None:
    """Check everything against the audit and the doctor, with the side effects that the fleet's handlers noted.

    Tasks that are `forgotten` may have run, and be gone. Of processes that have ended nothing may live any more,
    whatever ended them.
    """
    eventually(lambda: assert_no_folder_left(fleet))
    eventually(lambda: assert_gone(*fleet.ended()))
    with connect(client.settings) as redis:
        left = {"pids": fleet.ended(), "folders": folders_of_attempts(fleet)}
        assert audit(redis, client.store.keys, task_ids, purged=forgotten, effects=fleet.effects(), **left) == []
        assert [str(problem) for problem in Doctor(Store(redis, client.settings)).audit()] == []


def assert_no_folder_left(fleet: Fleet) -> None:
    """Check that no attempt has a temporary folder; a killed worker's are removed by the others."""
    assert folders_of_attempts(fleet) == []


def folders_of_attempts(fleet: Fleet) -> list[Path]:
    """Return the temporary folders of attempts that are there."""
    return [folder for folder in fleet.temporary.glob("ghostless-*/worker-*/*") if folder.is_dir()]

"""Fixtures of all tests: a private Redis server, a clean database for each test, and the product on top of it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import fakeredis
import pytest
from audit import audit
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.keys import Keys
from ghostless.jobs.reads import Reads
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from looks import ends_with_the_audit, is_fault_test, is_to_leave_all_well
from redis import Redis
from redis_server import HOW_TO_GET_IT, RedisServer, binary

hypothesis_settings.register_profile(
    "long", max_examples=1000, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[object]:
    """Fail a fault test that does not end with the audit, or after which the audit finds something."""
    if is_to_leave_all_well(pyfuncitem.path, pyfuncitem.originalname):
        outcome = yield
        redis = pyfuncitem.funcargs.get("redis") or pyfuncitem.funcargs.get("backend")
        assert [] == found_after(redis)
        return outcome
    if not is_fault_test(pyfuncitem.path, pyfuncitem.originalname):
        return (yield)
    with ends_with_the_audit() as fleets:
        outcome = yield
        fleets += [pyfuncitem.funcargs["fleet"]] if "fleet" in pyfuncitem.funcargs else []
    return outcome


def found_after(redis: object) -> list[str]:
    """Return what the audit finds in the database that a test used, if that was one of a real server."""
    if not isinstance(redis, Redis) or isinstance(redis, fakeredis.FakeRedis):
        return []
    return audit(redis, quarantined=redis.hlen(Keys().quarantine))  # type: ignore[arg-type]


def _require_server() -> None:
    if binary() is None:
        if os.environ.get("CI"):
            pytest.fail(HOW_TO_GET_IT, pytrace=False)
        pytest.skip(HOW_TO_GET_IT)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The server that all tests of one run share, one test at a time."""
    _require_server()
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Start servers that a test may kill and restart: `own_server(durable=True)`."""
    _require_server()
    servers: list[RedisServer] = []

    def start(**options: object) -> RedisServer:
        folder = tmp_path / f"redis{len(servers)}"
        folder.mkdir()
        servers.append(RedisServer(folder, **options))  # type: ignore[arg-type]
        return servers[-1].start()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def settings(redis_server: RedisServer) -> Settings:
    """The defaults, on the server of the tests."""
    return Settings(redis_url=redis_server.url)


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    """A client of an empty database."""
    with connect(Settings(redis_url=redis_server.socket_url)) as client:
        client.flushall()
        yield client
        client.flushall()


@pytest.fixture
def fake_redis() -> Iterator[Redis]:
    """A client of an empty database inside this process."""
    server = fakeredis.FakeServer(version=(7,))
    with fakeredis.FakeRedis(server=server, decode_responses=True, encoding_errors="replace") as client:
        yield client


@pytest.fixture(params=["redis", "fakeredis"])
def backend(request: pytest.FixtureRequest) -> Redis:
    """The same empty database on a real server and inside this process."""
    return request.getfixturevalue("redis" if request.param == "redis" else "fake_redis")


@pytest.fixture
def keys() -> Keys:
    """The key names under the default prefix."""
    return Keys()


@pytest.fixture
def store(redis: Redis, settings: Settings) -> Store:
    """What changes Redis."""
    return Store(redis, settings)


@pytest.fixture
def reads(redis: Redis, keys: Keys) -> Reads:
    """What reads Redis."""
    return Reads(redis, keys)


@pytest.fixture
def client(redis: Redis, settings: Settings) -> Client:
    """The core."""
    return Client(settings, redis)

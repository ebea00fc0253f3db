"""The HTTP API without and with sockets, and a worker that does what a test says."""

from collections.abc import Iterator

import pytest
from contract import Contract
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web.hub import Hub
from redis import Redis
from web_tools import Hand, Served, in_process, publish

from .server_kinds import any_server, each_server, shares

__all__ = ["any_server", "each_server", "shares"]


@pytest.fixture
def web(client: Client, store: Store) -> Iterator[FlaskClient]:
    """The API, asked without sockets; the type `work` is published. Each answer must be what the API says of itself."""
    publish(store)
    app = create_app(client=client)
    contract = Contract(app)
    yield app.test_client()
    app.extensions["ghostless"].hub.close()
    assert [] == contract.breaches


@pytest.fixture
def served(redis: Redis, settings: Settings, store: Store) -> Iterator[Served]:
    """The API on Flask's threaded server, with connections of its own."""
    publish(store)
    app = create_app(client=Client(settings))
    contract = Contract(app)
    with in_process(app) as server:
        yield server
    assert [] == contract.breaches


@pytest.fixture
def hub(served: Served) -> Hub:
    """The hub of that server."""
    assert served.app
    return served.app.extensions["ghostless"].hub


@pytest.fixture
def hand(store: Store) -> Hand:
    """A worker that does what the test says."""
    return Hand(store)

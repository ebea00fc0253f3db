"""A browser for the tests that need a real one.

`page` is a tab of its own with no cookies, no storage and no cache; `page.context.new_page()` is another tab of the
same user. `chromium.open_empty(page, url)` opens a page in which a test's own scripts may fetch.
While a browser runs, Playwright's event loop counts as running in this thread: no `asyncio.run` in these files.
"""

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import chromium
import pytest
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web.hub import Hub
from http_proxy import HttpProxy
from playwright.sync_api import Browser, Page
from redis import Redis
from web_tools import Hand, Served, in_process, publish


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the one browser of all tests takes orders."""
    if chromium.binary() is None:
        if os.environ.get("CI"):
            pytest.fail(chromium.HOW_TO_GET_IT, pytrace=False)
        pytest.skip(chromium.HOW_TO_GET_IT)
    with chromium.chromium(tmp_path_factory.mktemp("profile")) as address:
        yield address


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Browser]:
    """The browser, driven by the tests of a file."""
    with chromium.driven(address) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab of a user who was never here before."""
    context = browser.new_context()
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


@pytest.fixture
def served(redis: Redis, settings: Settings, store: Store) -> Iterator[Served]:
    """The API on Flask's threaded server; the type `work` is published."""
    publish(store)
    with in_process(create_app(client=Client(settings))) as server:
        yield server


@pytest.fixture
def hub(served: Served) -> Hub:
    """The hub of that server."""
    assert served.app
    return served.app.extensions["ghostless"].hub


@pytest.fixture
def hand(store: Store) -> Hand:
    """A worker that does what the test says."""
    return Hand(store)


@pytest.fixture
def proxy(served: Served) -> Iterator[HttpProxy]:
    """A proxy before that server, which misbehaves as the test says."""
    proxy = HttpProxy(urlsplit(served.url).port or 0)
    yield proxy
    proxy.close()

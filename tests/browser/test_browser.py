"""The browser of the tests is a real one, fresh for each test, and disturbs nobody."""

import pytest
from chromium import open_empty
from playwright.sync_api import Browser, Error, Page
from web_tools import Served


def test_a_page_runs_scripts(page: Page, served: Served) -> None:
    """A page of the server can fetch from it."""
    open_empty(page, served.url)
    assert 200 == page.evaluate("fetch('/healthz').then((answer) => answer.status)")


def test_a_strict_page_stays_strict(page: Page, served: Served) -> None:
    """The browser enforces the Content-Security-Policy of what it loads."""
    page.goto(f"{served.url}/healthz")
    with pytest.raises(Error, match="Failed to fetch"):
        page.evaluate("fetch('/healthz')")


@pytest.mark.parametrize("visit", ["first", "second"])
def test_each_test_has_an_empty_profile(page: Page, served: Served, visit: str) -> None:
    """What one test stored, the next does not find."""
    page.goto(f"{served.url}/healthz")
    assert None is page.evaluate("localStorage.getItem('visit')")
    page.evaluate("(visit) => localStorage.setItem('visit', visit)", visit)


def test_nothing_beyond_this_machine_is_reached(page: Page, browser: Browser) -> None:
    """A page that names a foreign host gets nothing from it."""
    with pytest.raises(Error, match="ERR_NAME_NOT_RESOLVED"):
        page.goto("http://example.com/")
    assert browser.is_connected()

"""The page that takes a token: it goes to the server in a body, or nowhere, and what became of it is told."""

from collections.abc import Iterator

import pytest
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from playwright.sync_api import Page, Route, expect
from redis import Redis
from web_tools import Served, in_process, publish


@pytest.fixture
def guarded(redis: Redis, settings: Settings, store: Store) -> Iterator[Served]:
    """The API of a server that demands a token of everybody."""
    publish(store)
    with in_process(create_app(client=Client(settings), require_tokens=True)) as server:
        yield server


def sign_in(page: Page, text: str) -> None:
    """Give the page a token."""
    page.get_by_label("Token").fill(text)
    page.get_by_role("button", name="Sign in").click()


def test_no_token_comes_into_an_address(page: Page, guarded: Served) -> None:
    """While the script is not there nothing can be sent; and what a browser sends by itself has no token in it."""
    page.route("**/login.js", lambda route: route.abort())
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.url} {request.post_data}"))
    page.goto(f"{guarded.url}/login")
    page.get_by_label("Token").fill("gl_secret")
    expect(page.get_by_role("button", name="Sign in")).to_be_disabled()
    page.get_by_label("Token").press("Enter")
    with page.expect_navigation():
        page.evaluate("document.getElementById('login').submit()")
    assert "secret" not in page.url + str(asked)


def test_a_session_that_the_browser_does_not_keep_is_told(page: Page, guarded: Served, client: Client) -> None:
    """Beyond this machine a browser drops the cookie where there is no TLS; signing in does not lead in a circle."""

    def drop(route: Route) -> None:
        if route.request.method == "POST":
            route.fulfill(status=204)
        else:
            route.continue_()

    text, _ = client.tokens.add("ann", [Scope.READ])
    page.route("**/api/session", drop)
    page.goto(f"{guarded.url}/login?next=/tasks/t")
    sign_in(page, text)
    expect(page.get_by_role("alert")).to_contain_text("no TLS")
    assert "/login" in page.url


def test_who_is_signed_in_is_told_and_can_leave(page: Page, guarded: Served, client: Client) -> None:
    """Nothing can be pressed that the token does not allow, and after signing out it is asked for again."""
    text, _ = client.tokens.add("ann", [Scope.READ])
    client.submit("work", id="t")
    page.goto(f"{guarded.url}/tasks/t")
    sign_in(page, text)
    expect(page.locator("#session")).to_contain_text("signed in as ann")
    expect(page.locator("#as-of")).to_contain_text("as of")
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login?next=%2Ftasks%2Ft")
    assert [] == page.context.cookies()


@pytest.mark.parametrize("answers", ["html", "never"])
def test_a_page_does_not_need_to_know_who_asks(page: Page, served: Served, client: Client, answers: str) -> None:
    """Where nobody can tell who is signed in the task is shown all the same."""

    def answer(route: Route) -> None:
        if answers == "html":
            route.fulfill(status=200, content_type="text/html", body="<h1>")

    client.submit("work", id="t")
    page.add_init_script(
        "const timeout = AbortSignal.timeout; AbortSignal.timeout = (ms) => timeout.call(AbortSignal, ms / 10)"
    )
    page.route("**/api/session", answer)
    page.goto(f"{served.url}/tasks/t")
    expect(page.locator("#state")).to_have_text("PENDING", timeout=15_000)

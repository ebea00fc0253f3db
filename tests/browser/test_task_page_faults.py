"""The page of one task when something goes wrong: it never says what nobody knows, and what failed is made up for."""

import json
import re
import time

import pytest
from ghostless.jobs.client import Client
from ghostless.statemachine import Event
from playwright.sync_api import Browser, Page, Route, expect
from redis import Redis
from web_tools import Hand, Served

BROKEN = {"type": "urn:ghostless:internal", "title": "Internal error", "status": 500, "detail": "it broke here"}
BUSY = {"type": "urn:ghostless:busy", "title": "Busy", "status": 503, "detail": "come later"}
PURGED = {"type": "urn:ghostless:task-purged", "title": "Purged", "status": 410, "detail": "its retention ended"}


def state(page: Page, expected: str) -> None:
    """Wait until the page shows this state."""
    expect(page.locator("#state")).to_have_text(expected, timeout=15_000)


def refuse(page: Page, address: str, problem: dict[str, object]) -> None:
    """Let the server answer with a problem document at an address."""
    page.route(
        address,
        lambda route: route.fulfill(
            status=int(str(problem["status"])), content_type="application/problem+json", body=json.dumps(problem)
        ),
    )


@pytest.mark.parametrize("path", ["t", "t/explain", "t/artifacts"])
def test_one_read_that_fails_keeps_nothing_else_back(
    page: Page, served: Served, client: Client, hand: Hand, path: str
) -> None:
    """The state is shown from the stream, the rest from its own reads; what failed is read again until it succeeds."""
    client.submit("work", {"n": 7}, id="t")
    refuse(page, f"**/api/tasks/{path}", BROKEN)
    page.goto(f"{served.url}/tasks/t")
    state(page, "PENDING")
    hand.start()
    state(page, "PROCESSING")
    expect(page.locator("#fault")).to_have_text("it broke here")
    page.unroute(f"**/api/tasks/{path}")
    expect(page.locator("#fault")).to_be_hidden(timeout=20_000)
    expect(page.locator("#params")).to_contain_text('"n": 7')
    expect(page.locator("#as-of")).to_contain_text("as of")


@pytest.mark.parametrize("status", [401, 404, 410])
def test_a_proxys_page_is_not_the_servers_word(page: Page, served: Served, client: Client, status: int) -> None:
    """What a proxy answers in the server's place says nothing of the task, and nothing of who is signed in."""
    client.submit("work", id="t")
    page.route("**/api/tasks/t", lambda route: route.fulfill(status=status, content_type="text/html", body="<h1>"))
    page.goto(f"{served.url}/tasks/t")
    expect(page.locator("#fault")).to_contain_text(f"status {status}")
    state(page, "PENDING")
    page.unroute("**/api/tasks/t")
    expect(page.locator("#fault")).to_be_hidden(timeout=20_000)
    assert f"{served.url}/tasks/t" == page.url


def test_a_server_that_asks_for_rest_gets_it(page: Page, served: Served, client: Client) -> None:
    """What could not be read is read again when the server said, and no sooner."""
    asked: list[Route] = []

    def refuse_for_a_while(route: Route) -> None:
        asked.append(route)
        route.fulfill(
            status=503, headers={"Retry-After": "40"}, content_type="application/problem+json", body=json.dumps(BUSY)
        )

    page.clock.install()
    page.route("**/api/tasks/t/artifacts", refuse_for_a_while)
    client.submit("work", id="t")
    with page.expect_response("**/api/tasks/t/artifacts"):
        page.goto(f"{served.url}/tasks/t")
    page.clock.run_for(10_500)  # for so long the call itself is patient
    expect(page.locator("#fault")).to_have_text("come later")
    assert 2 == len(asked)
    page.clock.run_for(39_000)
    assert 2 == len(asked)
    with page.expect_request("**/api/tasks/t/artifacts"):
        page.clock.run_for(2_000)


def test_the_explanation_does_not_grow_old(page: Page, served: Served, client: Client) -> None:
    """It counts seconds, so it is read again while the task waits."""
    page.clock.install()
    client.submit("work", id="t")
    page.goto(f"{served.url}/tasks/t")
    expect(page.locator("#as-of")).to_contain_text("as of")
    expect(page.locator("#connection")).to_have_text("live")
    page.wait_for_load_state("load")
    with page.expect_request("**/t/explain"):
        page.clock.run_for(5_100)


def test_the_explanation_is_not_older_than_the_progress(page: Page, served: Served, client: Client, hand: Hand) -> None:
    """It tells of the last report too, and is read again soon after one, whenever the page asks by itself."""
    page.add_init_script("const real = setInterval; setInterval = (f, ms) => ms === 5000 ? 0 : real(f, ms)")
    client.submit("work", id="t")
    held = hand.start().held
    hand.store.progress(held, 0.25, "step 5")
    page.goto(f"{served.url}/tasks/t")
    expect(page.locator("#can")).to_contain_text("25 %")
    expect(page.locator("#connection")).to_have_text("live")
    hand.store.progress(held, 0.75, "step 15")
    expect(page.locator("#progress-label")).to_have_text("Progress 75 %")
    expect(page.locator("#can")).to_contain_text("75 % (step 15)")


def test_every_time_is_the_readers_own_and_says_so(
    browser: Browser, served: Served, redis: Redis, client: Client
) -> None:
    """Those of the page, and those in what the server says."""
    redis.set("ghostless:tombstone:t2", "SUCCESS 1790000000000")
    client.submit("work", id="t")
    context = browser.new_context(timezone_id="Asia/Kolkata", locale="en-GB")
    page = context.new_page()
    page.goto(f"{served.url}/tasks/t")
    for place in ("#since", "#history time", "#as-of", "#facts"):
        expect(page.locator(place)).to_contain_text(re.compile(r"\d\d:\d\d:\d\d GMT\+5:30"))
    page.goto(f"{served.url}/tasks/t2")
    for place in ("#fault", "#why"):
        expect(page.locator(place)).to_contain_text("purged at 21 Sept 2026, 19:43:20 GMT+5:30")
    context.close()


def test_what_is_shown_stays_where_it_is(page: Page, served: Served, client: Client, hand: Hand) -> None:
    """A move adds a line; nobody's selection of the others is lost."""
    client.submit("work", {"n": 7}, id="t")
    page.goto(f"{served.url}/tasks/t")
    expect(page.locator("#params")).to_contain_text('"n": 7')
    expect(page.locator("#history li")).to_have_count(1)
    mark = "for (const place of ['#history li', '#params']) document.querySelector(place).firstChild.isOld = true"
    page.evaluate(mark)
    hand.start()
    expect(page.locator("#history li strong")).to_have_text(["PENDING → PROCESSING", "PENDING"])
    expect(page.locator("#history")).to_contain_text("reason")
    expect(page.locator("#facts")).to_contain_text("hand")
    left = "['#history li:last-child', '#params'].map((place) => document.querySelector(place).firstChild.isOld)"
    assert [True, True] == page.evaluate(left)


@pytest.mark.parametrize("notices", ["focus", "look"])
def test_a_retry_from_elsewhere_is_followed(
    page: Page, served: Served, client: Client, hand: Hand, notices: str
) -> None:
    """Who looks at the page again, or only waits, sees that the task began another life, and that it was purged."""
    page.clock.install()
    client.submit("work", id="t", max_retries=0)
    hand.run(event=Event.FAIL)
    page.goto(f"{served.url}/tasks/t")
    expect(page.locator("#connection")).to_have_text("ended")

    def notice() -> None:
        if notices == "focus":
            page.evaluate("window.dispatchEvent(new Event('focus'))")
        else:
            page.clock.run_for(31_000)

    client.retry("t")
    notice()
    state(page, "RETRY_WAITING")
    client.cancel("t")
    state(page, "CANCELLED")
    expect(page.locator("#connection")).to_have_text("ended")
    refuse(page, "**/api/tasks/t", PURGED)
    notice()
    state(page, "purged")
    assert "purged t - Ghostless" == page.title()


def test_a_page_that_cannot_start_says_so(page: Page, served: Served, client: Client) -> None:
    """One file is enough that does not come."""
    client.submit("work", id="t")
    page.route("**/static/history.js", lambda route: route.abort())
    page.goto(f"{served.url}/tasks/t")
    expect(page.locator("#unloaded")).to_be_hidden()  # for a while it may still come
    assert page.evaluate("document.getAnimations()[0].effect.getTiming().delay") <= 10_000
    page.evaluate("for (const one of document.getAnimations()) one.finish()")
    expect(page.locator("#unloaded")).to_be_visible()


def test_asking_is_told_and_keeps_the_focus(page: Page, served: Served, client: Client) -> None:
    """While the server does not answer nothing can be pressed twice, and the keyboard stays where it was."""
    held: list[Route] = []
    page.route("**/t/cancel", lambda route: held.append(route))
    client.submit("work", id="t")
    page.goto(f"{served.url}/tasks/t")
    cancel = page.get_by_role("button", name="Cancel")
    expect(cancel).to_be_enabled()
    cancel.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#asking")).to_have_text("asking…")
    page.keyboard.press("Enter")
    expect(cancel).to_be_disabled()
    assert 1 == len(held)
    held[0].continue_()
    state(page, "CANCELLED")
    expect(page.locator("#asking")).to_be_hidden()
    expect(cancel).to_be_focused()


def test_the_servers_clock_counts(page: Page, served: Served, client: Client, hand: Hand) -> None:
    """A machine whose clock is wrong by hours still sees what just began; percents are whole and right."""
    page.clock.install(time=time.time() + 5 * 3600)
    client.submit("work", id="t")
    held = hand.start()
    hand.store.progress(held.held, 0.29, "")
    page.goto(f"{served.url}/tasks/t")
    expect(page.locator("#since")).to_contain_text("second")
    expect(page.locator("#progress-label")).to_have_text("Progress 29 %")


@pytest.mark.parametrize("path", ["/tasks/" + "t" * 64, "/docs", "/login"])
def test_a_narrow_screen_is_enough(page: Page, served: Served, client: Client, hand: Hand, path: str) -> None:
    """Nothing is wider than the smallest telephone."""
    client.submit("work", id="t" * 64, owner="o" * 60)
    held = hand.start()
    hand.store.progress(held.held, 0.5, "m" * 90)
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(f"{served.url}{path}")
    if path.startswith("/tasks"):
        expect(page.locator("#as-of")).to_contain_text("as of")
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert 320 >= page.evaluate("document.documentElement.scrollWidth")


def test_the_front_shows_the_api(page: Page, served: Served) -> None:
    """The address that a person is told shows something, and each operation there says which scope it needs."""
    page.goto(served.url)
    expect(page.locator("#tasks_submit")).to_contain_text("Scope: submit")
    expect(page.locator("#health_healthz")).to_contain_text("Open to everybody")

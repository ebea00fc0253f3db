"""The page of one task: it shows the truth as it changes, as text, and lets a person act."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.messages import Claimed, Ending
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from ghostless.statemachine import Event, Reason
from http_proxy import HttpProxy
from playwright.sync_api import APIResponse, Page, Route, expect
from redis import Redis
from web_tools import Hand, Served, in_process, publish

HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>\u202e"

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc000000301010018dd8db0"
    "0000000049454e44ae426082"
)
"""A picture of one red point."""


@pytest.fixture
def served(redis: Redis, settings: Settings, store: Store, tmp_path: Path) -> Iterator[Served]:
    """The API of a server that shares the folder of the artifacts."""
    publish(store)
    with in_process(create_app(client=Client(replace(settings, artifacts=str(tmp_path))))) as server:
        yield server


@pytest.fixture
def faults(page: Page) -> Iterator[list[str]]:
    """What the page's scripts did not catch, and what its policy refused; none must be left at the end."""
    told: list[str] = []
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
    yield told
    assert [] == [fault for fault in told if "status of 40" not in fault]  # what the server refuses is told there too


def state(page: Page, expected: str) -> None:
    """Wait until the page shows this state."""
    expect(page.locator("#state")).to_have_text(expected)


def end(hand: Hand, claimed: Claimed, event: Event, text: str) -> None:
    """End an attempt with this result or error."""
    reason = Reason.POLICY if event is Event.COMPLETE else Reason.EXCEPTION
    hand.store.finish(claimed.held, Ending(event, reason, text=text), "worker:hand")


def test_a_life_is_shown_as_it_happens(
    page: Page, served: Served, client: Client, hand: Hand, faults: list[str], tmp_path: Path
) -> None:
    """State, progress, history and result appear without a reload, and the last is the final one."""
    client.submit("work", {"n": 7}, id="t")
    page.goto(f"{served.url}/tasks/t")
    state(page, "PENDING")
    expect(page.locator("#params")).to_contain_text('"n": 7')
    held = hand.start()
    state(page, "PROCESSING")
    hand.store.progress(held.held, 0.5, "half of it")
    expect(page.locator("#progress-label")).to_have_text("Progress 50 %")
    expect(page.locator("#message")).to_have_text("half of it")
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "dot.png").write_bytes(PNG)
    end(hand, held, Event.COMPLETE, json.dumps({"kept": "dot.png"}))
    state(page, "SUCCESS")
    expect(page.locator("#result")).to_contain_text("dot.png")
    expect(page.locator("#history li strong").first).to_have_text("PROCESSING → SUCCESS")
    assert ["PROCESSING → SUCCESS", "PENDING → PROCESSING", "PENDING"] == page.locator(
        "#history li strong"
    ).all_inner_texts()
    expect(page.locator("#pictures img")).to_have_js_property("naturalWidth", 1)
    expect(page.locator("#connection")).to_have_text("ended")


def test_a_read_that_is_late_hides_no_progress(page: Page, served: Served, client: Client, hand: Hand) -> None:
    """What was reported after the read began is newer than what it brings."""
    held: list[tuple[Route, APIResponse]] = []
    client.submit("work", id="t")
    page.goto(f"{served.url}/tasks/t")
    expect(page.locator("#connection")).to_have_text("live")
    state(page, "PENDING")
    page.route("**/api/tasks/t", lambda route: held.append((route, route.fetch())))
    claimed = hand.start()
    state(page, "PROCESSING")
    while not held:
        page.wait_for_timeout(20)
    hand.store.progress(claimed.held, 0.5, "half of it")
    expect(page.locator("#progress-label")).to_have_text("Progress 50 %")
    with page.expect_response("**/api/tasks/t"):
        for route, response in held:
            route.fulfill(response=response)
    expect(page.locator("#facts")).to_contain_text("hand")
    expect(page.locator("#progress-label")).to_have_text("Progress 50 %")


def test_a_person_acts(page: Page, served: Served, client: Client, faults: list[str]) -> None:
    """What is possible can be pressed, what is not cannot, and the page shows what came of it."""
    client.submit("work", id="t")
    page.goto(f"{served.url}/tasks/t")
    state(page, "PENDING")
    expect(page.get_by_role("button", name="Resume")).to_be_disabled()
    page.get_by_role("button", name="Pause").click()
    state(page, "PAUSED")
    page.get_by_role("button", name="Resume").click()
    state(page, "PENDING")
    page.get_by_role("button", name="Cancel").click()
    state(page, "CANCELLED")
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
    assert "CANCELLED" == client.get("t").state


def test_a_retry_begins_another_life(
    page: Page, served: Served, client: Client, hand: Hand, faults: list[str], tmp_path: Path
) -> None:
    """The page follows a task again that had ended, and shows what it kept though it failed."""
    client.submit("work", id="t", max_retries=0)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "dot.png").write_bytes(PNG)
    end(hand, hand.start(), Event.FAIL, "it broke")
    page.goto(f"{served.url}/tasks/t")
    state(page, "FAILED")
    expect(page.locator("#error")).to_have_text("it broke")
    expect(page.locator("#pictures img")).to_have_js_property("naturalWidth", 1)
    expect(page.locator("#connection")).to_have_text("ended")
    page.get_by_role("button", name="Retry").click()
    state(page, "RETRY_WAITING")
    hand.store.release("watchdog:test")
    state(page, "PENDING")
    end(hand, hand.start(), Event.COMPLETE, "1")
    state(page, "SUCCESS")


def test_everything_is_text(page: Page, served: Served, client: Client, hand: Hand, faults: list[str]) -> None:
    """Whatever a submitter, a handler or an operator writes, no part of it becomes code or an element."""
    client.submit("work", id="t", owner="<b>ann", metadata={"m": HOSTILE}, max_retries=0)
    held = hand.start()
    hand.store.progress(held.held, 0.1, HOSTILE[:40])
    page.goto(f"{served.url}/tasks/t")
    state(page, "PROCESSING")
    client.cancel("t", message=HOSTILE)
    state(page, "CANCELLING")
    expect(page.locator("#history")).to_contain_text("onerror")
    end(hand, held, Event.STOPPED, HOSTILE)
    state(page, "CANCELLED")
    expect(page.locator("#error")).to_contain_text("<script>")
    assert 0 == page.locator("main img, main script, main b").count()
    assert "taken" not in page.title()


def test_who_has_no_session_signs_in_first(page: Page, redis: Redis, settings: Settings, store: Store) -> None:
    """Where tokens are demanded the page asks for one, comes back, and the session may do what the token may."""
    publish(store)
    client = Client(settings)
    text, _ = client.tokens.add("ann", [Scope.READ, Scope.OPERATE], owner="ann")
    client.submit("work", id="t", owner="ann")
    client.submit("work", id="bobs", owner="bob")
    with in_process(create_app(client=client, require_tokens=True)) as served:
        page.goto(f"{served.url}/tasks/t")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("token")
        page.get_by_label("Token").fill(text)
        page.get_by_role("button", name="Sign in").click()
        state(page, "PENDING")
        page.get_by_role("button", name="Cancel").click()
        state(page, "CANCELLED")
        assert "api:ann" == client.history("t")[-1].actor
        page.goto(f"{served.url}/tasks/bobs")
        state(page, "unknown")
        assert text not in page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})")


@pytest.mark.parametrize(
    "target", ["", "https://example.com/", "//example.com/", "javascript:alert(1)", "/\\example.com"]
)
def test_signing_in_leads_nowhere_else(page: Page, redis: Redis, settings: Settings, store: Store, target: str) -> None:
    """The address to go on to is one of this server, whoever made the link."""
    client = Client(settings)
    text, _ = client.tokens.add("ann", [Scope.READ])
    with in_process(create_app(client=client, require_tokens=True)) as served:
        page.goto(f"{served.url}/login?next={quote(target, safe='')}")
        page.get_by_label("Token").fill(text)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(lambda url: "/login" not in url)
        assert f"{served.url}/docs" == page.url


@pytest.mark.parametrize("target", ["/.//example.com/x", "/..//example.com/x", "/%2e//example.com/x", "{own}//x/y"])
def test_signing_in_takes_no_path_for_a_host(page: Page, settings: Settings, store: Store, target: str) -> None:
    """A path of this server may begin like the address of another host, once a browser has put it right."""
    client = Client(settings)
    text, _ = client.tokens.add("ann", [Scope.READ])
    with in_process(create_app(client=client, require_tokens=True)) as served:
        page.goto(f"{served.url}/login?next={quote(target.format(own=served.url), safe='')}")
        page.get_by_label("Token").fill(text)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(lambda url: "/login" not in url)
        assert page.url.startswith(f"{served.url}//")


@pytest.mark.parametrize("task_id", ["unknown", "purged"])
def test_a_task_that_is_not_there_is_told(page: Page, served: Served, redis: Redis, task_id: str) -> None:
    """A page never pretends to wait for what will not come."""
    redis.set("ghostless:tombstone:purged", "SUCCESS 1790000000000")
    page.goto(f"{served.url}/tasks/{task_id}")
    state(page, task_id)
    expect(page.locator("#fault")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()


def test_a_server_that_is_away_is_told(page: Page, proxy: HttpProxy, client: Client) -> None:
    """What cannot be known is shown as old, not as failed."""
    client.submit("work", id="t")
    page.goto(f"{proxy.url}/tasks/t")
    expect(page.locator("#connection")).to_have_text("live")
    page.context.set_offline(True)
    proxy.cut()  # a browser's own "offline" leaves open what is open
    expect(page.locator("#connection")).not_to_have_text("live")
    client.cancel("t")
    state(page, "PENDING")
    page.context.set_offline(False)
    state(page, "CANCELLED")


@pytest.mark.parametrize("path", ["/", "/tasks/t", "/docs", "/login"])
def test_pages_are_strict(page: Page, served: Served, client: Client, path: str) -> None:
    """No page loads anything from elsewhere, and none runs a script that was written into it."""
    client.submit("work", id="t")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(f"{served.url}{path}")
    assert answer
    page.wait_for_load_state("load")
    assert [] == [url for url in asked if not url.startswith(served.url)]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert not re.search(r"unsafe|\*|http", policy)
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {id: 'made'}))")
    with pytest.raises(Exception, match="TrustedScript|Trusted Type|requires"):
        page.evaluate("document.body.innerHTML = '<p>html</p>'")


def test_the_api_is_shown_whole(page: Page, served: Served) -> None:
    """Each operation of the description is on the page, and each link in it leads somewhere."""
    page.goto(f"{served.url}/docs")
    described = page.request.get(f"{served.url}/openapi.json").json()
    operations = {one["operationId"] for methods in described["paths"].values() for one in methods.values()}
    assert operations == set(page.evaluate("[...document.querySelectorAll('details')].map((one) => one.id)"))
    dangling = (
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter((a) => !document.getElementById(a.hash.slice(1)))"
    )
    assert 0 == page.evaluate(f"{dangling}.length")

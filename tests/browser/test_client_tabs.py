"""Tabs of one user share one stream, and none of them depends on another to learn the truth."""

import random
import re
from collections.abc import Callable
from contextlib import suppress

import pytest
from chromium import open_empty
from following import Follower
from ghostless.jobs.client import Client
from ghostless.jobs.tokens import Scope
from ghostless.statemachine import Event
from helpers import eventually, expect
from http_proxy import BAD_GATEWAY, HttpProxy, Rules
from playwright.sync_api import Error, Page
from web_tools import Hand, submitted

Tabs = Callable[[int], list[Follower]]


@pytest.fixture
def tabs(page: Page, proxy: HttpProxy) -> Tabs:
    """Open so many tabs of one user."""
    return lambda number: [Follower(page.context.new_page(), proxy.url) for _ in range(number)]


def test_three_tabs_share_a_stream(tabs: Tabs, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """The server sees one, and each tab sees all moves of the task, also of those before it was opened."""
    task_id = submitted(client)
    claimed = hand.start()
    followers = tabs(3)
    for follower in followers:
        follower.follow([task_id]).awaits(task_id, "PENDING", "PROCESSING").awaits_status("live")
    hand.finish(claimed)
    for follower in followers:
        follower.awaits_end(client, task_id)
    assert 1 == len(proxy.streams_asked)


def test_tabs_that_follow_different_tasks_share_a_stream(
    tabs: Tabs, proxy: HttpProxy, client: Client, hand: Hand
) -> None:
    """It tells of all tasks, each tab of its own ones; the end of one waits for no other."""
    first, second = tabs(2)
    one, other = submitted(client, queue="one"), submitted(client, queue="other")
    first.follow([one]).awaits(one, "PENDING")
    second.follow([other]).awaits(other, "PENDING")
    eventually(lambda: expect(1 == proxy.streams))
    assert [] == first.states(other)
    hand.run("other")
    second.awaits_end(client, other)
    hand.run("one")
    first.awaits_end(client, one)


def crash(tab: Follower) -> None:
    """End a tab's process the hard way."""
    with suppress(Error):
        tab.page.goto("chrome://crash", wait_until="commit", timeout=1000)


@pytest.mark.parametrize("leave", [lambda tab: tab.page.close(), lambda tab: tab.page.goto("about:blank"), crash])
def test_who_leads_may_leave(
    tabs: Tabs, proxy: HttpProxy, client: Client, hand: Hand, leave: Callable[[Follower], None]
) -> None:
    """Closed, gone elsewhere or crashed: another tab takes over where it was, with no move lost or told twice."""
    task_id = submitted(client)
    leader, *others = tabs(3)
    for follower in (leader, *others):
        follower.follow([task_id]).awaits(task_id, "PENDING")
    claimed = hand.start()
    leave(leader)
    for follower in others:
        follower.awaits(task_id, "PENDING", "PROCESSING")
    hand.finish(claimed)
    for follower in others:
        follower.awaits_end(client, task_id)
    eventually(lambda: expect(0 == proxy.streams))
    assert all(asked.headers["last-event-id"] for asked in proxy.streams_asked[1:])


HALT = "const ask = new XMLHttpRequest(); ask.open('GET', '/halt', false); try { ask.send(); } catch {}"
"""Lets all of a page stand still until the proxy goes on."""


def test_who_leads_may_freeze(tabs: Tabs, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """A tab may stand still, with its lock: the others follow by themselves until it is back."""
    task_id = submitted(client)
    leader, other = tabs(2)
    for follower in (leader, other):
        follower.follow([task_id]).awaits(task_id, "PENDING")
    leader.page.evaluate(f"void setTimeout(() => {{ {HALT} }})")
    eventually(lambda: expect("/halt" in [asked.path for asked in proxy.asked]))
    claimed = hand.start()
    other.awaits(task_id, "PENDING", "PROCESSING")
    assert 2 == len(proxy.streams_asked)
    proxy.go_on.set()
    eventually(lambda: expect(1 == proxy.streams))
    hand.finish(claimed)
    for follower in (leader, other):
        follower.awaits_end(client, task_id)


def test_tabs_of_different_tokens_share_nothing(tabs: Tabs, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """What one may see is not the other's business."""
    task_id = submitted(client)
    first, second = tabs(2)
    mine, other = (client.tokens.add(name, [Scope.READ])[0] for name in ("ann", "bob"))
    first.follow([task_id], token=mine).awaits(task_id, "PENDING")
    second.follow([task_id], token=other).awaits(task_id, "PENDING")
    assert [mine, other] == [asked.token for asked in proxy.streams_asked]
    hand.run()
    for follower in (first, second):
        follower.awaits_end(client, task_id)


def test_the_others_are_told_of_the_connection_too(tabs: Tabs, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """A tab that hears through another one knows as well that the server is away, and ends with the truth as well."""
    task_id = submitted(client)
    followers = tabs(2)
    for follower in followers:
        follower.follow([task_id]).awaits(task_id, "PENDING")
    proxy.rules = Rules(refuses=BAD_GATEWAY)
    proxy.cut()
    for follower in followers:
        follower.awaits_status("reconnecting")
    hand.run()
    proxy.rules = Rules()
    for follower in followers:
        follower.awaits_end(client, task_id)


# Where tabs cannot share

CANNOT_SHARE = "".join(
    f"Object.defineProperty({owner}, '{name}', {{ value: undefined }});"
    for owner, name in (
        ("Navigator.prototype", "locks"), ("Crypto.prototype", "subtle"), ("Crypto.prototype", "randomUUID"),
        ("window", "BroadcastChannel"),
    )
)  # fmt: skip
"""What browsers lack on plain HTTP from another machine."""

LOOK = """(state) => {
    Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Let a page be hidden, or seen again."""


def test_a_hidden_tab_that_cannot_share_holds_no_connection(
    page: Page, proxy: HttpProxy, client: Client, hand: Hand
) -> None:
    """All tabs have six together, and the one that somebody looks at needs some: it polls until it is seen again."""
    page.add_init_script(CANNOT_SHARE)
    task_id = submitted(client)
    follower = Follower(page, proxy.url).follow([task_id], timing={"rest": 300}).awaits(task_id, "PENDING")
    page.evaluate(LOOK, "hidden")
    follower.awaits_status("polling")
    eventually(lambda: expect(0 == proxy.streams))
    claimed = hand.start()
    follower.awaits(task_id, "PENDING", "PROCESSING")
    assert [] == [asked for asked in proxy.asked if asked.is_held]
    page.evaluate(LOOK, "visible")
    follower.awaits_status("live")
    page.evaluate(LOOK, "hidden")
    hand.finish(claimed)
    told = follower.awaits_end(client, task_id)
    assert ["live", "polling", "live", "polling"] == [connection["status"] for connection in told["connections"]]


def test_it_works_where_tabs_cannot_share(page: Page, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """Each has a stream of its own, and keys are random all the same."""
    page.add_init_script(CANNOT_SHARE)
    open_empty(page, proxy.url)
    made = page.evaluate("import('/static/client.js').then(({ Client }) => new Client().submit('work'))")
    follower = Follower(page, proxy.url).follow([made["id"]]).awaits(made["id"], "PENDING")
    hand.run()
    follower.awaits_end(client, made["id"])
    (asked,) = [asked for asked in proxy.asked if asked.method == "POST"]
    assert re.fullmatch("[0-9a-f]{32}", asked.headers["idempotency-key"])


# Everything at once


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_every_tab_ends_with_the_truth(
    tabs: Tabs, proxy: HttpProxy, client: Client, hand: Hand, seed: int
) -> None:
    """Tabs come and go, and the connection too, while their tasks move on: each tab sees each move once, in order."""
    chance = random.Random(seed)
    ids = [submitted(client) for _ in range(3)]
    wants: dict[Follower, list[str]] = {}
    for _ in range(10):
        if len(wants) < 3 or chance.random() < 0.3:
            follower = tabs(1)[0]
            wants[follower] = chance.sample(ids, chance.randint(1, 3))
            follower.follow(wants[follower])
        else:
            gone = chance.choice(list(wants))
            wants.pop(gone)
            gone.page.close()
        proxy.rules = chance.choice([Rules(), Rules(refuses=BAD_GATEWAY), Rules(cuts_at=b"attempt"), Rules(delay=0.05)])
        if chance.random() < 0.5:
            proxy.cut()
        hand.run(event=Event.SUSPEND)
    proxy.rules = Rules()
    for _ in ids:
        hand.run()
    for follower, wanted in wants.items():
        follower.awaits_end(client, *wanted)
    eventually(lambda: expect(0 == proxy.streams))

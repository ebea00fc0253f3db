"""Tabs of one user share one stream, and none of them depends on another to learn the truth."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from following import Follower
from ghostless.jobs.client import Client
from helpers import eventually, expect
from http_proxy import HttpProxy, Rules
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
    assert 1 == proxy.most_streams
    assert [] == first.states(other)
    hand.run("other")
    second.awaits_end(client, other)
    hand.run("one")
    first.awaits_end(client, one)
    assert 1 == proxy.most_streams


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
    first.follow([task_id], token="mine").awaits(task_id, "PENDING")
    second.follow([task_id], token="another").awaits(task_id, "PENDING")
    assert ["mine", "another"] == [asked.token for asked in proxy.streams_asked]
    hand.run()
    for follower in (first, second):
        follower.awaits_end(client, task_id)


def test_the_others_are_told_of_the_connection_too(tabs: Tabs, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """A tab that hears through another one knows as well that the server is away, and ends with the truth as well."""
    task_id = submitted(client)
    followers = tabs(2)
    for follower in followers:
        follower.follow([task_id]).awaits(task_id, "PENDING")
    proxy.rules = Rules(refuses=True)
    proxy.cut()
    for follower in followers:
        follower.awaits_status("reconnecting")
    hand.run()
    proxy.rules = Rules()
    for follower in followers:
        follower.awaits_end(client, task_id)

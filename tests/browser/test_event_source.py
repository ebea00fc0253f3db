"""The browser's own EventSource, without any code of ours: it ends with the truth, whatever happens on the way."""

import random
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from chromium import open_empty
from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from ghostless.web import frames
from playwright.sync_api import Page
from web_tools import Hand, Served, submitted, until
from wire import Wire

FOLLOW = """
(url) => {
    window.told = [];
    window.source = new EventSource(url);
    for (const kind of ["task", "progress", "log", "reset", "end"]) {
        source.addEventListener(kind, (event) =>
            told.push({ kind, id: event.lastEventId, data: JSON.parse(event.data) }));
    }
}
"""

FETCH_AND_FOLLOW = """
async ({ tasks, pause }) => {
    const answer = await fetch("/api/tasks");
    window.page = await answer.json();
    await new Promise((resolve) => setTimeout(resolve, pause));
    const query = tasks.map((task) => `task=${task}`).join("&");
    (FOLLOW)(`/api/events?${query}&last_event_id=${page.last_event_id}`);
}
""".replace("FOLLOW", FOLLOW)

OPEN, CLOSED = 1, 2


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let browsers come back at once."""
    monkeypatch.setattr(frames, "RECONNECT", (50, 100))


@pytest.fixture
def wire(served: Served) -> Iterator[Wire]:
    """A wire to the server."""
    wire = Wire(urlsplit(served.url).port or 0)
    yield wire
    wire.close()


def told(page: Page, kind: str) -> list[dict[str, Any]]:
    """Return the events of a kind that the page heard."""
    return [event for event in page.evaluate("told") if event["kind"] == kind]


def moves(page: Page) -> list[str]:
    """Return the entry ids of the moves that the page heard of."""
    return [event["id"].partition(".")[2] for event in told(page, "task")]


def wait_for(page: Page, state: int) -> None:
    page.wait_for_function("(state) => source.readyState === state", arg=state)


@pytest.mark.parametrize("pause", [0, 500], ids=["at once", "after a while"])
def test_from_page_load_to_the_end_nothing_is_missed(
    page: Page, served: Served, client: Client, store: Store, pause: int
) -> None:
    """A page fetches a list and opens its stream from there, while tasks run all the time."""
    tasks = [submitted(client, queue=f"q{number}") for number in range(3)]
    started = threading.Event()

    def live(number: int) -> None:
        hand = Hand(store, f"w{number}")
        claimed = hand.start(f"q{number}")
        for step in range(15):
            started.wait(10)
            time.sleep(random.uniform(0, 0.1))
            store.stage(claimed.held, f"worker:w{number}", f"step {step}")
        hand.finish(claimed)

    lives = [threading.Thread(target=live, args=[number]) for number in range(3)]
    for thread in lives:
        thread.start()
    open_empty(page, served.url)
    started.set()
    page.evaluate(FETCH_AND_FOLLOW, {"tasks": tasks, "pause": pause})
    page.wait_for_function("told.at(-1)?.kind === 'end'")
    for thread in lives:
        thread.join()
    wait_for(page, CLOSED)
    cursor = page.evaluate("page.last_event_id").partition(".")[2]
    history = [entry for entry, _ in store.redis.xrange(store.keys.history, f"({cursor}")]
    assert history == moves(page)
    assert len(history) > 15
    shown = {task["id"]: task["state"] for task in page.evaluate("page.tasks")}
    shown |= {event["data"]["id"]: event["data"]["state"] for event in told(page, "task")}
    assert dict.fromkeys(tasks, "SUCCESS") == shown


def test_a_stream_that_is_cut_in_mid_event_ends_with_the_truth(
    page: Page, wire: Wire, client: Client, store: Store, hand: Hand
) -> None:
    """Cut twelve times at any byte, the browser comes back with its cursor: each move once, in order, then the end."""
    chance = random.Random(7)
    wire.cuts(chance.randint(100, 1600) for _ in range(12))
    task_id = submitted(client)
    open_empty(page, wire.origin)
    page.evaluate(FOLLOW, f"/api/tasks/{task_id}/events")
    claimed = hand.start()
    for step in range(20):
        store.stage(claimed.held, "worker:hand", f"step {step}")
    until(lambda: wire.cut == 12)
    hand.finish(claimed)
    wait_for(page, CLOSED)
    assert [entry.id for entry in client.history(task_id)] == moves(page)
    assert 1 == len(told(page, "end"))
    assert [] == told(page, "reset")


def test_after_the_end_a_browser_does_not_come_back(page: Page, served: Served, client: Client, hand: Hand) -> None:
    """After `end` the browser reconnects once by itself; the 204 that it gets then closes its EventSource for good."""
    task_id = submitted(client)
    asked: list[int] = []
    page.on("response", lambda answer: asked.append(answer.status) if answer.url.endswith("/events") else None)
    open_empty(page, served.url)
    page.evaluate(FOLLOW, f"/api/tasks/{task_id}/events")
    wait_for(page, OPEN)
    hand.run()
    wait_for(page, CLOSED)
    page.wait_for_timeout(300)  # several times as long as it would wait to come back
    assert [200, 204] == asked
    assert ["PENDING", "PROCESSING", "SUCCESS"] == [event["data"]["state"] for event in told(page, "task")]


def test_an_unknown_task_closes_an_event_source(page: Page, served: Served) -> None:
    """It is an error before the stream starts, and a browser does not ask again."""
    open_empty(page, served.url)
    page.evaluate(FOLLOW, "/api/tasks/none/events")
    wait_for(page, CLOSED)
    assert [] == page.evaluate("told")


def test_a_cursor_that_leads_nowhere_is_told_to_the_page(
    page: Page, served: Served, client: Client, hand: Hand
) -> None:
    """`reset` says that the page must fetch anew; the same stream goes on from there."""
    task_id = submitted(client)
    open_empty(page, served.url)
    page.evaluate(FOLLOW, f"/api/tasks/{task_id}/events?last_event_id=garbage")
    page.wait_for_function("told.length === 1")
    hand.run()
    wait_for(page, CLOSED)
    assert [{"reason": "unreadable"}] == [event["data"] for event in told(page, "reset")]
    assert ["PROCESSING", "SUCCESS"] == [event["data"]["state"] for event in told(page, "task")]


def test_a_browser_keeps_trying_a_full_server(page: Page, served: Served, client: Client, hand: Hand) -> None:
    """Over the limit an EventSource stays alive, and is served when there is room."""
    assert served.app
    hub = served.app.extensions["ghostless"].hub
    hub.limit = 0
    task_id = submitted(client)
    asked: list[int] = []
    page.on("response", lambda answer: asked.append(answer.status) if answer.url.endswith("/events") else None)
    open_empty(page, served.url)
    page.evaluate(FOLLOW, f"/api/tasks/{task_id}/events")
    while len(asked) < 3:
        page.wait_for_timeout(50)
    assert {200} == set(asked)
    hub.limit = 10
    hand.run()
    wait_for(page, CLOSED)
    assert ["PENDING", "PROCESSING", "SUCCESS"] == [event["data"]["state"] for event in told(page, "task")]

"""The JavaScript client behind everything that lies between a page and a server: it ends with the truth, each time."""

import random
from collections.abc import Callable
from urllib.parse import urlsplit

import chromium
import psutil
import pytest
import requests
from following import Follower
from ghostless.jobs.client import Client
from ghostless.jobs.keys import Keys
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from ghostless.statemachine import Event
from ghostless.web import sse
from ghostless.web.hub import Hub
from helpers import eventually, expect
from http_proxy import BAD_GATEWAY, HttpProxy, Rules
from playwright.sync_api import Page
from redis import Redis
from redis_server import RedisServer
from web_tools import Hand, Served, gunicorn, publish, submitted

ATTEMPTS = 8
"""How often a task is interrupted that is to have a long history."""


@pytest.fixture
def follower(page: Page, proxy: HttpProxy) -> Follower:
    """A page behind the proxy."""
    return Follower(page, proxy.url)


def stream_token(proxy: HttpProxy, client: Client, name: str, *task_ids: str) -> str:
    """Return what a page's own server gets for its user: a token that is good for these tasks."""
    text, _ = client.tokens.add(name, [Scope.READ])
    wanted = {"task": list(task_ids)}
    answer = requests.post(
        f"{proxy.url}/api/stream-tokens", json=wanted, headers={"Authorization": f"Bearer {text}"}, timeout=10
    )
    answer.raise_for_status()
    return answer.json()["token"]


def interrupt(hand: Hand) -> None:
    """Let a task have one more attempt behind it, as a redeploy does; it is never final in between."""
    hand.run(event=Event.SUSPEND)


STATUSES = [
    BAD_GATEWAY, "503 Service Unavailable", "504 Gateway Timeout", "404 Not Found", "200 OK", "429 Too Many Requests",
]  # fmt: skip


@pytest.mark.parametrize(
    "rules",
    [*(Rules(refuses=status) for status in STATUSES), Rules(swallows_answers=True)],
    ids=lambda rules: rules.refuses or "no answer",
)
def test_a_server_that_is_away_means_nothing(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand, rules: Rules
) -> None:
    """While a proxy answers in its place, or closes without an answer: the last known state and its age, no failure."""
    task_id = submitted(client)
    claimed = hand.start()
    follower.follow([task_id]).awaits(task_id, "PENDING", "PROCESSING")
    proxy.rules = rules
    proxy.cut()
    told = follower.awaits_status("reconnecting")
    hand.finish(claimed)
    assert "PROCESSING" == told["tasks"][task_id]["state"]
    eventually(lambda: expect(follower.awaits_status("reconnecting")["age"] > 300))
    assert ["PENDING", "PROCESSING"] == follower.states(task_id)
    assert [] == follower.told["ends"]
    proxy.rules = Rules()
    follower.awaits_end(client, task_id)
    follower.awaits_status("live")


def test_delays_grow_to_a_ceiling_and_are_never_alike(page: Page, served: Served) -> None:
    """Anything up to a ceiling that doubles, so that many clients that lost a server do not come back at once."""
    chromium.open_empty(page, served.url)
    delays = """async (chance) => {
        const { fullJitter } = await import("/static/client/timing.js");
        Math.random = () => chance;
        return [0, 1, 2, 3, 9, 5000].map((failures) => fullJitter(failures, 1000, 30000));
    }"""
    assert [1000, 2000, 4000, 8000, 30000, 30000] == page.evaluate(delays, 1)
    assert [500, 1000, 2000, 4000, 15000, 15000] == page.evaluate(delays, 0.5)
    assert [0] * 6 == page.evaluate(delays, 0)


@pytest.mark.parametrize("is_date", [False, True], ids=["seconds", "date"])
def test_who_says_when_to_come_back_is_heard(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand, is_date: bool
) -> None:
    """Retry-After holds: a number, or a date by the server's clock, whatever the clock of this machine says."""
    task_id = submitted(client)
    dates = "Date: Sun, 01 Jan 2040 00:00:00 GMT\r\nRetry-After: Sun, 01 Jan 2040 00:00:01 GMT"
    proxy.rules = Rules(refuses=f"503 Service Unavailable\r\n{dates if is_date else 'Retry-After: 1'}")
    follower.follow([task_id]).awaits_status("reconnecting")
    proxy.rules = Rules()
    hand.run()
    follower.awaits_end(client, task_id)
    first, second = proxy.streams_asked
    assert second.at - first.at > 0.95


@pytest.mark.parametrize("mark", [b'"state":"PROC', b"event: ta", b'"state":"SUC', b"event: e", b"retry: ", b"\nid: "])
def test_a_stream_that_is_cut_anywhere_goes_on(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand, mark: bytes
) -> None:
    """Within an event, a name or a number: half an event is none, and no move comes twice."""
    task_id = submitted(client)
    proxy.rules = Rules(cuts_at=mark)
    follower.follow([task_id])
    hand.run()
    # Again for the stream, or without one where not even its first block came.
    eventually(lambda: expect(len([asked for asked in proxy.asked if asked.is_api]) >= 2))
    proxy.rules = Rules()
    follower.awaits_end(client, task_id)


def test_a_caller_who_is_bound_to_an_owner_goes_on_like_any_other(
    follower: Follower, proxy: HttpProxy, client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most places that he is told cannot be read; the client compares only those of moves, and resumes from both."""
    monkeypatch.setattr(sse, "HEARTBEAT", 0.1)
    token, _ = client.tokens.add("ann", [Scope.READ], owner="ann")
    task_id, hand = submitted(client, owner="ann"), Hand(store)
    follower.follow([task_id], token=token)
    for number in range(3):
        submitted(client, owner="bob", queue="other")
        interrupt(hand)
        eventually(lambda: expect(follower.entries(task_id) == [entry.id for entry in client.history(task_id)]))
        if number:
            eventually(lambda: expect(proxy.streams == 1))
            proxy.cut()
            eventually(lambda number=number: expect(len(proxy.streams_asked) > number))
    hand.run()
    told = follower.awaits_end(client, task_id)
    assert [] == told["resets"]
    resumed = [asked.headers.get("last-event-id", "") for asked in proxy.streams_asked[1:]]
    assert all(resumed)


def test_a_stream_resumes_with_its_cursor(follower: Follower, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """The second request names the newest move that was told, of whichever task; the server tells only the rest."""
    quiet, task_id = submitted(client, queue="other"), submitted(client)
    claimed = hand.start()
    follower.follow([quiet, task_id]).awaits(task_id, "PENDING", "PROCESSING")
    newest = follower.told["moves"][-1]["cursor"]
    proxy.cut()
    eventually(lambda: expect(2 == len(proxy.streams_asked)))
    assert [None, newest] == [asked.headers.get("last-event-id") for asked in proxy.streams_asked]
    hand.finish(claimed)
    hand.run("other")
    follower.awaits_end(client, quiet, task_id)


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("rules", [Rules(holds_streams=True), Rules(refuses_streams=True)], ids=["held", "refused"])
def test_without_streams_it_polls(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand, rules: Rules, number: int
) -> None:
    """Behind a proxy that holds streams back, or refuses them, the page still sees every move, a little later."""
    ids = [submitted(client) for _ in range(number)]
    proxy.rules = rules
    follower.follow(ids).awaits_status("polling")
    if number == 1:
        eventually(lambda: expect(any(asked.is_held for asked in proxy.asked)))
    for _ in ids:
        interrupt(hand)
    for _ in ids:
        hand.run()
    told = follower.awaits_end(client, *ids)
    assert "polling" == told["connections"][-1]["status"]
    if rules.refuses_streams:  # one that is held is waited for at first
        assert ["polling"] == [connection["status"] for connection in told["connections"]]


def test_a_proxy_that_cuts_what_waits_is_polled(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand
) -> None:
    """Where answers that are held are not to be had either, short ones do."""
    task_id = submitted(client)
    proxy.rules = Rules(refuses_streams=True, refuses_holding=True)
    follower.follow([task_id]).awaits_status("polling")
    eventually(lambda: expect(3 <= len([asked for asked in proxy.asked if asked.path.endswith(task_id)])))
    hand.run()
    told = follower.awaits_end(client, task_id)
    assert ["polling"] == [connection["status"] for connection in told["connections"]]


def test_a_server_that_takes_no_more_streams_is_polled(
    follower: Follower, served: Served, proxy: HttpProxy, client: Client, hand: Hand, hub: Hub
) -> None:
    """It has no place for an answer that waits either: it is asked now and then, and not in a circle."""
    task_id = submitted(client)
    hub.limit = 0
    follower.follow([task_id], timing={"pollFirst": 300, "pollMost": 300}).awaits_status("polling")
    before = len(proxy.asked)
    follower.page.wait_for_timeout(1000)
    assert len(proxy.asked) - before < 12
    hand.run()
    told = follower.awaits_end(client, task_id)
    assert ["polling"] == [connection["status"] for connection in told["connections"]]


def test_progress_is_told_without_a_stream(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand, store: Store
) -> None:
    """The last that was reported, when it changed."""
    task_id = submitted(client)
    claimed = hand.start()
    proxy.rules = Rules(refuses_streams=True)
    follower.follow([task_id]).awaits_status("polling")
    store.progress(claimed.held, 0.25, "a quarter")
    eventually(lambda: expect(follower.told["progress"]))
    (told,) = follower.told["progress"]
    assert (task_id, 1, 0.25, "a quarter") == tuple(told[name] for name in ("id", "attempt", "progress", "message"))
    hand.finish(claimed)
    follower.awaits_end(client, task_id)


@pytest.mark.parametrize("event", ["", "dispatchEvent(new Event('online'))"], ids=["silence", "network"])
def test_a_dead_stream_is_given_up(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand, event: str
) -> None:
    """A connection over which nothing comes any more, not even a sign of life; or when the network was away."""
    task_id = submitted(client)
    proxy.rules = Rules(silent_at=b'"state":"PENDING"')
    follower.follow([task_id], timing={} if event else {"silence": 700})
    eventually(lambda: expect(proxy.streams_asked))
    follower.awaits_status("live")
    hand.run()
    proxy.rules = Rules()
    follower.page.evaluate(event or "1")
    follower.awaits_end(client, task_id)
    assert len(proxy.streams_asked) >= 2


def test_a_slow_connection_changes_nothing(follower: Follower, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """Every piece comes late; the moves are the same."""
    task_id = submitted(client)
    proxy.rules = Rules(delay=0.3)
    follower.follow([task_id])
    hand.run()
    follower.awaits_end(client, task_id)


@pytest.mark.parametrize(
    "event", ["dispatchEvent(new Event('online'))", "document.dispatchEvent(new Event('visibilitychange'))"]
)
@pytest.mark.parametrize("status", [BAD_GATEWAY, f"{BAD_GATEWAY}\r\nRetry-After: 3600"], ids=["backoff", "asked"])
def test_who_comes_back_waits_no_longer(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand, event: str, status: str
) -> None:
    """The network is back, or somebody looks at the page again: the client asks at once, whatever it waited for."""
    task_id = submitted(client)
    long = {"backoffFirst": 10**8, "backoffMost": 10**8, "patience": 10**8}
    follower.follow([task_id], timing=long).awaits(task_id, "PENDING")
    proxy.rules = Rules(refuses=status)
    proxy.cut()
    follower.awaits_status("reconnecting")
    hand.run()
    proxy.rules = Rules()
    follower.page.evaluate(event)
    follower.awaits_end(client, task_id)


def test_a_flushed_database_is_told(
    follower: Follower, client: Client, hand: Hand, redis: Redis, keys: Keys, store: Store
) -> None:
    """What Redis lost is taken back and told anew; a task that is no more has ended, and nobody says that it failed."""
    kept, lost = submitted(client, id="kept"), submitted(client, id="lost")
    follower.follow([kept, lost]).awaits(kept, "PENDING").awaits(lost, "PENDING")
    redis.flushall()
    publish(store)
    submitted(client, id=kept)
    eventually(lambda: expect([kept] == follower.told["resets"]), 20)
    eventually(lambda: expect([{"id": lost, "state": "PENDING", "status": 404}] == follower.told["ends"]))
    hand.run()
    follower.awaits_end(client, kept)


def test_a_refusal_for_good_ends_the_watch(follower: Follower, proxy: HttpProxy, client: Client) -> None:
    """Without a token that is taken there is nothing to wait for: the promise is broken with the server's words."""
    proxy.rules = Rules(token="another")
    follower.follow([submitted(client)], token="mine")
    eventually(lambda: expect(follower.told["failed"]))
    assert {"name": "ProblemError", "status": 401} == follower.told["failed"]


def test_a_token_that_ends_is_renewed(follower: Follower, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """When the stream is opened again, the old one is refused once and a fresh one taken."""
    task_id = submitted(client)
    first, second = (stream_token(proxy, client, name, task_id) for name in ("ann", "bob"))
    proxy.rules = Rules(token=first)
    follower.follow([task_id], tokens=[first, second]).awaits(task_id, "PENDING")
    proxy.rules = Rules(token=second)
    proxy.cut()
    hand.run()
    told = follower.awaits_end(client, task_id)
    assert [first, first, second] == [asked.token for asked in proxy.streams_asked]
    assert ["live", "reconnecting", "live"] == [connection["status"] for connection in told["connections"]]


def test_a_stream_token_is_enough_without_a_stream(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand
) -> None:
    """What is asked for when polling is no more than what the stream would tell."""
    task_id, other = submitted(client), submitted(client, queue="other")
    token = stream_token(proxy, client, "ann", task_id, other)
    proxy.rules = Rules(refuses_streams=True)
    follower.follow([task_id, other], token=token).awaits_status("polling")
    hand.run()
    hand.run("other")
    follower.awaits_end(client, task_id, other)


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_the_page_ends_with_the_truth(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand, seed: int
) -> None:
    """A random mix of all faults while a task is interrupted again and again: its history, each move once, in order."""
    chance = random.Random(seed)
    faults = [
        Rules(refuses=BAD_GATEWAY), Rules(refuses_streams=True), Rules(cuts_at=b'"attempt"'), Rules(cuts_at=b"data"),
        Rules(delay=0.05), Rules(swallows_answers=True), Rules(),
    ]  # fmt: skip
    task_id = submitted(client)
    follower.follow([task_id], timing={"streamAgain": 300})
    for _ in range(ATTEMPTS):
        proxy.rules = chance.choice(faults)
        if chance.random() < 0.5:
            proxy.cut()
        interrupt(hand)
        follower.page.wait_for_timeout(chance.randrange(200))
    proxy.rules = Rules()
    hand.run()
    follower.awaits_end(client, task_id)


# The server and Redis themselves


@pytest.fixture
def durable(own_server: Callable[..., RedisServer]) -> RedisServer:
    """A Redis that keeps its data when it is killed."""
    return own_server(durable=True)


@pytest.fixture
def own_client(durable: RedisServer) -> Client:
    """The core on that Redis; the type `work` is published."""
    client = Client(Settings(redis_url=durable.url))
    publish(client.store)
    return client


def test_restarts_of_the_server_and_of_redis(page: Page, durable: RedisServer, own_client: Client) -> None:
    """A server process that is killed, a deploy, a crash of Redis: the page sees every move once, and the end."""
    hand, task_id = Hand(own_client.store), submitted(own_client)
    with gunicorn(durable.url) as first:
        proxy = HttpProxy(urlsplit(first.url).port or 0)
        follower = Follower(page, proxy.url).follow([task_id]).awaits(task_id, "PENDING")
        for worker in psutil.Process(first.pid).children():
            worker.kill()
        interrupt(hand)
        follower.awaits(task_id, "PENDING", "PROCESSING", "PAUSED", "PENDING")
        interrupt(hand)
    with gunicorn(durable.url) as second:
        proxy.port = urlsplit(second.url).port or 0
        durable.kill()
        durable.start()
        interrupt(hand)
        follower.awaits(task_id, *3 * ("PENDING", "PROCESSING", "PAUSED"), "PENDING")
        hand.run()
        follower.awaits_end(own_client, task_id)
    proxy.close()

"""The JavaScript client behind everything that lies between a page and a server: it ends with the truth, each time."""

import random
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from following import Follower
from ghostless.jobs.client import Client
from ghostless.jobs.keys import Keys
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import Event
from helpers import eventually, expect
from http_proxy import HttpProxy, Rules
from playwright.sync_api import Page
from redis import Redis
from redis_server import RedisServer
from web_tools import Hand, gunicorn, publish, submitted

ATTEMPTS = 8
"""How often a task fails that is to have a long history."""


@pytest.fixture
def follower(page: Page, proxy: HttpProxy) -> Follower:
    """A page behind the proxy."""
    return Follower(page, proxy.url)


def fail_and_retry(client: Client, hand: Hand, task_id: str) -> None:
    """Let a task have one more attempt behind it, and be due again."""
    hand.run(event=Event.FAIL, retryable=False)
    client.retry(task_id)
    client.store.release("test")


def test_a_server_that_is_away_means_nothing(follower: Follower, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """While a proxy answers 502 the page is told the last known state and its age, never a failure."""
    task_id = submitted(client)
    claimed = hand.start()
    follower.follow([task_id]).awaits(task_id, "PENDING", "PROCESSING")
    proxy.rules = Rules(refuses=True)
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


@pytest.mark.parametrize("mark", [b'"state":"PROC', b"event: ta", b'"state":"SUC', b"event: e", b"retry: ", b"\nid: "])
def test_a_stream_that_is_cut_anywhere_goes_on(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand, mark: bytes
) -> None:
    """Within an event, a name or a number: half an event is none, and no move comes twice."""
    task_id = submitted(client)
    proxy.rules = Rules(cuts_at=mark)
    follower.follow([task_id])
    hand.run()
    eventually(lambda: expect(len(proxy.streams_asked) >= 2))
    proxy.rules = Rules()
    follower.awaits_end(client, task_id)


def test_a_stream_resumes_with_its_cursor(follower: Follower, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """The second request says what was told already, and the server tells only the rest."""
    task_id = submitted(client)
    claimed = hand.start()
    follower.follow([task_id]).awaits(task_id, "PENDING", "PROCESSING")
    proxy.cut()
    eventually(lambda: expect(2 == len(proxy.streams_asked)))
    hand.finish(claimed)
    told = follower.awaits_end(client, task_id)
    assert [None, told["moves"][1]["cursor"]] == [asked.headers.get("last-event-id") for asked in proxy.streams_asked]


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
    for task_id in ids:
        fail_and_retry(client, hand, task_id)
    for _ in ids:
        hand.run()
    follower.awaits_end(client, *ids)
    assert "polling" == follower.told["connections"][-1]["status"]


def test_a_proxy_that_cuts_what_waits_is_polled(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand
) -> None:
    """Where answers that are held are not to be had either, short ones do."""
    task_id = submitted(client)
    proxy.rules = Rules(refuses_streams=True, refuses_holding=True)
    follower.follow([task_id]).awaits_status("polling")
    eventually(lambda: expect(3 <= len([asked for asked in proxy.asked if asked.path.endswith(task_id)])))
    hand.run()
    follower.awaits_end(client, task_id)


def test_a_dead_stream_is_given_up(follower: Follower, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """A connection over which nothing comes any more, not even a sign of life, is opened anew."""
    task_id = submitted(client)
    proxy.rules = Rules(silent_at=b'"state":"PENDING"')
    follower.follow([task_id], timing={"silence": 700})
    hand.run()
    eventually(lambda: expect(proxy.streams_asked))
    proxy.rules = Rules()
    follower.awaits_end(client, task_id)
    assert len(proxy.streams_asked) >= 2


def test_a_slow_connection_changes_nothing(follower: Follower, proxy: HttpProxy, client: Client, hand: Hand) -> None:
    """Every piece comes late; the moves are the same."""
    task_id = submitted(client)
    proxy.rules = Rules(delay=0.3)
    follower.follow([task_id])
    hand.run()
    follower.awaits_end(client, task_id)


def test_a_network_that_comes_back_is_used_at_once(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand
) -> None:
    """The page waits for no delay when the browser says that it is online again."""
    task_id = submitted(client)
    follower.follow([task_id], timing={"backoffFirst": 600_000, "backoffMost": 600_000}).awaits(task_id, "PENDING")
    follower.page.context.set_offline(True)
    proxy.cut()
    follower.awaits_status("reconnecting")
    hand.run()
    follower.page.context.set_offline(False)
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


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_the_page_ends_with_the_truth(
    follower: Follower, proxy: HttpProxy, client: Client, hand: Hand, store: Store, seed: int
) -> None:
    """A random mix of all faults while a task fails and is retried: its history, each move once, in order."""
    chance = random.Random(seed)
    faults = [
        Rules(refuses=True), Rules(refuses_streams=True), Rules(cuts_at=b'"attempt"'), Rules(cuts_at=b"data"),
        Rules(delay=0.05), Rules(swallows_answers=True), Rules(),
    ]  # fmt: skip
    task_id = submitted(client)
    follower.follow([task_id], timing={"streamAgain": 300})
    for _ in range(ATTEMPTS):
        proxy.rules = chance.choice(faults)
        if chance.random() < 0.5:
            proxy.cut()
        fail_and_retry(client, hand, task_id)
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
    """A deploy, a crash of Redis, a server that crashes: the page sees every move once, and the end."""
    hand, task_id = Hand(own_client.store), submitted(own_client)
    with gunicorn(durable.url) as first:
        proxy = HttpProxy(urlsplit(first.url).port or 0)
        follower = Follower(page, proxy.url).follow([task_id]).awaits(task_id, "PENDING")
        fail_and_retry(own_client, hand, task_id)
    with gunicorn(durable.url) as second:
        proxy.port = urlsplit(second.url).port or 0
        durable.kill()
        durable.start()
        fail_and_retry(own_client, hand, task_id)
        follower.awaits(task_id, *2 * ("PENDING", "PROCESSING", "FAILED", "RETRY_WAITING"), "PENDING")
        hand.run()
        follower.awaits_end(own_client, task_id)
    proxy.close()

"""Long polls: an answer that waits for a change, and costs Redis nothing meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import requests
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.web.hub import Hub
from ghostless.web.limits import AT_ONCE
from redis import Redis
from redis_server import RedisServer
from web_tools import Hand, Served, in_process, publish, repeating, submitted, until


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Clients that wait."""
    with ThreadPoolExecutor(128) as pool:
        yield pool


def poll(served: Served, task_id: str, query: str = "", **headers: str) -> requests.Response:
    """Ask for a task and wait for the answer."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.get(f"{served.url}/api/tasks/{task_id}{query}", headers=names, timeout=30)


def waiting(
    served: Served, hub: Hub, pool: ThreadPoolExecutor, redis: Redis, task_id: str, query: str = "", **headers: str
) -> "Future[requests.Response]":
    """Start a long poll and return once it listens and has looked at the task, since it waits for what differs."""
    before, reads = hub.subscribers, _hash_reads(redis)
    answer = pool.submit(poll, served, task_id, query, **headers)
    until(lambda: (hub.subscribers > before and _hash_reads(redis) > reads) or answer.done())
    return answer


def test_the_answer_comes_with_the_change(
    served: Served, hub: Hub, pool: ThreadPoolExecutor, redis: Redis, client: Client, hand: Hand
) -> None:
    """Held until the state changes, by query or by header; the header's wish is confirmed."""
    task_id = submitted(client)
    answers = [
        waiting(served, hub, pool, redis, task_id, "?wait=20"),
        waiting(served, hub, pool, redis, task_id, Prefer="respond-async, wait=20"),
    ]
    assert not any(answer.done() for answer in answers)
    started = time.monotonic()
    hand.start()
    for answer in answers:
        assert (200, "PROCESSING") == (answer.result().status_code, answer.result().json()["state"])
        assert "wait=20" == answer.result().headers["Preference-Applied"]
    assert time.monotonic() - started < 5
    until(lambda: hub.subscribers == 0)


def test_without_a_change_the_answer_comes_at_the_end_of_the_wait(served: Served, client: Client) -> None:
    """The task as it is, or 304 for a client that has it already."""
    task_id = submitted(client)
    started = time.monotonic()
    same = poll(served, task_id, "?wait=1")
    assert (200, "PENDING") == (same.status_code, same.json()["state"])
    assert 1 <= time.monotonic() - started < 5
    unchanged = poll(served, task_id, "?wait=1", If_None_Match=same.headers["ETag"])
    assert (304, "wait=1") == (unchanged.status_code, unchanged.headers["Preference-Applied"])


def test_a_version_that_is_old_already_is_answered_at_once(served: Served, client: Client, hand: Hand) -> None:
    """A client that names what it has misses nothing between two polls."""
    task_id = submitted(client)
    old = poll(served, task_id).headers["ETag"]
    hand.start()
    started = time.monotonic()
    assert "PROCESSING" == poll(served, task_id, "?wait=20", If_None_Match=old).json()["state"]
    assert time.monotonic() - started < 5


def test_progress_is_news_for_who_names_a_version(
    served: Served, hub: Hub, pool: ThreadPoolExecutor, redis: Redis, client: Client, hand: Hand
) -> None:
    """With If-None-Match any change of what is shown ends the wait; without it only another state does."""
    task_id = submitted(client)
    claimed = hand.start()
    etag = poll(served, task_id).headers["ETag"]
    versioned = waiting(served, hub, pool, redis, task_id, "?wait=20", If_None_Match=etag)
    by_state = waiting(served, hub, pool, redis, task_id, "?wait=20")
    started = time.monotonic()
    with repeating(lambda: hand.store.progress(claimed.held, 0.25, "a quarter")):
        assert 0.25 == versioned.result().json()["progress"]
    assert time.monotonic() - started < 10
    assert not by_state.done()
    hand.finish(claimed)
    assert "SUCCESS" == by_state.result().json()["state"]


def test_a_final_task_is_answered_at_once(served: Served, client: Client, hand: Hand) -> None:
    """Nothing more happens to it: waiting would be in vain."""
    task_id = submitted(client)
    hand.run()
    started = time.monotonic()
    final = poll(served, task_id, "?wait=60")
    assert "SUCCESS" == final.json()["state"]
    assert 304 == poll(served, task_id, "?wait=60", If_None_Match=final.headers["ETag"]).status_code
    assert time.monotonic() - started < 5


def test_a_task_that_is_not_there_is_told_at_once(served: Served) -> None:
    """404, however long the client would wait."""
    started = time.monotonic()
    assert 404 == poll(served, "nope", "?wait=60").status_code
    assert time.monotonic() - started < 5


def test_a_hundred_waiters_hold_no_connection(
    served: Served, hub: Hub, pool: ThreadPoolExecutor, client: Client, redis: Redis, hand: Hand
) -> None:
    """While they wait, Redis sees the hub's two connections, and of the pool at most the few that looked together.

    They send no command meanwhile: what Redis counts grows by the hub's reads alone. All are answered at the change.
    """
    task_id = submitted(client)
    before, reads = {line["id"] for line in redis.client_list()}, _hash_reads(redis)
    answers = [pool.submit(poll, served, task_id, "?wait=30") for _ in range(100)]
    until(lambda: hub.subscribers == 100)
    until(lambda: _hash_reads(redis) >= reads + 100)
    assert _made_since(redis, before) <= 2 + AT_ONCE
    reads = _hash_reads(redis)
    threading.Event().wait(1.0)  # any polling would show
    assert reads == _hash_reads(redis)
    hand.start()
    assert {"PROCESSING"} == {answer.result().json()["state"] for answer in answers}
    assert _made_since(redis, before) <= 2 + AT_ONCE


def _made_since(redis: Redis, before: set[str]) -> int:
    return sum(line["id"] not in before for line in redis.client_list())


def _hash_reads(redis: Redis) -> int:
    return int(redis.info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"])


def test_a_stopping_server_answers_its_waiters(
    served: Served, hub: Hub, pool: ThreadPoolExecutor, redis: Redis, client: Client
) -> None:
    """A long poll does not hold up a shutdown: it gets the task as it is."""
    answer = waiting(served, hub, pool, redis, submitted(client), "?wait=60")
    hub.close()
    assert (200, "PENDING") == (answer.result(timeout=5).status_code, answer.result().json()["state"])


def test_more_waiters_than_the_server_takes_are_told_to_come_back(served: Served, hub: Hub, client: Client) -> None:
    """Over the limit a long poll is refused at once: answered with the task, it would be asked again and again."""
    hub.limit = 0
    answer = poll(served, submitted(client), "?wait=60")
    assert (503, "2") == (answer.status_code, answer.headers["Retry-After"])


def test_a_restart_of_redis_loses_no_change(own_server: Callable[..., RedisServer], pool: ThreadPoolExecutor) -> None:
    """Who waits waits on, or is told to come back (503); with the version that he has he hears of the change."""
    server = own_server(durable=True)
    client = Client(Settings(redis_url=server.url))
    publish(client.store)
    task_id = submitted(client)
    with in_process(create_app(client=Client(client.settings))) as served:
        assert served.app
        hub = served.app.extensions["ghostless"].hub
        etag = poll(served, task_id).headers["ETag"]
        answers = [pool.submit(poll, served, task_id, "?wait=60", If_None_Match=etag) for _ in range(5)]
        until(lambda: hub.subscribers == len(answers))
        server.restart()
        Hand(client.store).start()

        def told(first: Future[requests.Response]) -> str:
            answer = first.result()
            while answer.status_code == 503:
                assert answer.headers["Retry-After"]
                time.sleep(0.1)
                answer = poll(served, task_id, "?wait=60", If_None_Match=etag)
            return answer.json()["state"]

        assert ["PROCESSING"] * 5 == [told(answer) for answer in answers]
    client.store.redis.close()


def test_who_waits_for_what_redis_forgot_is_told(
    served: Served, hub: Hub, pool: ThreadPoolExecutor, redis: Redis, client: Client
) -> None:
    """404 as soon as the server notices, and not at the end of the wait."""
    answer = waiting(served, hub, pool, redis, submitted(client), "?wait=60")
    started = time.monotonic()
    redis.flushall()
    assert 404 == answer.result().status_code
    assert time.monotonic() - started < 30

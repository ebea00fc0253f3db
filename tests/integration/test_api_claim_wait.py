"""Workers over HTTP that wait for a task: each task wakes one of them, and waiting costs next to nothing."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import requests
from audit import audit
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web import claiming
from ghostless.web.claiming import WaitingRoom
from ghostless.web.hub import Hub
from ghostless.web.limits import AT_ONCE
from redis import Redis
from redis_server import RedisServer
from web_tools import Served, in_process, publish, submitted, until

QUICK = 5.0
"""Seconds in which a waiting worker has its task, on a busy machine."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Workers that wait."""
    with ThreadPoolExecutor(128) as pool:
        yield pool


@pytest.fixture
def room(served: Served) -> WaitingRoom:
    """Where the server lets them wait."""
    assert served.app
    return served.app.extensions["ghostless"].claiming.room


@pytest.fixture
def _seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody look by himself: only an event wakes a waiter."""
    monkeypatch.setattr(claiming, "LOOK", 3600.0)


def claim(served: Served, number: int = 0, query: str = "?wait=30", queue: str = "work", **wishes: Any) -> Any:
    """Claim and wait for the answer."""
    body = {"worker": f"far{number}", "types": ["work"]} | wishes
    return requests.post(f"{served.url}/api/queues/{queue}/claim{query}", json=body, timeout=60)


def waiting(room: WaitingRoom, pool: ThreadPoolExecutor, *args: Any, **named: Any) -> "Future[requests.Response]":
    """Start a claim and return once it waits."""
    before = len(room)
    answer = pool.submit(claim, *args, **named)
    until(lambda: len(room) > before or answer.done())
    assert not answer.done(), answer.result().text
    return answer


def claims_made(redis: Redis) -> int:
    """Return how many scripts Redis ran by name."""
    return int(redis.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


@pytest.mark.usefixtures("_seldom")
def test_a_waiting_worker_has_a_task_as_soon_as_it_comes(
    served: Served, room: WaitingRoom, pool: ThreadPoolExecutor, client: Client
) -> None:
    """By query or by header; submitted, due by now, or given back: whatever moves it into the queue."""
    for query in ("?wait=30", "?wait=30"):
        answer = waiting(room, pool, served, query=query)
        started = time.monotonic()
        task_id = submitted(client)
        assert (200, task_id) == (answer.result().status_code, answer.result().json()["id"])
        assert "wait=30" == answer.result().headers["Preference-Applied"]
        assert time.monotonic() - started < QUICK
    given_back = waiting(room, pool, served, 1)
    mine = answer.result().json()
    body = {name: mine[name] for name in ("worker", "attempt", "token")}
    assert 200 == requests.post(f"{served.url}/api/tasks/{task_id}/suspend", json=body, timeout=30).status_code
    assert (task_id, 2) == (given_back.result().json()["id"], given_back.result().json()["attempt"])
    until(lambda: len(room) == 0)


def test_without_a_task_the_answer_comes_at_the_end_of_the_wait(served: Served) -> None:
    """204, and the header's wish is confirmed."""
    started = time.monotonic()
    answer = requests.post(
        f"{served.url}/api/queues/work/claim",
        json={"worker": "far", "types": ["work"]},
        headers={"Prefer": "wait=1"},
        timeout=30,
    )
    assert (204, "wait=1") == (answer.status_code, answer.headers["Preference-Applied"])
    assert 1 <= time.monotonic() - started < QUICK


@pytest.mark.usefixtures("_seldom")
def test_a_task_wakes_one_worker_that_serves_it(
    served: Served, room: WaitingRoom, pool: ThreadPoolExecutor, client: Client, redis: Redis, store: Store
) -> None:
    """The one in line that serves its type and queue: others claim nothing, so that no task makes a herd."""
    publish(store, "other")
    elsewhere = waiting(room, pool, served, 100, queue="elsewhere")
    answers = [waiting(room, pool, served, number) for number in range(20)]
    others = waiting(room, pool, served, 101, types=["other"])
    until(lambda: (time.sleep(0.2), claims_made(redis))[1] == claims_made(redis))
    before = claims_made(redis)
    task_id = submitted(client, type="other")
    assert task_id == others.result().json()["id"]
    taken = [submitted(client) for _ in range(3)]
    until(lambda: sum(answer.done() for answer in answers) == 3)
    time.sleep(0.2)
    # Each submit is one script, each task one claim, and each claim may let one more worker look.
    assert claims_made(redis) - before <= 3 * (len(taken) + 1)
    assert set(taken) == {answer.result().json()["id"] for answer in answers if answer.done()}
    assert not elsewhere.done()
    for _ in range(17):
        submitted(client)
    submitted(client, queue="elsewhere")
    found = [answer.result().json()["id"] for answer in [*answers, elsewhere]]
    assert 21 == len(set(found))
    assert [] == audit(redis, client.store.keys, [*found, task_id])


def test_what_no_event_tells_of_is_found_by_looking(
    served: Served, room: WaitingRoom, pool: ThreadPoolExecutor, client: Client
) -> None:
    """A paused queue that is resumed: one worker looks, and each that finds something lets the next one look."""
    client.pause_queue("work")
    tasks = {submitted(client) for _ in range(5)}
    answers = [waiting(room, pool, served, number) for number in range(5)]
    client.resume_queue("work")
    assert tasks == {answer.result(timeout=20).json()["id"] for answer in answers}


@pytest.mark.usefixtures("_seldom")
def test_nothing_is_claimed_for_who_hung_up(
    served: Served, room: WaitingRoom, pool: ThreadPoolExecutor, client: Client, redis: Redis
) -> None:
    """A worker that died while it waited: its task would wait for the end of a lease, and count as lost."""
    port = int(served.url.rpartition(":")[2])
    body = b'{"worker": "dead", "types": ["work"]}'
    head = f"POST /api/queues/work/claim?wait=30 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        until(lambda: len(room) == 1)
        living = waiting(room, pool, served)
    task_id = submitted(client)
    assert task_id == living.result().json()["id"]
    assert 1 == client.get(task_id).attempt


def test_a_hundred_waiters_hold_no_connection(
    served: Served, hub: Hub, room: WaitingRoom, pool: ThreadPoolExecutor, client: Client, redis: Redis
) -> None:
    """While they wait, Redis sees the hub's two connections, and of the pool at most the few that claimed together.

    Meanwhile one of them looks every two seconds. Each task is given to one.
    """
    before = {line["id"] for line in redis.client_list()}
    there = set(threading.enumerate())  # of former tests, which are just ending
    answers = [pool.submit(claim, served, number) for number in range(100)]
    until(lambda: len(room) == 100)
    assert sum(line["id"] not in before for line in redis.client_list()) <= 3 + AT_ONCE
    # All others are those of Flask's own server and of this test's pool.
    ours = [thread.name for thread in threading.enumerate() if thread not in there]
    assert ["claim-calls", "hub-clock", "hub-history", "hub-live"] == sorted(
        name for name in ours if name.startswith(("hub-", "claim-"))
    )
    calls = claims_made(redis)
    time.sleep(1.0)
    assert claims_made(redis) - calls <= 2
    tasks = {submitted(client) for _ in range(100)}
    assert tasks == {answer.result().json()["id"] for answer in answers}
    assert [] == audit(redis, client.store.keys, tasks)


def test_a_stopping_server_sends_its_waiters_away(
    served: Served, hub: Hub, room: WaitingRoom, pool: ThreadPoolExecutor
) -> None:
    """503 with Retry-After, so that they come back to the next one; a wait does not hold up a shutdown."""
    answer = waiting(room, pool, served)
    hub.close()
    assert 503 == answer.result(timeout=10).status_code
    assert answer.result().headers["Retry-After"]
    until(lambda: len(room) == 0)


def test_more_waiters_than_the_server_takes_are_refused(served: Served, hub: Hub, client: Client) -> None:
    """Over the limit nobody waits; a task that is there is given all the same."""
    hub.limit = 0
    assert (503, "urn:ghostless:busy") == (claim(served).status_code, claim(served).json()["type"])
    task_id = submitted(client)
    assert task_id == claim(served).json()["id"]


def test_a_restart_of_redis_costs_a_waiting_worker_nothing(
    own_server: Callable[..., RedisServer], pool: ThreadPoolExecutor
) -> None:
    """It waits on, or is told to come back (503); its claim, repeated with the same token, gets its task."""
    server = own_server(durable=True)
    client = Client(Settings(redis_url=server.url))
    publish(client.store)
    with in_process(create_app(client=Client(client.settings))) as served:
        assert served.app
        room = served.app.extensions["ghostless"].claiming.room
        answers = [waiting(room, pool, served, number, token=f"{number:016x}") for number in range(5)]
        server.restart()
        task_ids = {submitted(client) for _ in range(5)}

        def given(number: int) -> str:
            answer = answers[number].result()
            while answer.status_code == 503:
                time.sleep(0.1)
                answer = claim(served, number, token=f"{number:016x}")
            return answer.json()["id"]

        assert task_ids == set(pool.map(given, range(5)))
    assert [] == audit(client.store.redis, client.store.keys, task_ids)
    client.store.redis.close()

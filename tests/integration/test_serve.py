"""The server as it is installed: gunicorn with gevent workers, in processes of its own."""

import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psutil
import pytest
import requests
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.tokens import Scope
from ghostless.web.keyring import FRESH
from ghostless.web.limits import Limits
from redis import Redis
from redis_server import RedisServer
from web_tools import (
    EventStream,
    Hand,
    Message,
    Served,
    gunicorn,
    opened,
    publish,
    repeating,
    states,
    submitted,
    until,
)


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[Served]:
    """One server for the tests of this module that do not stop it."""
    with gunicorn(redis_server.url) as served:
        yield served


@pytest.fixture
def web(server: Served, client: Client, store: Store) -> Served:
    """That server, once it noticed that the database was emptied for this test."""
    publish(store)

    def knows_the_database() -> bool:
        # A move wakes the hub at once; without one it would notice after its blocking read only.
        shown = requests.get(f"{server.url}/api/tasks/{submitted(client, queue='wake')}", timeout=5).json()
        return shown["cursor"].startswith(client.reads.epoch())

    until(knows_the_database)
    return server


def get(url: str) -> requests.Response:
    """Fetch without keeping the connection: a stopping server waits some seconds for those that are kept."""
    return requests.get(url, timeout=20, headers={"Connection": "close"})


def workers_of(served: Served) -> list[psutil.Process]:
    """Return the worker processes of a server."""
    return psutil.Process(served.pid).children()


def test_fifty_clients_of_tasks_that_live_a_moment_all_see_the_end(web: Served, client: Client, store: Store) -> None:
    """The same promise with greenlets as with threads: whoever comes when, sees the whole life and the end."""
    ids = [submitted(client, queue=f"q{number}") for number in range(50)]

    def live(number: int) -> None:
        hand = Hand(store, f"w{number}")
        hand.finish(hand.start(f"q{number}"))

    def follow(task_id: str) -> list[Message]:
        with EventStream(f"{web.url}/api/tasks/{task_id}/events") as stream:
            return list(stream)

    with ThreadPoolExecutor(100) as pool:
        lives = pool.map(live, range(50))
        told = list(pool.map(follow, ids))
        list(lives)
    for task_id, messages in zip(ids, told, strict=True):
        assert ["PENDING", "PROCESSING", "SUCCESS"] == states(messages)
        assert "end" == messages[-1].event
        assert {task_id} == {message.data["id"] for message in messages[:-1]}


def test_progress_arrives(web: Served, client: Client, store: Store) -> None:
    """Pub/sub works beside the blocking read in one thread of the operating system."""
    hand = Hand(store)
    task_id = submitted(client)
    claimed = hand.start()
    with opened(f"{web.url}/api/tasks/{task_id}/events") as stream:
        stream.take("task", 2)
        with repeating(lambda: store.progress(claimed.held, 0.25, "a quarter")):
            assert 0.25 == stream.take("progress")[0].data["progress"]


def test_plain_requests_are_served_beside_many_streams(web: Served, client: Client, redis: Redis) -> None:
    """Two hundred streams and fifty long polls are open, Redis sees few connections, and a request is answered."""
    task_id = submitted(client)
    with ThreadPoolExecutor(50) as pool:
        streams = list(pool.map(lambda _: opened(f"{web.url}/api/tasks/{task_id}/events"), range(200)))
        polls = [pool.submit(requests.get, f"{web.url}/api/tasks/{task_id}?wait=30", timeout=40) for _ in range(50)]
        started = time.monotonic()
        assert 200 == requests.get(f"{web.url}/readyz", timeout=5).status_code
        assert time.monotonic() - started < 5
        assert len(redis.client_list()) < 60
        client.cancel(task_id)
        assert {"CANCELLED"} == {poll.result().json()["state"] for poll in polls}
        for stream in streams:
            assert "end" == list(stream)[-1].event
            stream.close()


def test_a_low_limit_of_files_is_raised_as_far_as_it_goes(redis_server: RedisServer) -> None:
    """A shell's default is for a shell: the server takes what the system allows, in all its processes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with gunicorn(redis_server.url, limit="ulimit -S -n 64") as web:
        for process in [psutil.Process(web.pid), *workers_of(web)]:
            assert (hard, hard) == process.rlimit(psutil.RLIMIT_NOFILE)


def test_where_few_files_may_be_open_the_rest_is_told_to_come_back(
    redis: Redis, settings: Settings, store: Store
) -> None:
    """Streams over the limit get a delay and the end, and keep no place; plain requests are served all the time."""
    client = Client(settings, redis)
    publish(store)
    task_id = submitted(client)
    url = f"/api/tasks/{task_id}/events"
    with gunicorn(settings.redis_url, limit="ulimit -n 60") as web, ExitStack() as held:
        streams = [held.enter_context(opened(web.url + url)) for _ in range(Limits.of(60).subscribers)]
        for _ in range(60):
            with EventStream(web.url + url) as stream:
                assert (200, None) == (stream.status, stream.next())
                assert stream.retry
                assert "close" == stream.response.headers["Connection"]
            assert 200 == get(f"{web.url}/healthz").status_code
            assert 200 == get(f"{web.url}/api/tasks/{task_id}").status_code
        client.cancel(task_id)
        assert {"end"} == {list(stream)[-1].event for stream in streams}


def test_another_name_for_this_machine_is_refused(web: Served, client: Client) -> None:
    """DNS rebinding: a page of another site whose name leads here passes as one of ours, but for its Host."""
    task_id = submitted(client)
    hostile = {"Host": "evil.example:8000", "Origin": "http://evil.example:8000", "Sec-Fetch-Site": "same-origin"}
    answer = requests.post(f"{web.url}/api/tasks/{task_id}/cancel", headers=hostile, timeout=5)
    assert (421, "PENDING") == (answer.status_code, client.get(task_id).state)
    assert 200 == requests.get(f"{web.url}/healthz".replace("127.0.0.1", "localhost"), timeout=5).status_code


def test_huge_bodies_are_refused_also_when_their_length_is_not_told(web: Served) -> None:
    """413 for a body over the limit, sent in chunks; the server does not take it all into memory first."""

    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 65536

    headers = {"Content-Type": "application/json"}
    try:
        answer = requests.post(f"{web.url}/api/tasks", data=endless(), headers=headers, timeout=10)
        assert 413 == answer.status_code
        assert "application/problem+json" == answer.headers["Content-Type"]
    except requests.ConnectionError:
        pass  # it may as well hang up while the rest is still being sent
    assert 200 == requests.get(f"{web.url}/healthz", timeout=5).status_code


def test_streams_end_promptly_when_the_server_stops(redis: Redis, settings: Settings, store: Store) -> None:
    """SIGTERM: each stream is told when to come back, polls are answered, all is over in 10 s, no process stays."""
    client = Client(settings, redis)
    publish(store)
    with gunicorn(settings.redis_url, workers=2) as web, ThreadPoolExecutor(10) as pool:
        task_id = submitted(client)
        streams = [opened(f"{web.url}/api/tasks/{task_id}/events") for _ in range(20)]
        polls = [pool.submit(requests.get, f"{web.url}/api/tasks/{task_id}?wait=60", timeout=70) for _ in range(10)]
        for stream in streams:
            stream.take("task")
            stream.retry = None
        family = [psutil.Process(web.pid), *workers_of(web)]
        assert 3 == len(family)
        started = time.monotonic()
        os.kill(web.pid, signal.SIGTERM)
        for stream in streams:
            assert stream.next() is None
            assert stream.retry
            assert stream.was_hung_up()
            stream.close()
        assert time.monotonic() - started < 5
        for poll in polls:
            assert "PENDING" == poll.result().json()["state"]
        os.waitpid(web.pid, 0)
        assert time.monotonic() - started < 10
        until(lambda: not any(process.is_running() for process in family))


def test_a_client_comes_back_to_the_next_server(redis: Redis, settings: Settings, store: Store) -> None:
    """Over a restart of the server a client with its cursor misses nothing and sees nothing twice."""
    client = Client(settings, redis)
    publish(store)
    task_id = submitted(client)
    path = f"/api/tasks/{task_id}/events"
    with gunicorn(settings.redis_url) as web, opened(web.url + path) as stream:
        told = stream.take("task")
        os.kill(web.pid, signal.SIGTERM)
        assert stream.next() is None
    Hand(store).run()
    with gunicorn(settings.redis_url) as web, opened(web.url + path, stream.last_event_id) as stream:
        told += list(stream)
    assert ["PENDING", "PROCESSING", "SUCCESS"] == states(told)


def test_only_this_host_is_served_and_no_control_socket_is_opened(web: Served) -> None:
    """The server listens on the loopback address it was told, and on nothing else."""
    listening = [
        connection
        for process in [psutil.Process(web.pid), *workers_of(web)]
        for connection in process.net_connections(kind="all")
        if connection.status == psutil.CONN_LISTEN or connection.family == socket.AF_UNIX
    ]
    assert {("127.0.0.1", int(web.url.rpartition(":")[2]))} == {tuple(connection.laddr) for connection in listening}


def test_two_processes_agree_on_who_is_let_in(
    redis_server: RedisServer, client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens, and what one process signed, hold in the other; a revoked one is refused by both within seconds."""
    publish(store)
    monkeypatch.setenv("GHOSTLESS_REQUIRE_TOKENS", "1")
    text, token = client.tokens.add("x", [Scope.READ])
    task_id = submitted(client)
    client.cancel(task_id)

    def statuses(headers: dict[str, str], query: str = "") -> set[int]:
        urls = [f"{served.url}/api/tasks/{task_id}/events{query}"] * 12
        return {requests.get(url, headers=headers | {"Connection": "close"}, timeout=20).status_code for url in urls}

    with gunicorn(redis_server.url, workers=2) as served:
        shown = {"Authorization": f"Bearer {text}"}
        made = requests.post(f"{served.url}/api/stream-tokens", json={}, headers=shown, timeout=20).json()
        query = f"?token={made['token']}"
        assert [{401}, {200}, {200}] == [statuses({}), statuses(shown), statuses({}, query)]
        client.tokens.revoke(token.id)
        time.sleep(FRESH)
        assert [{401}, {401}] == [statuses(shown), statuses({}, query)]

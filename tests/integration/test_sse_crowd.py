"""Two hundred clients that come while tasks run: from page load to stream no move is missed, and none comes twice."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import late
import pytest
import requests
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web.hub import Hub
from ghostless.web.limits import THREADS_PLAIN
from redis import Redis
from web_tools import EventStream, Hand, Message, Served, gunicorn, in_process, opened, publish, submitted, until

CLIENTS = 200
MANY = 300
TASKS = 20
STEPS = 12
LIFE = 1.5
"""Seconds that a task runs."""

SENTINEL = "sentinel"
"""The task that is submitted when all is over; who follows all tasks leaves with it."""

Told = tuple[str, str, list[str]]
"""Whom a client followed, from which cursor, and the entries that it saw."""


@pytest.fixture(params=["flask", "gevent", "gthread"])
def served(
    request: pytest.FixtureRequest, redis: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    """The API on Flask's threaded server, and as it is installed; each stream is late to listen, and to replay."""
    redis.set(late.IS_LATE, 1, ex=late.LASTS)
    if request.param == "flask":
        monkeypatch.setattr(Hub, "subscribe", late.subscribe)
        with in_process(create_app(client=Client(settings))) as web:
            yield web
        return
    threads = CLIENTS + THREADS_PLAIN if request.param == "gthread" else 0
    with gunicorn(settings.redis_url, first=late.IN_A_SERVER, threads=threads, watchdog=False) as web:
        yield web


def live(store: Store, number: int) -> None:
    """Run a task of a queue of its own, with some moves on the way."""
    hand = Hand(store, f"w{number}")
    claimed = hand.start(f"q{number}")
    for step in range(STEPS):
        time.sleep(random.uniform(0, 2 * LIFE / STEPS))
        store.stage(claimed.held, f"worker:w{number}", f"step {step}")
    hand.finish(claimed)


def ids(messages: list[Message]) -> list[str]:
    """Return the entry ids of the moves."""
    return [message.id.partition(".")[2] for message in messages if message.event == "task"]


def after(entries: list[str], cursor: str) -> list[str]:
    """Return the entries behind a cursor."""
    return [entry for entry in entries if place(entry) > place(cursor.partition(".")[2])]


def place(entry: str) -> tuple[int, ...]:
    return tuple(map(int, entry.split("-")))


def test_whoever_comes_when_sees_each_move_once(served: Served, client: Client, store: Store) -> None:
    """Fresh streams, pages that go on from their first fetch, streams by owner from a listing: all see the truth."""
    publish(store)
    tasks = [submitted(client, queue=f"q{number}", owner="ann") for number in range(TASKS)]

    arrived: list[str] = []  # of those who follow all tasks

    def fresh(task_id: str) -> Told:
        with EventStream(f"{served.url}/api/tasks/{task_id}/events") as stream:
            return task_id, "0.0-0", ids(list(stream))

    def page(task_id: str) -> Told:
        cursor = requests.get(f"{served.url}/api/tasks/{task_id}", timeout=20).json()["cursor"]
        with EventStream(f"{served.url}/api/tasks/{task_id}/events?last_event_id={cursor}") as stream:
            return task_id, cursor, ids(list(stream))

    def listing(_: str) -> Told:
        cursor = requests.get(f"{served.url}/api/tasks?owner=ann", timeout=20).json()["last_event_id"]
        with opened(f"{served.url}/api/events?owner=ann", cursor) as stream:
            arrived.append(cursor)
            seen: list[Message] = []
            while not seen or seen[-1].data["id"] != SENTINEL:
                seen += stream.take("task")
            return "", cursor, ids(seen)

    def come(number: int) -> Told:
        time.sleep(random.uniform(0, LIFE))
        return (fresh, page, listing)[number % 3](tasks[number % TASKS])

    with ThreadPoolExecutor(CLIENTS) as visitors, ThreadPoolExecutor(TASKS) as workers:
        lives = [workers.submit(live, store, number) for number in range(TASKS)]
        told = [visitors.submit(come, number) for number in range(CLIENTS)]
        for ended in lives:
            ended.result()
        until(lambda: len(arrived) == len(range(2, CLIENTS, 3)))
        submitted(client, id=SENTINEL, owner="ann")
        histories = {task_id: [entry.id for entry in client.history(task_id)] for task_id in tasks}
        histories[""] = [entry for entry, _ in store.redis.xrange(store.keys.history)]
        for visit in told:
            followed, cursor, seen = visit.result()
            assert after(histories[followed], cursor) == seen
    assert STEPS + 3 == len(histories[tasks[0]])


def test_many_clients_need_no_more_connections_to_redis_than_one_client(
    client: Client, store: Store, settings: Settings, redis: Redis
) -> None:
    """One waits for moves and one hears progress, whatever the number of clients."""

    earlier = {one["id"] for one in redis.client_list()}

    def ours() -> list[str]:
        return sorted(one["cmd"] for one in redis.client_list() if one["id"] not in earlier)

    def are_following() -> bool:
        return ["subscribe", "xread"] == [command for command in ours() if command in ("subscribe", "xread")]

    publish(store)
    with (
        gunicorn(settings.redis_url, constants={"serve.DRAIN": 0.1}, watchdog=False) as web,
        ExitStack() as streams,
    ):
        crowd = [streams.enter_context(opened(f"{web.url}/api/events"))]
        until(are_following)
        before = len(ours())
        crowd += [streams.enter_context(opened(f"{web.url}/api/events")) for _ in range(MANY)]
        task_id = submitted(client)
        assert {task_id} == {stream.take("task")[0].data["id"] for stream in crowd}
        until(are_following)
        assert len(ours()) <= before

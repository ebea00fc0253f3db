"""Event streams on a real Redis, over real sockets, on Flask's threaded server."""

import http.client
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
import requests
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.reads import Reads
from ghostless.jobs.store import Store
from ghostless.statemachine import Event
from ghostless.web import frames, sse
from ghostless.web.hub import Hub
from web_tools import (
    EventStream,
    Hand,
    Message,
    Served,
    in_process,
    opened,
    repeating,
    states,
    submitted,
    until,
)

CLIENTS = 200


def of(task_id: str) -> str:
    return f"/api/tasks/{task_id}/events"


# One task


def test_a_stream_tells_a_life_and_ends(served: Served, client: Client, hand: Hand) -> None:
    """From before the first move to `end`: each move once, with its cursor; then the stream is over."""
    task_id = submitted(client, owner="ann")
    with opened(served.url + of(task_id)) as stream:
        hand.run()
        messages = list(stream)
    assert ["PENDING", "PROCESSING", "SUCCESS"] == states(messages)
    assert ["task", "task", "task", "end"] == [message.event for message in messages]
    assert {"tasks": [task_id], "gone": []} == messages[-1].data
    history = client.history(task_id)
    epoch = client.reads.epoch()
    assert [f"{epoch}.{entry.id}" for entry in history] == [message.id for message in messages[:3]]
    assert frames.move_view(history[2]) == messages[2].data


def test_a_stream_begins_with_when_and_from_where_to_come_back(served: Served, client: Client, reads: Reads) -> None:
    """The first block: a jittered delay and a cursor. A client cut off right after it starts over, from the origin."""
    with opened(served.url + of(submitted(client))) as stream:
        assert frames.RECONNECT[0] <= (stream.retry or 0) <= frames.RECONNECT[1]
        assert [f"{reads.epoch()}.0-0"] == stream.ids
        headers = stream.response.headers
    assert "text/event-stream" == headers["Content-Type"].partition(";")[0]
    assert ("no-store", "no") == (headers["Cache-Control"], headers["X-Accel-Buffering"])
    assert "nosniff" == headers["X-Content-Type-Options"]


def test_who_comes_late_sees_how_it_ended(served: Served, client: Client, hand: Hand) -> None:
    """A stream of a task that ended before replays its whole life and ends."""
    task_id = submitted(client)
    hand.run()
    with opened(served.url + of(task_id)) as stream:
        assert ["PENDING", "PROCESSING", "SUCCESS"] == states(list(stream))


def test_a_finished_stream_is_not_asked_for_again(served: Served, client: Client, hand: Hand) -> None:
    """204 at a reconnect makes a browser give up for good; from any earlier cursor the rest is replayed."""
    task_id = submitted(client)
    hand.run()
    with opened(served.url + of(task_id)) as stream:
        ids = [message.id for message in stream if message.event == "task"]
    with EventStream(served.url + of(task_id), ids[-1]) as again:
        assert (204, b"") == (again.status, again.response.read())
    with EventStream(f"{served.url}/api/events?task={task_id}&last_event_id={ids[-1]}") as again:
        assert 204 == again.status
    with opened(served.url + of(task_id), ids[-2]) as rest:
        assert ["SUCCESS"] == states(list(rest))


def test_a_failure_that_is_retried_is_not_the_end(served: Served, client: Client, hand: Hand, store: Store) -> None:
    """FAILED is passed through on the way to a retry; the stream goes on until the task is final for good."""
    task_id = submitted(client)
    with opened(served.url + of(task_id)) as stream:
        hand.run(event=Event.FAIL)
        assert ["PENDING", "PROCESSING", "FAILED", "RETRY_WAITING"] == states(stream.take("task", 4))
        store.cancel(task_id, "test")
        messages = list(stream)
    assert ["CANCELLED"] == states(messages)
    assert "end" == messages[-1].event


def test_a_failure_for_good_is_the_end(served: Served, client: Client, hand: Hand) -> None:
    """A stream of a task that failed without a retry ends with it."""
    task_id = submitted(client)
    with opened(served.url + of(task_id)) as stream:
        hand.run(event=Event.FAIL, retryable=False)
        assert ["PENDING", "PROCESSING", "FAILED"] == states(list(stream))


def test_progress_and_log_lines_arrive_without_an_id(served: Served, client: Client, hand: Hand) -> None:
    """They are shown to who listens, and a reconnect does not go on behind them."""
    task_id = submitted(client)
    claimed = hand.start()
    with opened(served.url + of(task_id)) as stream:
        cursor = stream.take("task", 2)[-1].id
        with repeating(lambda: hand.store.progress(claimed.held, 0.5, "half\r\nway")):
            (progress,) = stream.take("progress")
        hand.store.log(claimed.held, ["one", "two\n\ndata: forged"])
        lines = [message.data["line"] for message in stream.take("log", 2)]
        hand.finish(claimed)
        assert ["SUCCESS"] == states(list(stream))
    assert (task_id, 0.5, "half\r\nway", 1) == tuple(
        progress.data[key] for key in ("id", "progress", "message", "attempt")
    )
    assert cursor == progress.id
    assert ["one", "two\n\ndata: forged"] == lines


def test_a_quiet_stream_shows_signs_of_life(served: Served, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment and an id from time to time: proxies keep the connection, and the cursor does not age."""
    assert 15 == sse.HEARTBEAT
    monkeypatch.setattr(sse, "HEARTBEAT", 0.1)
    quiet = submitted(client)
    with opened(served.url + of(quiet)) as stream:
        stream.take("task")
        newest = ""
        for _ in range(3):
            newest = client.history(submitted(client))[-1].id
        while not stream.ids[-1].endswith(newest):
            assert stream.response.readline() == b": still here\n"
            name, _, value = stream.response.readline().decode().strip().partition(": ")
            assert "id" == name
            stream.ids.append(value)
            assert b"\n" == stream.response.readline()
    with opened(served.url + of(quiet), stream.ids[-1]):
        pass


# Who comes when


def test_two_hundred_clients_of_tasks_that_live_a_moment_all_see_the_end(
    served: Served, client: Client, store: Store
) -> None:
    """Whether a client comes before, amid or after a life of some 50 ms: it sees the whole of it, and the end."""
    ids = [submitted(client, queue=f"q{number}") for number in range(CLIENTS)]

    def live(number: int) -> None:
        hand = Hand(store, f"w{number}")
        hand.finish(hand.start(f"q{number}"))

    def follow(task_id: str) -> list[Message]:
        with EventStream(served.url + of(task_id)) as stream:
            return list(stream)

    with ThreadPoolExecutor(2 * CLIENTS) as pool:
        lives = pool.map(live, range(CLIENTS))
        told = list(pool.map(follow, ids))
        list(lives)
    for task_id, messages in zip(ids, told, strict=True):
        assert ["PENDING", "PROCESSING", "SUCCESS"] == states(messages)
        assert "end" == messages[-1].event
        assert {task_id} == {message.data["id"] for message in messages[:-1]}


def test_reconnecting_all_the_time_loses_nothing(served: Served, client: Client, store: Store) -> None:
    """Streams cut after each event, by owner, while tasks move: put together they are the history."""
    with ThreadPoolExecutor(1) as pool:
        with opened(f"{served.url}/api/events?owner=ann") as stream:
            cursor = stream.last_event_id
        moving = pool.submit(_move_about, client, store)
        seen: list[Message] = []
        while len(seen) < 60:
            with opened(f"{served.url}/api/events?owner=ann", cursor) as stream:
                seen += stream.take("task", 1 + len(seen) % 3)
                cursor = stream.last_event_id
        moving.result()
    history = client.store.redis.xrange(client.store.keys.history)
    expected = [entry_id for entry_id, fields in history if fields["owner"] == "ann"]
    assert expected == [message.id.partition(".")[2] for message in seen][: len(expected)]
    assert 60 == len(expected)


def _move_about(client: Client, store: Store) -> None:
    hand = Hand(store)
    for number in range(20):
        submitted(client, owner="ann")
        submitted(client, owner="bob", queue="other")
        hand.run()
        if number % 2:
            Hand(store).run("other")


def test_the_header_goes_before_the_query(served: Served, client: Client, hand: Hand) -> None:
    """EventSource repeats its first address with every reconnect, and tells the newest cursor in the header."""
    task_id = submitted(client)
    hand.run()
    with opened(served.url + of(task_id)) as stream:
        ids = [message.id for message in stream if message.event == "task"]
    with opened(f"{served.url}{of(task_id)}?last_event_id={ids[0]}", ids[1]) as rest:
        assert ["SUCCESS"] == states(list(rest))


# Many tasks


def test_a_filtered_stream_goes_on_from_its_cursor(served: Served, client: Client, hand: Hand) -> None:
    """What happened meanwhile is replayed and filtered alike, by another process that did not hear it live."""
    with opened(f"{served.url}/api/events?owner=ann") as stream:
        cursor = stream.last_event_id
    mine, _ = submitted(client, owner="ann"), submitted(client, owner="bob")
    hand.run()
    settings = client.settings
    with in_process(create_app(client=Client(settings))) as other:
        with opened(f"{other.url}/api/events?owner=ann", cursor) as stream:
            assert [mine] * 3 == [message.data["id"] for message in stream.take("task", 3)]
        with opened(f"{other.url}/api/events?owner=ann", stream.last_event_id) as stream:
            later = submitted(client, owner="ann")
            assert [later] == [message.data["id"] for message in stream.take("task")]


# Who leaves


def test_nothing_is_left_of_a_client_that_left(
    served: Served, client: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vanished client is noticed at the next write, which the heartbeat bounds; HEAD and 204 leave nothing either."""
    monkeypatch.setattr(sse, "HEARTBEAT", 0.05)
    task_id = submitted(client)
    streams = [opened(served.url + of(task_id)) for _ in range(20)]
    until(lambda: hub.subscribers == 20)
    for stream in streams:
        stream.close()
    until(lambda: hub.subscribers == 0)
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    connection.request("HEAD", of(task_id))
    assert 200 == connection.getresponse().status
    connection.close()
    until(lambda: hub.subscribers == 0)


def test_a_stream_that_has_ended_holds_no_place(web: FlaskClient, client: Client, hand: Hand) -> None:
    """Though the server does not close it: Werkzeug's forgets that when the client resets its connection just then."""
    task_id = submitted(client)
    hand.run()
    answer = web.get(of(task_id), headers={"Accept": "text/event-stream"})
    hub = web.application.extensions["ghostless"].hub
    assert (1, 1) == (hub.places_held, hub.subscribers)
    assert b"event: end" in b"".join(answer.response)
    assert (0, 0) == (hub.places_held, hub.subscribers)
    answer.close()
    assert (0, 0) == (hub.places_held, hub.subscribers)


def test_a_full_server_tells_a_stream_to_come_back(served: Served, client: Client, hub: Hub) -> None:
    """A browser gives up for good after a 503, so it gets 200, a delay and the end; a program gets the problem."""
    hub.limit = 0
    task_id = submitted(client)
    with EventStream(served.url + of(task_id)) as stream:
        assert 200 == stream.status
        assert stream.next() is None
        assert frames.RECONNECT[0] <= (stream.retry or 0) <= frames.RECONNECT[1]
    answer = requests.get(served.url + of(task_id), timeout=5)
    assert (503, "application/problem+json") == (answer.status_code, answer.headers["Content-Type"])


def test_a_closing_hub_ends_streams_with_a_delay(served: Served, client: Client, hub: Hub) -> None:
    """Each client is told when to come back, jittered, so that the next process is not run over."""
    streams = [opened(served.url + of(submitted(client))) for _ in range(10)]
    first = [stream.retry for stream in streams]
    for stream in streams:
        stream.take("task")
        stream.retry = None
    hub.close()
    for stream in streams:
        assert stream.next() is None
        stream.close()
    assert all(first)
    assert all(stream.retry for stream in streams)
    assert len({stream.retry for stream in streams}) > 1

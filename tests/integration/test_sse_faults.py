"""Event streams when things go wrong: slow clients, and a Redis that goes away, forgets, or comes back older."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.errors import CorruptRecord, TaskNotFound
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web import past as past_module
from ghostless.web import ring as ring_module
from ghostless.web import sse
from ghostless.web.cursors import ORIGIN
from ghostless.web.desk import Desk
from ghostless.web.rooms import PENDING_LIMIT
from ghostless.web.sse import Stream
from ghostless.web.watch import Watch
from redis import Redis
from redis_server import RedisServer
from web_tools import EventStream, Hand, Served, in_process, opened, publish, repeating, states, submitted, until


@pytest.fixture
def desk(redis: Redis, client: Client, store: Store) -> Iterator[Desk]:
    """The web side without a server: streams are read by the test, as slowly as it likes."""
    publish(store)
    desk = Desk.over(client)
    yield desk
    desk.hub.close()


def stream_of(desk: Desk, watch: Watch, cursor: str | None = None) -> Iterator[bytes]:
    """Open a stream the way a route does."""
    inbox = desk.hub.subscribe(watch)
    stream = Stream(desk.hub, desk.past, watch, inbox)
    assert stream.start(cursor)
    return iter(stream)


def ids_in(blocks: bytes) -> list[str]:
    """Return the entry ids of the moves in some blocks."""
    return [
        block.split(b"\n")[0].decode().rpartition(".")[2]
        for block in blocks.split(b"\n\n")
        if b"\nevent: task" in block
    ]


def read_until(stream: Iterator[bytes], last: str) -> bytes:
    """Read a stream up to the move with this id."""
    told = b""
    while not told.count(f".{last}\n".encode()):
        told += next(stream)
    return told


def entries(client: Client) -> list[str]:
    """Return the ids of all entries."""
    return [entry_id for entry_id, _ in client.store.redis.xrange(client.store.keys.history)]


def many(client: Client, number: int, **wishes: Any) -> str:
    """Submit many tasks and return the id of the last entry, once it is written."""
    for _ in range(number):
        submitted(client, **wishes)
    return entries(client)[-1]


# Slow clients


@pytest.mark.parametrize("ring", [4096, 16], ids=["from memory", "from Redis"])
def test_a_slow_client_catches_up(desk: Desk, client: Client, monkeypatch: pytest.MonkeyPatch, ring: int) -> None:
    """Its queue is dropped, not grown; later it gets every move it missed, once and in order, and is live again."""
    monkeypatch.setattr(ring_module, "RING", ring)
    monkeypatch.setattr(past_module, "PAGE", 100)
    stream = stream_of(desk, Watch(owner="ann"))
    assert next(stream).startswith(b"retry: ")
    submitted(client, owner="ann")
    told = next(stream)
    newest = many(client, 2 * PENDING_LIMIT + 7, owner="ann")
    until(lambda: desk.hub.position.at >= _id(newest))
    told += read_until(stream, newest)
    told += read_until(stream, many(client, 2, owner="ann"))
    assert entries(client) == ids_in(told)
    assert b"event: reset" not in told


def _id(text: str) -> tuple[int, int]:
    milliseconds, _, sequence = text.partition("-")
    return int(milliseconds), int(sequence)


def test_a_slow_client_of_one_task_catches_up_from_its_own_moves(desk: Desk, client: Client, store: Store) -> None:
    """Named tasks are re-read by their own entries, not by the whole history; the end is not missed."""
    task_id = submitted(client)
    stream = stream_of(desk, Watch(frozenset({task_id})))
    told = next(stream) + next(stream)
    claimed = Hand(store).start()
    for number in range(PENDING_LIMIT + 50):
        store.stage(claimed.held, "worker:hand", f"stage {number}")
        if number % 50 == 0:
            submitted(client)
    Hand(store).finish(claimed)
    told += b"".join(stream)
    assert [entry.id for entry in client.history(task_id)] == ids_in(told)
    assert told.endswith(b'event: end\ndata: {"tasks":["%s"],"gone":[]}\n\n' % task_id.encode())


def test_a_client_too_far_behind_is_told(desk: Desk, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay is bounded; beyond that the client fetches anew, and goes on live from now."""
    monkeypatch.setattr(ring_module, "RING", 16)
    monkeypatch.setattr(past_module, "PAGE", 10)
    monkeypatch.setattr(past_module, "PAGES_LIMIT", 3)
    stream = stream_of(desk, Watch(owner="ann"))
    next(stream)
    newest = many(client, PENDING_LIMIT + 50, owner="ann")
    until(lambda: desk.hub.position.at >= _id(newest))
    told = b""
    while b"event: reset" not in told:
        told += next(stream)
    assert b'{"reason":"behind"}' in told
    newest = many(client, 1, owner="ann")
    assert [newest] == ids_in(read_until(stream, newest))


def test_several_moves_that_wait_are_one_write(desk: Desk, client: Client) -> None:
    """What happened while a client was busy is sent together."""
    stream = stream_of(desk, Watch(owner="ann"))
    next(stream)
    newest = many(client, 50, owner="ann")
    until(lambda: desk.hub.position.at >= _id(newest))
    assert 50 == len(ids_in(next(stream)))


# Redis goes away


@pytest.fixture
def durable(own_server: Callable[..., RedisServer]) -> RedisServer:
    """A Redis that keeps its data over a crash."""
    return own_server(durable=True)


def served_by(server: RedisServer) -> tuple[Client, Any]:
    """Return a client of a server, and a web server over the same one to enter."""
    client = Client(Settings(redis_url=server.url))
    publish(client.store)
    return client, in_process(create_app(Settings(redis_url=server.url)))


def test_a_stream_goes_on_when_redis_comes_back(durable: RedisServer) -> None:
    """Killed and started again under open streams: nothing is lost, repeated or reset, and late moves still come."""
    client, server = served_by(durable)
    task_id = submitted(client, owner="ann")
    with server as web, ExitStack() as streams:
        one = streams.enter_context(opened(f"{web.url}/api/tasks/{task_id}/events"))
        all_of_ann = streams.enter_context(opened(f"{web.url}/api/events?owner=ann"))
        one.take("task")
        durable.kill()
        _wait_until_noticed(web)
        durable.start()
        Hand(client.store).run()
        messages = list(one)
        others = all_of_ann.take("task", 2)
    assert ["PROCESSING", "SUCCESS"] == states(messages) == states(others)
    assert ["task", "task", "end"] == [message.event for message in messages]
    client.store.redis.close()


def _wait_until_noticed(web: Served) -> None:
    """Wait until the hub's history feed came round in vain."""
    assert web.app
    hub = web.app.extensions["ghostless"].hub
    failing_since = hub._beats["history"]
    until(lambda: hub._beats["history"] > failing_since)


def test_without_redis_a_new_stream_is_told_to_come_back(durable: RedisServer) -> None:
    """A browser's stream gets a delay and a clean end instead of a 503 that it would take for good."""
    client, server = served_by(durable)
    task_id = submitted(client)
    with server as web:
        durable.kill()
        for started in (False, True):
            with EventStream(f"{web.url}/api/tasks/{task_id}/events") as stream:
                assert (200, None) == (stream.status, stream.next())
                assert stream.retry
            if not started:
                durable.start()
                with opened(f"{web.url}/api/tasks/{task_id}/events"):
                    pass
                durable.kill()
        durable.start()
    client.store.redis.close()


def test_a_slow_client_waits_for_redis(durable: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it missed cannot be read while Redis is away; it keeps its connection and gets it afterwards."""
    monkeypatch.setattr(ring_module, "RING", 16)
    monkeypatch.setattr(sse, "AGAIN", 0.05)
    monkeypatch.setattr(sse, "HEARTBEAT", 0.1)
    client = Client(Settings(redis_url=durable.url))
    publish(client.store)
    desk = Desk.over(client)
    stream = stream_of(desk, Watch(owner="ann"))
    next(stream)
    newest = many(client, PENDING_LIMIT + 50, owner="ann")
    until(lambda: desk.hub.position.at >= _id(newest))
    durable.kill()
    told = b""
    while told.count(b": still here") < 3:
        told += next(stream)
    assert [] == ids_in(told)
    durable.start()
    told += read_until(stream, newest)
    assert entries(client) == ids_in(told)
    desk.hub.close()
    client.store.redis.close()


def test_an_emptied_redis_is_told(desk: Desk, client: Client, redis: Redis) -> None:
    """After a flush, what clients know is gone: `reset`, and then what is new, under a new epoch."""
    task_id = submitted(client)
    old_epoch = client.reads.epoch()
    named, everything = stream_of(desk, Watch(frozenset({task_id}))), stream_of(desk, Watch())
    assert 1 == len(ids_in(next(named) + next(named)))
    next(everything)
    redis.flushall()
    publish(client.store)
    many(client, 3)
    told = next(everything)
    while b"event: reset" not in told:
        told += next(everything)
    assert b'data: {"reason":"epoch"}' in told
    assert old_epoch.encode() not in read_until(everything, many(client, 1))
    ended = b"".join(named)
    assert ["reset", "end"] == [line[7:].decode() for line in ended.split(b"\n") if line.startswith(b"event: ")]


def test_a_redis_that_came_back_older_is_told(own_server: Callable[..., RedisServer]) -> None:
    """Restored from a snapshot, it lacks moves that clients saw. Open streams get `reset`, and so do old cursors."""
    server = own_server()
    client, web_server = served_by(server)
    kept = submitted(client)
    client.store.redis.save()
    with web_server as web, opened(f"{web.url}/api/events") as stream:
        lost = submitted(client)
        (seen,) = stream.take("task")
        assert lost == seen.data["id"]
        both, alone = (opened(f"{web.url}/api/events?task={names}") for names in (f"{lost}&task={kept}", lost))
        server.kill()
        server.start()
        assert {"reason": "rewound"} == stream.take("reset")[0].data
        with alone:
            assert {"tasks": [], "gone": [lost]} == alone.take("end")[0].data
        client.cancel(kept)
        with both:
            assert {"tasks": [kept], "gone": [lost]} == both.take("end")[0].data
        assert [kept] == [message.data["id"] for message in stream.take("task")]
        with EventStream(f"{web.url}/api/events", seen.id) as late:
            assert {"reason": "lost"} == late.take("reset")[0].data
        with EventStream(f"{web.url}/api/tasks/{kept}/events", seen.id) as late:
            assert ["reset", "end"] == [message.event for message in late]
    client.store.redis.close()


def test_a_damaged_entry_does_not_stop_the_others(desk: Desk, client: Client, redis: Redis) -> None:
    """One entry that cannot be read is passed over, live and in a replay; the next ones are told."""
    stream = stream_of(desk, Watch())
    first = next(stream)
    redis.xadd(client.store.keys.history, {"nonsense": "1"})
    newest = many(client, 1)
    assert [newest] == ids_in(read_until(stream, newest))
    assert desk.hub.alive
    start = first.split(b"\nid: ")[1].split(b"\n")[0].decode()
    elsewhere = Desk.over(client)
    replay = stream_of(elsewhere, Watch(), start)
    assert [newest] == ids_in(read_until(replay, newest))
    elsewhere.hub.close()


@pytest.mark.parametrize(
    "damage",
    [{"entries": "0"}, {"entries": "many"}, {"h1": "x"}, {"h1": "1_0-0"}, {"entries": "7"}, {"state": "GONE"}],
)
def test_a_damaged_task_is_told_and_not_waited_for(
    desk: Desk, client: Client, redis: Redis, damage: dict[str, str]
) -> None:
    """Before the stream starts it is an error; in an open stream that must be read again it is a reset."""
    task_id = submitted(client)
    inbox = desk.hub.subscribe(Watch(frozenset({task_id})))
    stream = Stream(desk.hub, desk.past, inbox.room.watch, inbox)
    assert stream.start(None)
    redis.hset(client.store.keys.task(task_id), mapping=damage)
    blocks = iter(stream)
    next(blocks)
    assert b'event: reset\ndata: {"reason":"damaged"}' in next(blocks)
    with pytest.raises(CorruptRecord):
        Stream(desk.hub, desk.past, inbox.room.watch, inbox).start(None)


def test_a_purge_amid_a_replay_is_no_damage(
    desk: Desk, client: Client, redis: Redis, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a task's ids and its entries it may be purged: that is told as a purge, and only the rest as damage."""
    task_id, other = submitted(client), submitted(client)
    client.cancel(task_id)
    look, retention = desk.past.look, store.keys.retention

    def look_and_lose(*given: Any) -> Any:
        snapshot = look(*given)
        redis.zadd(retention, {task_id: 1})
        store.purge()
        return snapshot

    inbox = desk.hub.subscribe(Watch(frozenset({task_id, other})))
    stream = Stream(desk.hub, desk.past, inbox.room.watch, inbox)
    assert stream.start(None)
    monkeypatch.setattr(desk.past, "look", look_and_lose)
    blocks = iter(stream)
    next(blocks)
    assert b'event: reset\ndata: {"reason":"purged"}' in next(blocks)
    assert [entries(client)[-1]] == [entry.id for entry in client.history(other)]
    client.cancel(other)
    assert b"event: end" in b"".join(blocks)


def test_entries_that_are_gone_are_damage_only_while_their_task_is_there(
    desk: Desk, client: Client, redis: Redis, store: Store
) -> None:
    """A purge takes both; who reads the entries after it hears that, with its time."""
    task_id = submitted(client)
    client.cancel(task_id)
    stories = desk.past.look([task_id]).stories
    redis.xdel(store.keys.history, client.history(task_id)[0].id)
    with pytest.raises(CorruptRecord):
        list(desk.past.moves_of(stories, ORIGIN))
    redis.zadd(store.keys.retention, {task_id: 1})
    assert 1 == store.purge().moved
    with pytest.raises(TaskNotFound) as caught:
        list(desk.past.moves_of(stories, ORIGIN))
    assert caught.value.purged_at


def test_nonsense_on_the_live_channel_is_ignored(desk: Desk, client: Client, redis: Redis, store: Store) -> None:
    """Whatever is published there, the feed lives on and nothing but progress and log lines is passed on."""
    task_id = submitted(client)
    claimed = Hand(store).start()
    stream = stream_of(desk, Watch(frozenset({task_id})))
    next(stream), next(stream)

    def say() -> None:
        for nonsense in ("", "{", "[]", "1", "null", '{"kind": "task", "id": "t"}', '{"kind": "log"}', '{"kind": NaN}'):
            redis.publish(store.keys.live, nonsense)
        store.progress(claimed.held, 0.5, "")

    told = b""
    with repeating(say):
        while told.count(b"event: progress") < 3:
            told += next(stream)
    assert told.count(b"event:") == told.count(b"event: progress")
    assert desk.hub.alive


def test_the_hub_listens_with_two_connections_whatever_the_number_of_streams(
    desk: Desk, client: Client, redis: Redis
) -> None:
    """A hundred streams and one stream look alike to Redis."""
    before = {line["id"] for line in redis.client_list()}
    streams = [stream_of(desk, Watch(frozenset({submitted(client)}))) for _ in range(100)]
    for stream in streams:
        next(stream)
    made = [line for line in redis.client_list() if line["id"] not in before]
    assert len(made) <= 2


def test_a_feed_notices_soon_that_redis_is_back(durable: RedisServer) -> None:
    """The pause between attempts is short and bounded: at most some seconds after an outage streams are live."""
    client, server = served_by(durable)
    with server as web, opened(f"{web.url}/api/events") as stream:
        durable.kill()
        _wait_until_noticed(web)
        durable.start()
        submitted(client)
        started = time.monotonic()
        stream.take("task")
        assert time.monotonic() - started < 10
    client.store.redis.close()

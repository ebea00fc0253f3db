"""What streams tell, on each kind of server: gunicorn with greenlets, gunicorn with threads, and Flask's own."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from typing import Any

import late
import pytest
import requests
from ghostless.jobs.client import Client
from ghostless.jobs.reads import Reads
from ghostless.jobs.store import Store
from ghostless.statemachine import Event
from ghostless.web.cursors import ORIGIN, Cursor, to_text
from ghostless.web.watch import TASKS_LIMIT
from redis import Redis
from web_tools import EventStream, Hand, Message, Served, opened, publish, states, submitted, until

from .server_kinds import FLOOD, HEARTBEAT, RING, SEGMENT, addressed, cursor_of, listeners, standing_still

FILTERS = ("owner=ann", "type=video", "queue=gpu", "")
MINE = {"owner": "ann", "type": "video", "queue": "gpu"}
"""A task that each of these chooses."""


def of(task_id: str) -> str:
    return f"/api/tasks/{task_id}/events"


def both(*task_ids: str) -> str:
    return "/api/events?" + "&".join(f"task={task_id}" for task_id in task_ids)


def by(wanted: str) -> str:
    return f"/api/events?{wanted}"


@pytest.fixture
def purge(redis: Redis, client: Client, store: Store) -> Callable[[str], None]:
    """Let a task end and be purged at once."""

    def purge(task_id: str) -> None:
        if not client.get(task_id).is_final:
            client.cancel(task_id)
        redis.zadd(store.keys.retention, {task_id: 1})
        assert 1 == store.purge().moved

    return purge


def kinds(messages: list[Message]) -> list[str]:
    """Return the events, with the reason of a reset."""
    return [f"reset {message.data['reason']}" if message.event == "reset" else message.event for message in messages]


def after(entries: list[str], cursor: str) -> list[str]:
    """Return the entries behind a cursor."""
    return entries[entries.index(cursor.partition(".")[2]) + 1 :]


def ids(messages: list[Message]) -> list[str]:
    """Return the entry ids of the moves."""
    return [message.id.partition(".")[2] for message in messages if message.event == "task"]


def pass_over(client: Client) -> None:
    """Let so much happen elsewhere that a server has what was before in Redis only."""
    for _ in range(2 * RING):
        submitted(client, queue="elsewhere")


# Between listening and replaying


def test_what_happens_while_a_stream_begins_comes_once(
    any_server: Served, client: Client, store: Store, redis: Redis
) -> None:
    """Time passes before the server listens for a stream, and before it replays; moves come all the time.

    Each comes once and in order: of one task, and by owner, type and queue, replayed from memory and from Redis.
    """
    task_id, _ = submitted(client, **MINE), submitted(client)
    running = [Hand(store).start(queue) for queue in ("gpu", "work")]
    long_ago = cursor_of(any_server, task_id)

    def move() -> bool:
        for one in running:
            store.stage(one.held, "worker:hand", "on it")
        time.sleep(0.005)  # a stream that is too slow for them would read them from Redis
        return True

    for _ in range(RING):
        move()
    just_now = cursor_of(any_server, task_id)
    asked = [(of(task_id), None), (of(task_id), just_now)]
    asked += [(by(wanted), cursor) for wanted in FILTERS[:3] for cursor in (long_ago, just_now)]
    heard: list[list[Message]] = [[] for _ in asked]

    def follow(path: str, cursor: str | None, messages: list[Message]) -> None:
        with EventStream(any_server.url + path, cursor) as stream:
            while "SUCCESS" not in states(messages[-1:]):
                messages += stream.take("task")

    redis.set(late.IS_LATE, 1, ex=late.LASTS)
    with ThreadPoolExecutor(len(asked)) as pool:
        follows = [pool.submit(follow, *one, messages) for one, messages in zip(asked, heard, strict=True)]
        until(lambda: move() and all(heard))
        all_heard_at = time.monotonic()
        while time.monotonic() - all_heard_at < 4 * late.BEFORE:  # who replays first begins to listen only now
            move()
        Hand(store).finish(running[0])
        for one in follows:
            one.result()
    mine = [entry.id for entry in client.history(task_id)]
    assert mine == ids(heard[0])
    for (path, cursor), messages in zip(asked[1:], heard[1:], strict=True):
        assert cursor
        assert after(mine, cursor) == ids(messages), path
    assert {task_id} == {message.data["id"] for messages in heard for message in messages}


# What is told


def test_filters_choose_what_is_told(any_server: Served, client: Client) -> None:
    """By owner, type and queue; without a filter everything, from now on."""
    submitted(client, owner="before")
    paths = ["owner=ann", "type=video", "queue=gpu", "owner=ann&queue=gpu", ""]
    with ExitStack() as held:
        streams = [
            held.enter_context(opened(f"{any_server.url}/api/events?{path}", headers=addressed(number)))
            for number, path in enumerate(paths)
        ]
        made = [
            submitted(client, owner="ann"),
            submitted(client, type="video"),
            submitted(client, owner="ann", queue="gpu"),
            submitted(client, owner="last"),
        ]
        expected = [[0, 2], [1], [2], [2], [0, 1, 2, 3]]
        for stream, numbers in zip(streams, expected, strict=True):
            told = [message.data["id"] for message in stream.take("task", len(numbers))]
            assert [made[number] for number in numbers] == told


def test_a_stream_names_fifty_tasks(any_server: Served, client: Client) -> None:
    """With the longest ids that there are; it tells of each, `end` when the last one is final, and then nothing."""
    names = [submitted(client, id=f"{number:064}") for number in range(TASKS_LIMIT)]
    with opened(any_server.url + both(*names)) as stream:
        for task_id in names[:-1]:
            client.cancel(task_id)
        told = stream.take("task", 2 * len(names) - 1)
        client.cancel(names[-1])
        told += list(stream)
    assert ["task"] * 2 * len(names) + ["end"] == kinds(told)
    assert {"tasks": names, "gone": []} == told[-1].data
    with EventStream(any_server.url + both(*names), told[-2].id) as over:
        assert 204 == over.status
    with EventStream(any_server.url + both(*names, "one-more")) as stream:
        assert 422 == stream.status


def test_a_stream_of_many_ends_with_the_last(any_server: Served, client: Client, hand: Hand) -> None:
    """`end` comes when all asked-for tasks are final, in whatever order."""
    ids = [submitted(client) for _ in range(5)]
    with opened(f"{any_server.url}/api/events?" + "&".join(f"task={task_id}" for task_id in ids)) as stream:
        for _ in ids[:4]:
            hand.run()
        client.cancel(ids[4])
        messages = list(stream)
    assert 4 * 3 + 2 == len(states(messages))
    assert sorted(ids) == messages[-1].data["tasks"]
    assert ["end"] == [message.event for message in messages if message.event != "task"]


def test_an_unknown_task_is_told_before_the_stream_starts(any_server: Served, client: Client) -> None:
    """404 with a problem, on a first connect also for one of several; nobody's place is held after it."""
    known = submitted(client)
    several = f"/api/events?task={known}&task=nope"
    asked = [(of("nope"), None), (of("nope"), "garbage"), ("/api/events?task=nope&task=no", "garbage"), (several, None)]
    for path, cursor in asked:
        with EventStream(any_server.url + path, cursor) as stream:
            assert 404 == stream.status
            assert "application/problem+json" == stream.response.headers["Content-Type"]
    assert 0 == listeners(any_server)


def test_a_client_that_does_not_read_loses_nothing(any_server: Served, client: Client, store: Store) -> None:
    """More moves than memory and all buffers hold wait for it in Redis; when it reads, all of them come."""
    hand = Hand(store)
    with opened(f"{any_server.url}/api/events?owner=ann", segment=SEGMENT) as stream:
        made = [submitted(client, owner="ann") for _ in range(4)]
        held = [hand.start().held for _ in made]
        for number in range(2 * FLOOD):
            for one in held:
                store.stage(one, "worker:hand", f"{number} " + "x" * 1900)
        expected = [entry_id for entry_id, fields in store.redis.xrange(store.keys.history) if fields["owner"] == "ann"]
        told = stream.take("task", len(expected))
    assert 4 * (2 * FLOOD + 2) == len(expected)
    assert expected == ids(told)


# From where a client goes on


def blocks(url: str, cursor: str | None, act: Callable[[], object]) -> list[dict[str, str]]:
    """Return every block of a stream to its end, by the names of its lines; `act` makes it end."""
    with EventStream(url, cursor) as stream:
        assert 200 == stream.status
        first = stream.response.readline()
        act()
        whole = (first + stream.response.read()).decode()
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in whole.split("\n\n")[:-1]]


@pytest.mark.parametrize("cursor", [None, "garbage"])
def test_only_moves_and_real_positions_have_an_id(
    any_server: Served, client: Client, store: Store, redis: Redis, cursor: str | None
) -> None:
    """Progress, log lines, `reset` and `end` carry none; what stands alone is the place of an entry, or the origin.

    So it is where a stream begins, and with the signs of life.
    """
    task_id, claimed = submitted(client), Hand(store).start()

    def act() -> None:
        begun = time.monotonic()
        while time.monotonic() - begun < 1.5 * HEARTBEAT:
            store.progress(claimed.held, 0.5, "on it")
            store.log(claimed.held, ["a line"])
            store.stage(claimed.held, "worker:hand", "a step")
            time.sleep(0.02)
        Hand(store).finish(claimed)

    said = blocks(any_server.url + of(task_id), cursor, act)
    kinds = {block.get("event", "life" if "" in block else "position") for block in said}
    assert {"task", "end", "position", "life", "log", "progress"} <= kinds
    assert ("reset" in kinds) == (cursor is not None)
    assert all(("id" in block) == (block["event"] == "task") for block in said if "event" in block)
    known = {entry for entry, _ in redis.xrange(store.keys.history)} | {to_text(ORIGIN)}
    seen = [Cursor.parse(block["id"]) for block in said if "id" in block]
    assert {to_text(place.at) for place in seen if place} <= known
    assert None not in seen
    assert sorted(place.at for place in seen if place) == [place.at for place in seen if place]


def test_from_every_cursor_exactly_the_rest_is_told(any_server: Served, client: Client, hand: Hand) -> None:
    """A client that comes back with any id it ever saw misses nothing and sees nothing twice."""
    ids = [submitted(client, queue="work") for _ in range(3)]
    url = f"{any_server.url}/api/events?" + "&".join(f"task={task_id}" for task_id in ids)
    with opened(url) as stream:
        for _ in range(2):
            hand.finish(hand.start(), Event.FAIL, asked=60_000)
        hand.run()
        for task_id in ids:
            client.cancel(task_id)
        whole = [message for message in stream if message.event == "task"]
        first = stream.ids[0]
    assert 3 * 2 + 2 * 2 + 1 + 2 == len(whole)
    assert sorted(whole, key=lambda message: message.data["at"]) == whole
    for number, cursor in enumerate([first, *(message.id for message in whole[:-1])]):
        with opened(url, cursor) as rest:
            assert whole[number:] == [message for message in rest if message.event == "task"], cursor
    with EventStream(url, whole[-1].id) as over:
        assert 204 == over.status


def test_from_each_id_of_a_stream_by_filter_the_rest_is_told(any_server: Served, client: Client, store: Store) -> None:
    """Also from the one that came before the first event; from memory, and when only Redis has it."""
    submitted(client, **MINE)
    hand = Hand(store)
    with ExitStack() as held:
        streams = [held.enter_context(opened(any_server.url + by(wanted))) for wanted in FILTERS]
        claimed = hand.start("gpu")
        store.stage(claimed.held, "worker:hand", "half")
        hand.finish(claimed)
        told = [stream.take("task", 3) for stream in streams]
    seen = [stream.ids for stream in streams]
    assert {4} == set(map(len, seen))
    for way in ("memory", "Redis"):
        if way == "Redis":
            pass_over(client)
        for wanted, whole, cursors in zip(FILTERS, told, seen, strict=True):
            for number, cursor in enumerate(cursors[:-1]):
                with opened(any_server.url + by(wanted), cursor) as rest:
                    assert whole[number:] == rest.take("task", 3 - number), (way, wanted)


def test_a_page_goes_on_from_what_it_fetched(any_server: Served, client: Client, hand: Hand) -> None:
    """The cursor in a REST answer leads on from exactly there, for one task and for a listing."""
    task_id = submitted(client)
    hand.start()
    cursor = requests.get(f"{any_server.url}/api/tasks/{task_id}", timeout=5).json()["cursor"]
    listed = requests.get(f"{any_server.url}/api/tasks", timeout=5).json()["last_event_id"]
    client.cancel(task_id)
    with opened(any_server.url + of(task_id), cursor) as stream:
        assert ["CANCELLING"] == states(stream.take("task"))
    with opened(f"{any_server.url}/api/events?last_event_id={listed}") as stream:
        assert ["CANCELLING"] == states(stream.take("task"))


# Cursors that lead nowhere


@pytest.mark.parametrize(
    ("cursor", "reason"),
    [
        ("garbage", "unreadable"),
        ("a.b-c", "unreadable"),
        ("{epoch}.1-1-1", "unreadable"),
        ("0000.{newest}", "epoch"),
        ("{epoch}.99999999999999-0", "ahead"),
        ("{epoch}.1-1", "lost"),
    ],
)
def test_a_cursor_that_leads_nowhere_is_told(
    any_server: Served, client: Client, reads: Reads, cursor: str, reason: str
) -> None:
    """`reset` instead of a silent hole; after it the stream is live from now, with a cursor that works."""
    task_id = submitted(client)
    given = cursor.format(epoch=reads.epoch(), newest=client.get(task_id).cursor)
    url = f"{any_server.url}/api/tasks/{task_id}/events"
    for path in (url, f"{any_server.url}/api/events?owner=ann", f"{any_server.url}/api/events"):
        with EventStream(path, given) as stream:
            assert {"reason": reason} == told_first(stream)
    with EventStream(url, given) as stream:
        stream.take("reset")
        client.cancel(task_id)
        told = list(stream)
    assert ["CANCELLED"] == states(told)
    with EventStream(url, told[0].id) as over:
        assert 204 == over.status


def told_first(stream: EventStream) -> Any:
    """Return what the first event says, which is a reset."""
    first = stream.next()
    assert first is not None
    assert "reset" == first.event
    return first.data


def test_an_id_from_before_a_flush_is_told(any_server: Served, client: Client, redis: Redis, store: Store) -> None:
    """All is new, and the same id may name another task: whoever comes with an old cursor is told, or hears it live."""
    url = f"{any_server.url}/api/tasks/{submitted(client, id='once-more')}/events"
    with opened(url) as stream, opened(f"{any_server.url}/api/events") as everything:
        old = stream.take("task")[0].id
        redis.flushall()
        publish(store)
        assert 404 == requests.get(url, {"last_event_id": old}, timeout=5).status_code
        submitted(client, id="once-more")
        assert {"reason": "epoch"} == everything.take("reset")[0].data
    for number, path in enumerate((url, f"{any_server.url}/api/events?queue=work", f"{any_server.url}/api/events")):
        with EventStream(path, old, headers=addressed(number)) as stream:
            assert {"reason": "epoch"} == told_first(stream)
    with EventStream(url, old, headers=addressed(4)) as stream:
        stream.take("reset")
        client.cancel("once-more")
        assert ["CANCELLED"] == states(list(stream))


def test_a_reset_stream_of_finished_tasks_ends(any_server: Served, client: Client, hand: Hand) -> None:
    """Nothing more will come of them, so the client is not left waiting."""
    task_id = submitted(client)
    hand.run()
    with EventStream(any_server.url + of(task_id), "garbage") as stream:
        assert ["reset", "end"] == [message.event for message in stream]
    with EventStream(any_server.url + of(task_id), stream.last_event_id) as over:
        assert 204 == over.status


# Tasks that are purged


def test_an_id_of_a_purged_task_tells_the_rest_or_of_the_hole(
    any_server: Served, client: Client, store: Store, purge: Callable[[str], None]
) -> None:
    """What memory has of it is told; later who was cut off amid its moves hears of the hole, others feel nothing."""
    with ExitStack() as held:
        streams = [held.enter_context(opened(any_server.url + by(wanted))) for wanted in FILTERS]
        gone = submitted(client, **MINE)
        Hand(store).run("gpu")
        cursors = [stream.take("task", 3) for stream in streams][0]
    kept = submitted(client, **MINE)
    purge(gone)
    for wanted in FILTERS:
        with opened(any_server.url + by(wanted), cursors[0].id) as stream:
            assert [gone, gone, kept] == [message.data["id"] for message in stream.take("task", 3)]
    pass_over(client)
    for wanted in FILTERS:
        with EventStream(any_server.url + by(wanted), cursors[1].id) as stream:
            assert ["reset purged"] == kinds(list(islice(stream, 1)))
        with opened(any_server.url + by(wanted), cursors[2].id) as stream:
            assert [kept] == [message.data["id"] for message in stream.take("task")]
    for cursor in cursors:
        with EventStream(any_server.url + of(gone), cursor.id) as stream:
            assert 410 == stream.status
        with opened(any_server.url + of(kept), cursor.id) as stream:
            assert [kept] == [message.data["id"] for message in stream.take("task")]


def test_a_purged_task_does_not_end_the_stream_of_the_others(
    any_server: Served, client: Client, hand: Hand, purge: Callable[[str], None]
) -> None:
    """A browser takes a 410 for good: so who comes back is told `purged`, hears the others, and is at the end once."""
    gone, kept = submitted(client, queue="gone"), submitted(client)
    with opened(any_server.url + both(gone, kept)) as stream:
        cursor = stream.take("task", 2)[-1].id
    purge(gone)
    with EventStream(any_server.url + both(gone, kept), cursor) as stream:
        first = stream.next()
        assert ("reset", {"reason": "purged"}) == (first and first.event, first and first.data)
        hand.run()
        messages = list(stream)
    assert ["PROCESSING", "SUCCESS"] == states(messages)
    assert "end" == messages[-1].event
    with EventStream(any_server.url + both(gone, kept), messages[-2].id) as over:
        assert 204 == over.status


def test_a_purge_of_what_was_told_makes_no_hole(
    any_server: Served, client: Client, hand: Hand, purge: Callable[[str], None]
) -> None:
    """Whose cursor is behind all that was purged has missed nothing: the stream goes on, and is not reset each time."""
    gone, kept = submitted(client, queue="gone"), submitted(client)
    client.cancel(gone)
    with opened(any_server.url + both(gone, kept)) as stream:
        cursor = stream.take("task", 3)[-1].id
    purge(gone)
    hand.run()
    with opened(any_server.url + both(gone, kept), cursor) as stream:
        assert ["task", "task", "end"] == [message.event for message in stream]


def test_an_id_without_a_trace_does_not_end_the_stream_of_the_others(
    any_server: Served, client: Client, redis: Redis, store: Store, hand: Hand, purge: Callable[[str], None]
) -> None:
    """The trace of a purge is kept for some days only; a client that was there before is served after that too."""
    gone, kept = submitted(client, queue="gone"), submitted(client)
    with opened(any_server.url + both(gone, kept)) as stream:
        cursor = stream.take("task")[-1].id
    purge(gone)
    redis.delete(store.keys.tombstone(gone))
    hand.run()
    for given, expected in ((cursor, ["reset", "end"]), ("garbage", ["reset", "end"])):
        with EventStream(any_server.url + both(gone, kept), given) as stream:
            assert expected == [message.event for message in stream]


def test_a_first_connect_tolerates_a_purge_too(
    any_server: Served, client: Client, purge: Callable[[str], None]
) -> None:
    """A page that fetched a list may open its stream after a purge; only when nothing is left is that an error."""
    gone, other, kept = (submitted(client) for _ in range(3))
    purge(gone)
    with EventStream(any_server.url + both(gone, other, kept)) as stream:
        first = stream.next()
        assert ("reset", {"reason": "purged"}) == (first and first.event, first and first.data)
        client.cancel(other)
        client.cancel(kept)
        assert [other, kept] == [message.data["id"] for message in stream if message.event == "task"]
    purge(other)
    for cursor in (None, stream.last_event_id):
        with EventStream(any_server.url + both(gone, other), cursor) as stream:
            assert 410 == stream.status


def test_a_reset_stream_ends_with_the_last_of_several(any_server: Served, client: Client, hand: Hand) -> None:
    """A task that was final before the reset has nothing more to tell; the stream still ends when the others do."""
    submitted(client)
    ended, running = hand.run(), submitted(client)
    with EventStream(any_server.url + both(ended, running), "garbage") as stream:
        stream.take("reset")
        hand.run()
        assert ["task", "task", "end"] == [message.event for message in stream]


def test_a_purge_of_what_was_told_is_no_news(
    any_server: Served, client: Client, hand: Hand, purge: Callable[[str], None]
) -> None:
    """Whose end a client has seen may go: nothing is repeated or reset, and the stream ends with the last task."""
    gone, kept = submitted(client, owner="ann"), submitted(client, queue="k", owner="ann")
    with opened(any_server.url + both(gone, kept)) as stream, opened(any_server.url + by("owner=ann")) as owner:
        hand.run()
        assert ["task"] * 6 == kinds(stream.take("task", 4) + owner.take("task", 2))
        purge(gone)
        hand.run("k")
        assert ["task", "task", "end"] == kinds(list(stream))
        assert ["task", "task"] == kinds(list(islice(owner, 2)))
    until(lambda: listeners(any_server) == 0)


def test_a_purge_in_mid_stream_is_told(
    any_server: Served, client: Client, store: Store, purge: Callable[[str], None]
) -> None:
    """A server that stood still while a task ended and was purged cannot tell its moves: it says so.

    A stream of this task ends, one of others too and those by owner, type and queue go on, and others feel nothing.
    """
    gone, kept, other = submitted(client, **MINE), submitted(client, **MINE | {"queue": "k"}), submitted(client)
    paths = [both(gone), both(gone, kept), *map(by, FILTERS[:2])]
    with ExitStack() as held:
        alone, several, *filtered = [held.enter_context(opened(any_server.url + path)) for path in paths]
        unhurt = held.enter_context(opened(any_server.url + both(other)))
        for stream, number in ((alone, 1), (several, 2), (unhurt, 1)):
            stream.take("task", number)
        with standing_still(any_server):
            assert gone == Hand(store).run("gpu")
            purge(gone)
            submitted(client, queue="wake")  # else a server that listens again waits for some news first
        assert ["reset purged", "end"] == kinds(list(alone))[-2:]
        assert ["reset purged"] * 3 == kinds([stream.take("reset")[0] for stream in (several, *filtered)])
        Hand(store).run("k")
        client.cancel(other)
        assert ["task", "task", "end"] == kinds(list(several))
        assert [["PROCESSING", "SUCCESS"]] * 2 == [states(stream.take("task", 2)) for stream in filtered]
        assert ["task", "end"] == kinds(list(unhurt))
    with EventStream(any_server.url + both(gone), alone.last_event_id) as again:
        assert 410 == again.status

"""Tasks that are purged under an open stream: told where a move may be missing, and never waited for."""

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web import past
from ghostless.web.feeds import HistoryFeed
from ghostless.web.hub import Hub
from redis import Redis
from web_tools import EventStream, Hand, Message, Served, in_process, opened, states, submitted, until


@pytest.fixture
def purge(redis: Redis, store: Store) -> Callable[[str], None]:
    """Purge a final task at once."""

    def purge(task_id: str) -> None:
        redis.zadd(store.keys.retention, {task_id: 1})
        assert 1 == store.purge().moved

    return purge


class Brake:
    """Stops the feed of the history after the next thing it hears, as if its process stood still."""

    def __init__(self, hub: Hub, wake: Callable[[], object]) -> None:
        self._hub, self._wake = hub, wake
        self.free, self.stands = threading.Event(), threading.Event()
        self.free.set()

    def stop(self) -> None:
        """Return when the feed stands still."""
        self.free.clear()
        self._wake()
        assert self.stands.wait(10)

    def hold(self) -> None:
        """Wait, if it is to stand still."""
        if not self.free.is_set():
            self.stands.set()
            self.free.wait(20)


@pytest.fixture
def brake(served: Served, hub: Hub, client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Brake]:
    """Let a test stop the feed of that server."""
    brake = Brake(hub, lambda: submitted(client, queue="wake"))
    step = HistoryFeed.step

    def held_step(self: HistoryFeed) -> None:
        brake.hold()
        step(self)

    monkeypatch.setattr(HistoryFeed, "step", held_step)
    yield brake
    brake.free.set()


def both(*task_ids: str) -> str:
    return "/api/events?" + "&".join(f"task={task_id}" for task_id in task_ids)


def kinds(messages: list[Message]) -> list[str]:
    """Return the events, with the reason of a reset."""
    return [f"reset {message.data['reason']}" if message.event == "reset" else message.event for message in messages]


def test_what_was_purged_before_it_was_read_is_told(
    served: Served, client: Client, hand: Hand, brake: Brake, purge: Callable[[str], None]
) -> None:
    """A server that stood still while a task ended and was purged cannot tell its moves: it says so, and ends."""
    task_id = submitted(client)
    with opened(served.url + both(task_id)) as stream:
        stream.take("task")
        brake.stop()
        hand.run()
        purge(task_id)
        brake.free.set()
        assert ["reset purged", "end"] == kinds(list(stream))
    with EventStream(served.url + both(task_id), stream.last_event_id) as again:
        assert 410 == again.status


def test_the_others_go_on(
    served: Served, client: Client, hand: Hand, brake: Brake, purge: Callable[[str], None]
) -> None:
    """A stream that has other tasks left, and one by owner, are told of the hole and go on; others feel nothing."""
    gone, kept, other = submitted(client, owner="ann"), submitted(client, queue="k", owner="ann"), submitted(client)
    with (
        opened(served.url + both(gone, kept)) as several,
        opened(f"{served.url}/api/events?owner=ann") as owner,
        opened(served.url + both(other)) as unhurt,
    ):
        for stream, number in ((several, 2), (unhurt, 1)):
            stream.take("task", number)
        brake.stop()
        assert gone == hand.run()
        purge(gone)
        brake.free.set()
        assert ["reset purged"] * 2 == kinds(several.take("reset") + owner.take("reset"))
        hand.run("k")
        client.cancel(other)
        assert ["PROCESSING", "SUCCESS"] == states(owner.take("task", 2))
        assert ["task", "task", "end"] == kinds(list(several))
        assert ["task", "end"] == kinds(list(unhurt))


def test_a_purge_of_what_was_told_is_no_news(
    served: Served, client: Client, hub: Hub, hand: Hand, purge: Callable[[str], None]
) -> None:
    """Whose end a client has seen may go: nothing is repeated or reset, and the stream ends with the last task."""
    gone, kept = submitted(client), submitted(client, queue="k")
    with opened(served.url + both(gone, kept)) as stream:
        hand.run()
        assert ["task"] * 4 == kinds(stream.take("task", 4))
        purge(gone)
        hand.run("k")
        assert ["task", "task", "end"] == kinds(list(stream))
    until(lambda: hub.subscribers == 0)


def test_a_slow_client_is_told_too(
    served: Served, client: Client, hub: Hub, hand: Hand, purge: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue was dropped, and what it would read again is gone."""
    task_id = submitted(client)
    with opened(served.url + both(task_id)) as stream:
        stream.take("task")
        until(lambda: hub.subscribers == 1)
        (inbox,) = hub._all()
        with hub._lock:  # nothing is taken meanwhile
            inbox.room.drop()
            hand.run()
            purge(task_id)
        assert ["reset purged", "end"] == kinds(list(stream))


def test_a_hole_is_told_before_what_lies_behind_it(
    served: Served,
    settings: Settings,
    client: Client,
    hand: Hand,
    purge: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who is cut off in the middle of a replay must not go on behind moves that were purged meanwhile."""
    moves = past.Past.moves

    def purged_meanwhile(self: past.Past, *given: Any) -> Iterator[Any]:
        for number, page in enumerate(moves(self, *given)):
            yield page
            if number == 0:
                purge(gone)

    with opened(f"{served.url}/api/events?owner=ann") as stream:
        cursor = stream.last_event_id
    for _ in range(3):
        submitted(client, owner="ann", queue="k")
    gone = submitted(client, owner="ann")
    hand.run()
    submitted(client, owner="ann", queue="k")
    monkeypatch.setattr(past, "PAGE", 3)
    monkeypatch.setattr(past.Past, "moves", purged_meanwhile)
    with (
        in_process(create_app(client=Client(settings))) as other,  # has nothing in memory
        EventStream(f"{other.url}/api/events?owner=ann", cursor) as stream,
    ):
        assert ["task"] * 3 + ["reset purged"] == kinds(list(islice(stream, 4)))

"""Tasks that are purged while a client is slow, or is told what was: a move that may be missing is told."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.web import past
from ghostless.web.hub import Hub
from redis import Redis
from web_tools import EventStream, Hand, Message, Served, in_process, opened, submitted, until


@pytest.fixture
def purge(redis: Redis, store: Store) -> Callable[[str], None]:
    """Purge a final task at once."""

    def purge(task_id: str) -> None:
        redis.zadd(store.keys.retention, {task_id: 1})
        assert 1 == store.purge().moved

    return purge


def both(*task_ids: str) -> str:
    return "/api/events?" + "&".join(f"task={task_id}" for task_id in task_ids)


def kinds(messages: list[Message]) -> list[str]:
    """Return the events, with the reason of a reset."""
    return [f"reset {message.data['reason']}" if message.event == "reset" else message.event for message in messages]


def test_a_slow_client_is_told_too(
    served: Served, client: Client, hub: Hub, hand: Hand, purge: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue was dropped, and what it would read again is gone."""
    task_id = submitted(client)
    with opened(served.url + both(task_id)) as stream:
        stream.take("task")
        until(lambda: hub.subscribers == 1)
        (inbox,) = hub._inboxes
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

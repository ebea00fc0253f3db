"""The ids of a stream: each is a real position, and from each a client goes on rightly or is told that it cannot."""

from collections.abc import Callable

import pytest
from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from ghostless.web import sse
from ghostless.web.cursors import ORIGIN, Cursor, to_text
from redis import Redis
from web_tools import EventStream, Hand, Served, opened, submitted


def blocks(served: Served, path: str, cursor: str | None, act: Callable[[], object]) -> list[dict[str, str]]:
    """Return every block of a stream to its end, by the names of its lines; `act` makes it end."""
    with EventStream(served.url + path, cursor) as stream:
        assert 200 == stream.status
        first = stream.response.readline()
        act()
        whole = (first + stream.response.read()).decode()
    return [
        dict(line.split(": ", 1) for line in block.split("\n") if line[0] != ":") for block in whole.split("\n\n")[:-1]
    ]


@pytest.mark.parametrize("cursor", [None, "garbage"])
def test_only_moves_and_real_positions_have_an_id(
    served: Served, client: Client, store: Store, redis: Redis, monkeypatch: pytest.MonkeyPatch, cursor: str | None
) -> None:
    """Progress, log lines, `reset` and `end` carry none; what stands alone is the place of an entry, or the origin."""
    monkeypatch.setattr(sse, "HEARTBEAT", 0.02)
    task_id, claimed = submitted(client), Hand(store).start()

    def act() -> None:
        for step in range(20):
            store.progress(claimed.held, step / 20, "on it")
            store.log(claimed.held, [f"line {step}"])
            store.stage(claimed.held, "worker:hand", f"step {step}")
        Hand(store).finish(claimed)

    said = blocks(served, f"/api/tasks/{task_id}/events", cursor, act)
    kinds = {block.get("event", "position" if "id" in block else "") for block in said}
    assert {"task", "end", "position", "log"} <= kinds
    assert all(("id" in block) == (block["event"] == "task") for block in said if "event" in block)
    known = {entry for entry, _ in redis.xrange(store.keys.history)} | {to_text(ORIGIN)}
    seen = [Cursor.parse(block["id"]) for block in said if "id" in block]
    assert {to_text(place.at) for place in seen if place} <= known
    assert None not in seen
    assert sorted(place.at for place in seen if place) == [place.at for place in seen if place]


def test_from_each_id_of_a_stream_by_owner_the_rest_is_told(
    served: Served, client: Client, hand: Hand, store: Store
) -> None:
    """Also from the one that came before the first event."""
    submitted(client, owner="ann")
    url = f"{served.url}/api/events?owner=ann"
    with opened(url) as stream:
        claimed = hand.start()
        store.stage(claimed.held, "worker:hand", "half")
        hand.finish(claimed)
        whole = stream.take("task", 3)
    assert 4 == len(stream.ids)
    for number, cursor in enumerate(stream.ids[:-1]):
        with opened(url, cursor) as rest:
            assert whole[number:] == rest.take("task", 3 - number)

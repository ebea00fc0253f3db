"""How many events a second reach all clients: ours, in turn with the usual design of a Redis connection a client."""

import json
import time
from collections.abc import Callable
from functools import partial

from redis import Redis

from ..jobs.store import Store
from .crowd import Crowd, crowd
from .event_figures import Figures
from .event_servers import naive, real
from .event_writer import NEWS, Writer, stamp
from .naive_events import CHANNEL

CLIENTS = 500
"""Clients of each design."""

SECONDS = 4.0
"""How long one round lasts."""

WINDOW, BATCH = 64, 16
"""Events that may be on their way to the slowest client, and that are written in one round trip."""

Write = Callable[[range], None]


def beside(figures: Figures, redis_url: str, store: Store, rounds: int) -> None:
    """Measure both designs in turn, each with all its clients there."""
    ours, theirs = Writer(store, 1).news, partial(say, store.redis)
    with real(redis_url) as server, naive(redis_url) as other, crowd(server.port) as mine, crowd(other.port) as others:
        mine.order("come", [f"/api/events?queue={NEWS}"] * CLIENTS)
        others.order("come", ["/events"] * CLIENTS)
        mine.order("only_count")
        others.order("only_count")
        for _ in range(rounds):
            rate, rate_of_others = flood(mine, ours), flood(others, theirs)
            figures.note(f"events for all {CLIENTS} clients", rate, "/s")
            figures.note("the same, with a Redis connection a client", rate_of_others, "/s")
            figures.note("ours, as a multiple of that", rate / rate_of_others, least=10)


def flood(visitors: Crowd, write: Write) -> float:
    """Return how many events a second reach all clients, with `WINDOW` on their way at most."""
    visitors.order("forget")
    written, started = 0, time.monotonic()
    while time.monotonic() - started < SECONDS:
        if written - visitors.order("slowest") <= WINDOW - BATCH:
            write(range(written, written + BATCH))
            written += BATCH
        else:
            time.sleep(0.001)
    while visitors.order("slowest") < written:
        time.sleep(0.001)
    return written / (time.monotonic() - started)


def say(redis: Redis, numbers: range) -> None:
    """Say on the usual design's channel what ours would say, as long as ours."""
    with redis.pipeline(transaction=False) as pipeline:
        for number in numbers:
            move = {"id": f"news-{number}", "state": "PENDING", "filler": "x" * 160, "actor": stamp("all")}
            data = json.dumps(move, separators=(",", ":"))
            pipeline.publish(CHANNEL, f"id: epoch.{number}-0\nevent: task\ndata: {data}\n\n")
        pipeline.execute()

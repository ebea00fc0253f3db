"""How long each look takes beside many stored tasks: `python -m ghostless.benchmarks.looks [TASKS]`.

Starts a Redis of its own, fills it (200000 tasks when no number is given), asks the API for each page that a person
opens, without a socket, and prints the time to the answer; then the longest command that Redis had for it.
"""

import sys

from flask.testing import FlaskClient
from redis import Redis
from rich.console import Console
from rich.table import Table

from ..app import create_app
from ..jobs.client import Client
from ..jobs.connection import connect
from .scripts import private_redis, timed
from .sweep import fill, row

TASKS, ROUNDS = 200_000, 20
PLACES = (
    *("/api/stats", "/api/queues", "/api/types", "/api/workers", "/api/schedules", "/api/tasks?limit=500"),
    *("/api/tasks?state=PENDING", "/api/tasks?queue=bench0", "/api/tasks?type=bench.noop", "/api/tasks?owner=nobody"),
    *("/api/tasks/t1", "/api/tasks/t1/explain", "/api/tasks/t1/history"),
)


def look(web: FlaskClient, place: str) -> None:
    """Ask once."""
    assert web.get(place).status_code == 200


def longest(redis: Redis) -> str:
    """Return the longest command since the last reset, and how long it took."""
    slow = max(redis.slowlog_get(10_000), key=lambda entry: entry["duration"], default=None)
    return f"{slow['duration'] / 1000:.1f} {bytes(slow['command']).split()[0].decode()}" if slow else "under 1"


def main() -> int:
    """Fill, look, print."""
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else TASKS
    with private_redis() as settings:
        client = Client(settings, connect(settings))
        redis = client.store.redis
        fill(client.store, range(tasks))
        web = create_app(client=client).test_client()
        redis.config_set("slowlog-log-slower-than", 1_000)
        table = Table(f"{tasks:,} tasks", "median ms", "spread ms", "longest command, ms")
        for place in PLACES:
            redis.slowlog_reset()
            times = [timed(lambda place=place: look(web, place)) for _ in range(ROUNDS)]
            table.add_row(*row(place, times), longest(redis))
        Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

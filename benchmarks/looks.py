"""How long each look takes beside many stored tasks: `python -m ghostless.benchmarks.looks [TASKS]`.

Starts a Redis of its own, fills it (200000 tasks when no number is given), asks the API for each page that a person
opens, without a socket, and prints the time to the answer; then the longest command that Redis had for it.
"""

import sys
from statistics import median

from flask.testing import FlaskClient
from rich.console import Console
from rich.table import Table

from ..app import create_app
from ..jobs.client import Client
from ..jobs.connection import connect
from .copies import QUEUE, TYPES, Crowd
from .observed import SlowCommands
from .tools import private_redis, timed

TASKS, ROUNDS = 200_000, 20
PLACES = (
    *("/api/stats", "/api/queues", "/api/types", "/api/workers", "/api/schedules", "/api/tasks?limit=500"),
    *(
        "/api/tasks?state=PENDING",
        f"/api/tasks?queue={QUEUE}",
        f"/api/tasks?type={TYPES[0]}",
        "/api/tasks?owner=nobody",
    ),
    *("/api/tasks/c1", "/api/tasks/c1/explain", "/api/tasks/c1/history"),
)
SLOW = 1_000
"""Microseconds from which on a command is told."""


def look(web: FlaskClient, place: str) -> None:
    """Ask once."""
    assert web.get(place).status_code == 200


def main() -> int:
    """Fill, look, print."""
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else TASKS
    with private_redis() as settings:
        client = Client(settings, connect(settings))
        Crowd(client.store).grow(tasks, tasks // 5)
        web, slow = create_app(client=client).test_client(), SlowCommands(client.store.redis)
        table = Table(f"{tasks:,} tasks", "median ms", "spread ms", "longest command")
        for place in PLACES:
            slow.watch(SLOW)
            times = [timed(lambda place=place: look(web, place)) / 1000 for _ in range(ROUNDS)]
            spread = f"{min(times):.2f} - {max(times):.2f}"
            table.add_row(place, f"{median(times):.2f}", spread, *slow.longest(1))
        Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

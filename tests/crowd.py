"""Many stored tasks in little time, for tests of what must not follow their number."""

from ghostless.benchmarks.copies import Crowd
from ghostless.jobs.client import Client


def crowded(client: Client, number: int) -> None:
    """Store so many tasks of two types and two queues, a fifth of them waiting for a worker, and some of an owner."""
    Crowd(client.store).grow(number, number // 5)

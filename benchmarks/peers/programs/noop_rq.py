"""rq; the worker's class is a matter of its command line."""

from noop import PARAMS, REDIS_URL, noop
from redis import Redis
from rq import Queue

queue = Queue("bench", connection=Redis.from_url(REDIS_URL))


def noop_task(prompt: str) -> dict[str, bool]:
    """Leave a mark."""
    return noop()


def single(number: int) -> None:
    """Submit one by one."""
    for _ in range(number):
        queue.enqueue(noop_task, **PARAMS)


def bulk(number: int) -> None:
    """Submit all together."""
    queue.enqueue_many([Queue.prepare_data(noop_task, kwargs=PARAMS) for _ in range(number)])

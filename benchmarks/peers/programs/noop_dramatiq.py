"""Dramatiq."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from noop import PARAMS, REDIS_URL, noop

dramatiq.set_broker(RedisBroker(url=REDIS_URL))


@dramatiq.actor
def noop_task(prompt: str) -> dict[str, bool]:
    """Leave a mark."""
    return noop()


def single(number: int) -> None:
    """Submit one by one."""
    for _ in range(number):
        noop_task.send(**PARAMS)

"""taskiq-redis, with the broker and the results of its README."""

import asyncio

from noop import PARAMS, REDIS_URL, noop
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

broker = RedisStreamBroker(url=REDIS_URL).with_result_backend(RedisAsyncResultBackend(redis_url=REDIS_URL))


@broker.task
async def noop_task(prompt: str) -> dict[str, bool]:
    """Leave a mark."""
    return noop()


def prepare() -> None:
    """Make the loop that all calls share, and the consumer group, before which nothing is delivered."""
    global loop
    loop = asyncio.new_event_loop()
    loop.run_until_complete(broker.startup())


def single(number: int) -> None:
    """Submit one by one."""
    loop.run_until_complete(_single(number))


async def _single(number: int) -> None:
    for _ in range(number):
        await noop_task.kiq(**PARAMS)

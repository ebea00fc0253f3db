"""SAQ."""

import asyncio

from noop import PARAMS, REDIS_URL, noop
from saq import Queue

queue = Queue.from_url(REDIS_URL)


async def noop_task(ctx: dict[str, object], *, prompt: str) -> dict[str, bool]:
    """Leave a mark."""
    return noop()


settings = {"queue": queue, "functions": [noop_task], "concurrency": 1}


def prepare() -> None:
    """Make the loop that all calls share."""
    global loop
    loop = asyncio.new_event_loop()
    loop.run_until_complete(queue.connect())


def single(number: int) -> None:
    """Submit one by one."""
    loop.run_until_complete(_single(number))


async def _single(number: int) -> None:
    for _ in range(number):
        await queue.enqueue("noop_task", **PARAMS)

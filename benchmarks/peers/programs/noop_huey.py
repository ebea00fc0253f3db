"""Huey; what runs the tasks is a matter of its command line."""

from huey import RedisHuey
from noop import PARAMS, REDIS_URL, noop

huey = RedisHuey("bench", url=REDIS_URL)


@huey.task()
def noop_task(prompt: str) -> dict[str, bool]:
    """Leave a mark."""
    return noop()


def single(number: int) -> None:
    """Submit one by one."""
    for _ in range(number):
        noop_task(**PARAMS)

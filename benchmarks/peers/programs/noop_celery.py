"""Celery."""

from celery import Celery
from noop import PARAMS, REDIS_URL, noop

app = Celery("noop_celery", broker=REDIS_URL)


@app.task
def noop_task(prompt: str) -> dict[str, bool]:
    """Leave a mark."""
    return noop()


def single(number: int) -> None:
    """Submit one by one."""
    for _ in range(number):
        noop_task.delay(**PARAMS)

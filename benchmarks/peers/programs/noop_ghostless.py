"""Ghostless."""

from ghostless.jobs import Client, Context, Settings, task
from ghostless.jobs.publishing import publish
from ghostless.jobs.registry import registry
from ghostless.jobs.submission import Request
from noop import PARAMS, REDIS_URL, noop


@task("bench.noop", queue="bench")
def noop_task(ctx: Context, prompt: str) -> dict[str, bool]:
    """Leave a mark."""
    return noop()


def prepare() -> None:
    """Connect, and publish the type, as a deploy does."""
    global client
    client = Client(Settings(redis_url=REDIS_URL))
    publish(client.store, registry.published())


def single(number: int) -> None:
    """Submit one by one."""
    for _ in range(number):
        client.submit("bench.noop", PARAMS)


def bulk(number: int) -> None:
    """Submit all together."""
    client.submit_many([Request("bench.noop", PARAMS)] * number)

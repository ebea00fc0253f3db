"""Ghostless."""

import subprocess
import sys

from ghostless.jobs import Client, Context, Settings, task
from ghostless.jobs.submission import Request
from noop import PARAMS, REDIS_URL, noop


@task("bench.noop", queue="bench")
def noop_task(ctx: Context, prompt: str) -> dict[str, bool]:
    """Leave a mark."""
    return noop()


def prepare() -> None:
    """Publish the type, as a deploy does, and connect."""
    global client
    publish = [sys.executable, "-m", "ghostless.jobs.cli", "types", "publish", "--tasks", "noop_ghostless"]
    subprocess.run(publish, check=True, capture_output=True)
    client = Client(Settings(redis_url=REDIS_URL))


def single(number: int) -> None:
    """Submit one by one."""
    for _ in range(number):
        client.submit("bench.noop", PARAMS)


def bulk(number: int) -> None:
    """Submit all together."""
    client.submit_many([Request("bench.noop", PARAMS)] * number)

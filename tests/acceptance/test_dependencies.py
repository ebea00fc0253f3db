"""Tasks that depend on tasks, with real workers: chains, diamonds, fans, and processes that die in the middle."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.submission import Request
from ghostless.lua import BATCH
from helpers import eventually, expect

from .conftest import assert_clean, ended, entry_of, owner, publish, running, story

pytestmark = pytest.mark.slow


@pytest.fixture
def submit(client: Client, trace: Path) -> Callable[..., str]:
    """Submit a task that adds up what the tasks returned that it depends on; return its id."""

    def submit(*depends_on: str, **params: object) -> str:
        wanted = {"trace": str(trace), **params}
        return client.submit("life.sum", wanted, depends_on=depends_on).task_id

    return submit


def test_a_chain_and_a_diamond(
    serving: Callable[..., None], client: Client, fleet: Fleet, submit: Callable[..., str]
) -> None:
    """Each task runs once, after all that it depends on, and has their results."""
    serving(workers=2)
    first = submit()
    second = submit(first)
    third = submit(second)
    left, right = submit(third, own=10), submit(third, own=20)
    last = submit(left, right, first)
    assert ended(client, last, "SUCCESS").result == 1 + (10 + 3) + (20 + 3) + 1
    for before, after in ((first, second), (second, third), (third, left), (third, right), (left, last), (right, last)):
        assert entry_of(client, before, "COMPLETE").at <= entry_of(client, after, "START").at
    assert story(client, third) == ["SUBMIT", "RELEASE", "START", "COMPLETE"]
    assert_clean(client, fleet, first, second, third, left, right, last)


def test_a_fan_out_and_a_fan_in(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path, end: Path, submit: Callable[..., str]
) -> None:
    """250 tasks that wait for one run once each, and what waits for 50 of them has their results."""
    serving(workers=2)
    head = submit(end=str(end))
    running(trace)
    wishes = [Request("life.sum", {"trace": str(trace)}, depends_on=(head,)) for _ in range(250)]
    fan = [accepted.task_id for accepted in client.submit_many(wishes)]  # type: ignore[union-attr]
    last = submit(*fan[:50])
    assert client.counts()["BLOCKED"] == 251
    assert "it waits for 1 of the 1 tasks" in client.explain(fan[0]).why
    end.touch()
    assert ended(client, last, "SUCCESS", seconds=60).result == 1 + 50 * 2
    eventually(lambda: expect(client.counts()["SUCCESS"] == 252), seconds=60)
    assert {1} == set(Counter(line.split()[1] for line in trace.read_text().splitlines()).values())
    assert_clean(client, fleet, head, *fan, last)


def test_a_worker_that_dies_in_the_middle(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path, end: Path, submit: Callable[..., str]
) -> None:
    """The chain waits for the next attempt; a loss that is retried is no end."""
    serving(workers=1)
    first = submit(end=str(end))
    last = submit(submit(first))
    running(trace)
    owner(client, fleet, first).send_signal(signal.SIGKILL)
    ended(client, first, "RETRY_WAITING", "PENDING", "PROCESSING")
    assert client.get(last).state == "BLOCKED"
    end.touch()
    fleet.worker(name="second", tasks="lifecycle")
    assert ended(client, last, "SUCCESS").result == 3
    assert_clean(client, fleet, first, last)


def test_an_end_without_workers(client: Client, fleet: Fleet, submit: Callable[..., str]) -> None:
    """A cancel ends a batch at once, and a watchdog that is killed and started again the rest of a long chain."""
    publish(fleet)
    ids = [submit()]
    for _ in range(450):
        ids.append(submit(ids[-1]))
    client.cancel(ids[0], message="not wanted any more")
    assert client.counts()["CANCELLED"] == 1 + BATCH
    fleet.watchdog().kill()
    fleet.watchdog()
    eventually(lambda: expect(client.counts()["CANCELLED"] == 451), seconds=20)
    told = client.explain(ids[-1]).why
    assert told == f"it was cancelled by dependency:{ids[-2]}: task {ids[-2]}, which it depends on, is CANCELLED"
    assert_clean(client, fleet, *ids)

"""Callbacks by listeners as processes: from a submit to a signed POST, and on when one is killed."""

import json
import re
from collections.abc import Iterator

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.keys import CALLBACKS
from helpers import eventually, expect, run_command
from odd_receivers import acting, answers
from receiver import Receiver, receiving
from scripts.seeding import submission
from standardwebhooks import Webhook

from .conftest import assert_clean

pytestmark = pytest.mark.slow

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Where callbacks go."""
    with receiving() as receiver:
        yield receiver


def listeners(client: Client) -> list[str]:
    """Return the listeners that deliver callbacks."""
    return [name for group in client.listeners.all() if group.name == CALLBACKS for name in group.listeners]


def end(client: Client, task_id: str, url: str) -> str:
    """Submit a task with a callback and cancel it; return what the submit was answered."""
    word = client.store.submit(submission(task_id, callback_url=url)).word
    client.store.cancel(task_id, "tester")
    return word


def test_the_ends_of_tasks_are_told(fleet: Fleet, client: Client, receiver: Receiver) -> None:
    """A submit is refused before the first listener; what ends while none runs is told by the next; a receiver that
    is slow keeps neither others from theirs nor the listener from its end. The command line shows it, and tells again.
    """
    fleet.environment |= {"GHOSTLESS_CALLBACK_SECRET": SECRET, "GHOSTLESS_CALLBACK_NETWORKS": "127.0.0.0/8"}
    ids = ["t1", "t2", "t3"]
    assert "unserved" == end(client, "t1", receiver.url)
    first = fleet.start("listener")
    eventually(lambda: expect(listeners(client)), seconds=20)
    first.kill()
    with acting(answers(b"HTTP/1.1 503 No\r\n\r\n", pause=4.0)) as port:
        assert ["moved"] * 3 == [end(client, task_id, f"{receiver.url}hook") for task_id in ids]
        assert "moved" == end(client, "slow", f"http://localhost:{port}/")
        second = fleet.start("listener")
        eventually(lambda: expect(len(receiver.requests) == 3), seconds=30)
        eventually(lambda: expect(not client.deliveries_of("slow")[0].delivery.tries))
        second.terminate()
        assert second.wait(timeout=40) == 0
    told = [Webhook(SECRET).verify(raw, dict(headers)) for headers, raw in receiver.requests]
    assert {("task.cancelled", task_id) for task_id in ids} == {(each["type"], each["data"]["id"]) for each in told}
    _, shown = run_command("deliveries", "t1", environment=fleet.surroundings)
    assert re.search(rf"task\.cancelled +{receiver.url[:-1]} +delivered +1 +- +answered 200", shown), shown
    [listed] = client.deliveries_of("t1")
    command = ("deliveries", "t1", "--redeliver", listed.delivery.id, "--json")
    code, shown = run_command(*command, environment=fleet.surroundings)
    assert (0, "waiting") == (code, json.loads(shown)["deliveries"][0]["state"])
    _, shown = run_command("stats", environment=fleet.surroundings)
    assert "deliveries wait for 2 hosts" in shown
    assert 1 == run_command("deliveries", "t1", "--redeliver", "1-1", environment=fleet.surroundings)[0]
    assert_clean(client, fleet, *ids, "slow")

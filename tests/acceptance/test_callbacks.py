"""Callbacks by listeners as processes: from a submit to a signed POST, and on when one is killed."""

import json
import re
from collections.abc import Iterator

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.keys import CALLBACKS
from ghostless.statemachine import Event, Policy, Reason, State
from helpers import eventually, expect, run_command
from odd_receivers import acting, answers
from receiver import Receiver, receiving
from scripts.seeding import NEXT_TOKEN, PATIENT, claimed, ending, submission, wish
from standardwebhooks import Webhook

from .conftest import assert_clean

pytestmark = pytest.mark.slow

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ONE_TRY = Policy(max_retries=0, max_timeouts=0)


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


ENDS: dict[str, tuple[Policy, tuple[Event, Reason], str, str]] = {
    "done": (ONE_TRY, (Event.COMPLETE, Reason.POLICY), "SUCCESS", "policy"),
    "broken": (ONE_TRY, (Event.FAIL, Reason.EXCEPTION), "FAILED", "exception"),
    "late": (ONE_TRY, (Event.TIMEOUT, Reason.DEADLINE), "TIMEOUT_CANCELLED", "policy"),
    "stalled": (ONE_TRY, (Event.TIMEOUT, Reason.STALLED), "TIMEOUT_CANCELLED", "policy"),
    "stopped": (ONE_TRY, (Event.STOPPED, Reason.USER), "CANCELLED", "user"),
    "late-once": (PATIENT, (Event.TIMEOUT, Reason.DEADLINE), "CANCELLED", "user"),
}
"""By id: the policy, how the one attempt ends, and what the callback says of the task's end, with the reason."""


def end_each_way(client: Client, url: str) -> None:
    """End a task in each way there is; one whose timeout is to be retried is no end, until somebody cancels it."""
    store = client.store
    for task_id, (policy, (event, reason), *_) in ENDS.items():
        store.submit(submission(task_id, policy=policy, callback_url=url))
        held = claimed(store, wish("w1", NEXT_TOKEN)).held
        if event is Event.STOPPED:
            store.cancel(task_id, "tester")
        store.finish(held, ending(event, reason), "worker:w1")
        if policy is PATIENT:
            assert State.RETRY_WAITING == client.get(task_id).state
            store.cancel(task_id, "tester")


def expected(client: Client, task_id: str) -> dict[str, object]:
    """Return what a callback says of such a task, from its history and its record."""
    _, _, state, reason = ENDS[task_id]
    task, last = client.get(task_id), client.history(task_id)[-1]
    assert (state, state, reason) == (task.state, last.to_state, last.reason)
    return {
        "id": task_id, "state": state, "finished_at": last.at, "type": task.type, "queue": task.queue,
        "owner": task.owner, "attempt": 1, "actor": last.actor, "reason": reason, "message": last.message,
        "submitted_at": task.submitted_at, "started_at": task.started_at, "failures": task.failures,
        "timeouts": task.timeouts, "losses": 0, "metadata": None, "result": task.result, "omitted": [],
    }  # fmt: skip


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
        end_each_way(client, receiver.url)
        second = fleet.start("listener")
        eventually(lambda: expect(len(receiver.requests) == 3 + len(ENDS)), seconds=30)
        eventually(lambda: expect(not client.deliveries_of("slow")[0].delivery.tries))
        second.terminate()
        assert second.wait(timeout=40) == 0
    told = [Webhook(SECRET).verify(raw, dict(headers)) for headers, raw in receiver.requests]
    by_id = {each["data"]["id"]: each for each in told}
    assert {*ids, *ENDS} == by_id.keys()
    assert {"task.cancelled"} == {by_id[task_id]["type"] for task_id in ids}
    for task_id, (*_, state, _) in ENDS.items():
        assert (f"task.{state.lower()}", expected(client, task_id)) == (by_id[task_id]["type"], by_id[task_id]["data"])
    _, shown = run_command("deliveries", "t1", environment=fleet.surroundings)
    assert re.search(rf"task\.cancelled +{receiver.url[:-1]} +delivered +1 +- +answered 200", shown), shown
    [listed] = client.deliveries_of("t1")
    command = ("deliveries", "t1", "--redeliver", listed.delivery.id, "--json")
    code, shown = run_command(*command, environment=fleet.surroundings)
    assert (0, "waiting") == (code, json.loads(shown)["deliveries"][0]["state"])
    _, shown = run_command("stats", environment=fleet.surroundings)
    assert "deliveries wait for 2 hosts" in shown
    assert 1 == run_command("deliveries", "t1", "--redeliver", "1-1", environment=fleet.surroundings)[0]
    assert_clean(client, fleet, *ids, *ENDS, "slow")

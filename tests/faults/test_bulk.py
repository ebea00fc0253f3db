"""Bulk actions over thousands of tasks, carried out by watchdogs that die: real processes, real Redis."""

from collections import Counter

import pytest
from acceptance.conftest import assert_clean, publish
from fleet import Fleet
from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.client import Client
from ghostless.jobs.submission import Request
from ghostless.statemachine import Event, State
from helpers import eventually, expect

pytestmark = pytest.mark.slow


def submit_many(client: Client, number: int, owner: str, **wishes: object) -> list[str]:
    """Submit tasks of one owner that nobody runs."""
    request = Request("life.once", {"trace": "nowhere"}, owner=owner, **wishes)  # type: ignore[arg-type]
    return [answer.task_id for answer in client.submit_many([request] * number)]  # type: ignore[union-attr]


def test_thousands_are_cancelled_by_watchdogs_that_die(client: Client, fleet: Fleet) -> None:
    """Two work at it and one is killed in mid-way: exactly those that match are cancelled, each once and counted once.

    Meanwhile the others' duties are done: a task whose time comes does not wait for the end of the bulk action.
    """
    publish(fleet)
    others = submit_many(client, 300, "bob")
    ids = [*submit_many(client, 2500, "ann"), *submit_many(client, 2500, "ann", delay=3600)]
    fleet.watchdog()
    victim = fleet.watchdog()
    eventually(lambda: expect(client.reads.is_watched()), seconds=20)
    bulk_id = client.bulk.begin(BulkRequest("cancel", BulkFilter(owner="ann"))).bulk_id
    due = client.submit("life.once", {"trace": "nowhere"}, owner="bob", delay=0.1).task_id
    eventually(lambda: expect(client.bulk.get(bulk_id).counts["moved"] >= 200))
    victim.kill()
    eventually(lambda: expect(client.get(due).state == State.PENDING))
    eventually(lambda: expect(client.bulk.get(bulk_id).ended_at), seconds=60)
    done = client.bulk.get(bulk_id)
    assert ("done", len(ids), False) == (done.state, done.counts["moved"], done.reached_limit)
    assert {State.CANCELLED: len(ids), State.PENDING: len(others) + 1} == {
        state: number for state, number in client.counts().items() if number
    }
    history = client.store.redis.xrange(client.store.keys.history)
    assert dict.fromkeys(ids, 1) == Counter(entry["task"] for _, entry in history if entry["event"] == Event.CANCEL)
    assert_clean(client, fleet, *ids, *others, due)

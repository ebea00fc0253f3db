"""The alert on timeouts as a user sets it up: a listener, workers, and a receiver."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually, expect
from receiver import receiving

from .conftest import assert_clean, ended
from .test_listener import statuses

pytestmark = pytest.mark.slow


def eventually_handled(client: Client) -> None:
    """Wait until the alerts' groups have seen the whole history, and are done with it."""
    eventually(lambda: expect({"alerts:timeouts", "alerts:worker-lost"} <= statuses(client).keys()), seconds=20)
    eventually(lambda: expect(not any(one.behind or one.pending for one in statuses(client).values())), seconds=20)


def test_more_timeouts_than_usual(
    serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path, end: Path
) -> None:
    """As many as are usual are no alert; with one more the receiver is told, once however many follow."""
    with receiving() as receiver:
        place = {"GHOSTLESS_ALERT_WEBHOOK": receiver.url}
        fleet.environment |= {**place, "GHOSTLESS_ALERT_TIMEOUTS": "2", "GHOSTLESS_ALERT_WINDOW": "600"}
        fleet.start("listener")
        serving()
        eventually_handled(client)
        wish = {"trace": str(trace), "end": str(end)}
        usual = [client.submit("life.busy", wish, timeout=0.2).task_id for _ in range(2)]
        for task_id in usual:
            ended(client, task_id, "TIMEOUT_CANCELLED")
        eventually_handled(client)
        assert [] == receiver.bodies
        further = [client.submit("life.busy", wish, timeout=0.2).task_id for _ in range(2)]
        for task_id in further:
            ended(client, task_id, "TIMEOUT_CANCELLED")
        eventually_handled(client)
        told = "Too many timeouts: more than 2 timeouts within 10 min, 3 by now"
        assert [f"{told}: task {further[0]} of type life.busy, attempt 1"] == receiver.texts
        assert ("TIMEOUT", "deadline") == tuple(receiver.bodies[0]["entry"][name] for name in ("event", "reason"))
    assert_clean(client, fleet, *usual, *further)

"""What a listener does on Redis to tell the ends of tasks to their callbacks, to be walked step by step.

What would be sent is noted in the folder of the walk: what matters is that each end is sent, and noted as sent.
"""

import os
from pathlib import Path

from faults.listener_operations import FAILS_FIRST, HandlerHere
from faults.steps import Operation
from faults.victims import Victim, command_line
from faults.world import World
from ghostless.jobs import deliverer, deliveries, delivery, lane, listener
from ghostless.jobs.cli import deliveries as deliveries_verb  # noqa: F401  imported once for all processes
from ghostless.jobs.delivery import DeliveryState, Try
from ghostless.jobs.keys import CALLBACKS
from ghostless.jobs.posting import Reply
from ghostless.statemachine import Policy, State
from helpers import expect

URL = "https://example.com/"
CANCELLED = (State.CANCELLED,)
ENDS = {"t1": CANCELLED, "t2": CANCELLED}


class PosterHere:
    """Notes what is to be sent; what is for `FAILS_FIRST` is not taken the first time."""

    def __init__(self, _networks: object) -> None:
        self._folder = Path(os.environ["TMPDIR"])

    def post(self, receiver: delivery.Receiver, _body: bytes, headers: dict[str, str]) -> Reply:
        """Note it."""
        note = self._folder / f"sent-{headers['webhook-id']}"
        is_first = not note.exists()
        note.touch()
        return Reply(503 if is_first and receiver.target == f"/{FAILS_FIRST}" else 200)


# What there is before


def ends_to_tell(world: World) -> None:
    """Let two tasks end, of which one has a receiver that does not take what it gets at first."""
    world.client.listeners.create(CALLBACKS)
    for task_id, path in (("t1", ""), ("t2", FAILS_FIRST)):
        world.submit(task_id, callback_url=f"{URL}{path}")
        world.client.cancel(task_id)


def an_end_that_was_told(world: World) -> None:
    """Let a task end, and tell it."""
    world.client.listeners.create(CALLBACKS)
    world.submit("t1", callback_url=URL)
    world.client.cancel("t1")
    told = world.client.deliveries
    told.plan(world.client.history("t1")[-1])
    [taken] = told.take(1, {})
    told.note(taken, *taken.delivery.tried(Try(taken.now(), 1, 200), 0, 0.5))


# What is done


def deliver(_world: World) -> None:
    """Tell what ended, until told to stop."""
    listener.HandlerProcess = HandlerHere  # type: ignore[assignment, misc]
    deliverer.Poster = PosterHere  # type: ignore[assignment, misc]
    lane.PATIENCE = delivery.PATIENCE = Policy(backoff_base=20)  # type: ignore[misc]
    deliveries.LEASE, deliverer.LOOK, lane.BLOCK = 1_000, 0.1, 0.3  # type: ignore[misc]
    os.environ["GHOSTLESS_CALLBACK_SECRET"] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    command_line("listener")


def redeliver(world: World) -> None:
    """Tell an end again by the command line."""
    [listed] = world.client.deliveries_of("t1")
    command_line("deliveries", "t1", "--redeliver", listed.delivery.id)


# What is then


def _states(world: World) -> list[DeliveryState]:
    return [listed.delivery.state for task_id in world.states() for listed in world.client.deliveries_of(task_id)]


def stop_when_all_is_told(world: World, victim: Victim) -> None:
    """Send SIGTERM once each end was told and nothing of the history is held."""
    group = next((status for status in world.client.listeners.all() if status.name == CALLBACKS), None)
    if group and not group.behind and not group.pending and _states(world) == [DeliveryState.DELIVERED] * 2:
        victim.tell_to_stop()


def is_told(world: World) -> None:
    """Check that each end was sent, and is noted as sent, and that nothing is left to do."""
    assert [DeliveryState.DELIVERED] * 2 == _states(world)
    assert 2 == len(list(world.folder.glob("sent-*")))
    expect(world.client.deliveries.overview().hosts == 0)


def is_to_be_told(world: World) -> None:
    """Check that the next listener sends it."""
    assert [DeliveryState.WAITING] == _states(world)
    expect(len(world.client.deliveries.take(9, {})) == 1)


OPERATIONS = (
    Operation(deliver, ends_to_tell, ENDS, repeats=True, meddle=stop_when_all_is_told, check=is_told, is_costly=True),
    Operation(redeliver, an_end_that_was_told, {"t1": CANCELLED}, repeats=True, check=is_to_be_told),
)
"""Each end of a task with a callback is sent at least once, and noted, whatever dies."""

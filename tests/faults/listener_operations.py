"""What a listener and the verbs about listeners do on Redis, to be walked step by step.

The handler is called without a process of its own, which would send nothing to Redis and take a second to start.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from faults.steps import Operation
from faults.victims import Victim, command_line
from faults.world import World
from ghostless.jobs import lane, listener
from ghostless.jobs import on as handler_of
from ghostless.jobs.cli import listener as listener_verb  # noqa: F401  imported once for all processes
from ghostless.jobs.cli import listeners as listeners_verb  # noqa: F401
from ghostless.jobs.client import Client
from ghostless.jobs.consumer import Consumer, Heard
from ghostless.jobs.errors import GroupNotFound
from ghostless.jobs.groups import GroupStatus
from ghostless.jobs.handler_process import Outcome
from ghostless.jobs.model import Entry
from ghostless.jobs.settings import Settings
from ghostless.jobs.subscriptions import Subscription
from ghostless.statemachine import Policy, State
from helpers import expect

GROUP, WANTED = "listener:tell", ("SUBMIT",)
FAILS_FIRST, FAILS = "fails-first", "fails"
SUCCESS = (State.SUCCESS,)


@handler_of(*WANTED, retries=2)
def tell(entry: Entry, _client: Client) -> None:
    """Note the call in the folder of the walk, and do what the owner is called."""
    note = Path(os.environ["TMPDIR"]) / f"told-{entry.task}"
    is_first = not note.exists()
    note.touch()
    if entry.owner == FAILS or (entry.owner == FAILS_FIRST and is_first):
        raise OSError("not now")


class HandlerHere:
    """Calls a handler in the listener itself."""

    is_running = True

    def __init__(self, subscription: Subscription, settings: Settings) -> None:
        self.subscription, self._client = subscription, Client(settings)
        self._outcome = Outcome()

    def begin(self, entry: Entry) -> None:
        """Call it."""
        try:
            self.subscription.handler()(entry, self._client)
            self._outcome = Outcome()
        except OSError as error:
            self._outcome = Outcome(str(error), str(error))

    def outcome(self, _seconds: float) -> Outcome:
        """Return how it ended."""
        return self._outcome

    def kill(self) -> None:
        """End nothing."""


# What there is before


def an_entry_to_come(world: World) -> None:
    """Submit a task before there is a group."""
    world.submit("t1")


def a_group(world: World) -> None:
    """Let a group begin."""
    world.client.listeners.create(GROUP)


def _hear(world: World, name: str) -> tuple[Consumer, Heard]:
    consumer = Consumer(world.client.listeners, GROUP, name, 0.0)
    heard = consumer.listen(WANTED, 9)
    assert heard
    return consumer, heard


def entries_of_every_kind(world: World) -> None:
    """Leave one entry with a dead listener; then come one that fails first, and one that fails each time."""
    a_group(world)
    world.submit("t1")
    consumer, heard = _hear(world, "dead")
    consumer.begin(heard.handed[0].entry.id, 1)
    redis, keys = world.client.store.redis, world.client.store.keys
    redis.xclaim(keys.history, GROUP, "dead", 0, [heard.handed[0].entry.id], idle=60_000, justid=True)
    world.submit("t2", owner=FAILS_FIRST)
    world.submit("t3", owner=FAILS)


def a_parked_entry(world: World) -> None:
    """Park the entry of a task."""
    a_group(world)
    world.submit("t1")
    consumer, heard = _hear(world, "gone")
    consumer.park(heard.handed[0].entry, 3, "not now")
    consumer.dismiss(0, leaving=True)


# What is done


def listen(_world: World) -> None:
    """Begin to listen with the oldest entry, handle what there is, and leave when told to."""
    listener.HandlerProcess = HandlerHere  # type: ignore[assignment, misc]
    lane.PATIENCE, lane.BLOCK = Policy(backoff_base=20), 0.3
    command_line("listener", "--handlers", __name__, "--from-start")


def create_a_group(_world: World) -> None:
    """Let a group begin by the command line."""
    command_line("listeners", "create", GROUP)


def replay(_world: World) -> None:
    """Try parked entries again by the command line."""
    command_line("listeners", "replay", GROUP, "--all")


def remove_a_group(world: World) -> None:
    """Remove a group; who does so again may hear that it is gone."""
    with suppress(GroupNotFound):
        world.client.listeners.remove(GROUP)


# What is then


def _group(world: World) -> GroupStatus | None:
    return next((status for status in world.client.listeners.all() if status.name == GROUP), None)


def stop_when_idle(world: World, victim: Victim) -> None:
    """Send SIGTERM once nothing is unread or handed out."""
    group = _group(world)
    if group and group.listeners and not group.behind and not group.pending:
        victim.tell_to_stop()


def is_told(*parked: str) -> Callable[[World], None]:
    """Return a check that each entry was handled, and that the group holds nothing but these parked ones."""

    def check(world: World) -> None:
        group = _group(world)
        assert group
        assert {f"told-{task_id}" for task_id in world.states()} == {path.name for path in world.folder.glob("told-*")}
        assert (0, 0) == (group.pending, group.missed)
        entries, damaged = world.client.listeners.parked(GROUP)
        assert (list(parked), []) == ([each.entry.task for each in entries], damaged)

    return check


def is_there(world: World) -> None:
    """Check that the group is there."""
    expect(_group(world))


def is_to_be_told(world: World) -> None:
    """Check that the next listener gets the entry, and that it is not parked any more."""
    assert ["t1"] == [handed.entry.task for handed in _hear(world, "next")[1].handed]
    expect(world.client.listeners.parked(GROUP) == ([], []))


def is_gone(world: World) -> None:
    """Check that nothing of the group is left."""
    keys = world.client.store.keys
    assert _group(world) is None
    expect(not world.client.store.redis.exists(keys.listener(GROUP), keys.parked_entries(GROUP)))


ONE = {"t1": SUCCESS}

OPERATIONS = (
    Operation(listen, an_entry_to_come, ONE, repeats=True, meddle=stop_when_idle, check=is_told(), is_costly=True),
    Operation(
        listen,
        entries_of_every_kind,
        {**ONE, "t2": SUCCESS, "t3": SUCCESS},
        repeats=True,
        meddle=stop_when_idle,
        check=is_told("t3"),
        is_costly=True,
    ),
    Operation(create_a_group, an_entry_to_come, ONE, repeats=True, check=is_there),
    Operation(replay, a_parked_entry, ONE, repeats=True, check=is_to_be_told),
    Operation(remove_a_group, a_parked_entry, ONE, repeats=True, check=is_gone),
)
"""Each entry is handled at least once, or parked after its last try, whatever dies."""

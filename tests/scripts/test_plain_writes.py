"""What writes to Redis without a script: nothing is half done beside damage, or at a Redis that refuses."""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from ghostless.jobs.alerts import timeouts
from ghostless.jobs.client import Client
from ghostless.jobs.diary import Diary
from ghostless.jobs.errors import CorruptRecord, RedisFull, RedisUnavailable
from ghostless.jobs.keys import Keys
from ghostless.jobs.model import Entry
from ghostless.jobs.recurrence import Recurrence
from ghostless.jobs.schedules import Schedule, Schedules
from ghostless.jobs.settings import Settings
from ghostless.jobs.tokens import Scope, Tokens
from ghostless.statemachine import State
from redis import Redis
from scripts.listening import GROUP, consumer_of, groups_of, let_another_die, listen
from scripts.seeding import ID, QUEUE, TYPE, Scene, nothing, put, scene
from scripts.snapshot import difference, snapshot
from scripts.test_damage import right_type, spoil
from scripts.test_full_redis import full

DAILY = Schedule("daily", TYPE, Recurrence("0 3 * * *"))


@dataclass(frozen=True)
class Write:
    """A call, and what must be prepared for it."""

    name: str
    call: Callable[[Scene], Any]
    prepare: Callable[[Scene], None] = nothing
    needs_memory: bool = True


def hear(stage: Scene) -> None:
    """Let a listener of the group hold the task's entries."""
    let_another_die(stage.store)
    listen(stage.store)


def entry_id(stage: Scene) -> str:
    """Return the id of the task's first entry."""
    return stage.task["h1"]


def first_entry(stage: Scene) -> Entry:
    """Return the task's first entry as a listener knows it."""
    return Entry(entry_id(stage), ID, "SUBMIT", "", State.PENDING, 0, "tester", "", "", TYPE, QUEUE)


def park(stage: Scene) -> None:
    """Park it."""
    consumer_of(stage.store).park(first_entry(stage), 1, "it broke")


def hear_and_park(stage: Scene) -> None:
    """Let a listener have parked the task's first entry."""
    hear(stage)
    park(stage)


def note_event(stage: Scene) -> None:
    """Store an event of a worker."""
    diary = Diary(stage.redis, stage.keys, "w1")
    diary.note("test", "it was tested")
    diary.send()


def schedules(stage: Scene) -> Schedules:
    """Return the schedules."""
    return Schedules(stage.redis, stage.keys)


def tokens(stage: Scene) -> Tokens:
    """Return the tokens."""
    return Tokens(stage.redis, stage.keys)


WRITES = (
    Write("park", park, hear),
    Write("begin", lambda s: consumer_of(s.store).begin(entry_id(s), 1), hear, needs_memory=False),
    Write("give_back", lambda s: consumer_of(s.store).give_back([entry_id(s)]), hear, needs_memory=False),
    Write("done", lambda s: consumer_of(s.store).done([entry_id(s)]), hear, needs_memory=False),
    Write("replay", lambda s: groups_of(s.store).replay(GROUP), hear_and_park, needs_memory=False),
    Write("pause_queue", lambda s: s.store.pause_queue(QUEUE)),
    Write("resume_queue", lambda s: s.store.resume_queue(QUEUE), lambda s: s.store.pause_queue(QUEUE)),
    Write("publish", lambda s: s.store.publish_types({TYPE: {}})),
    Write("demand_archive", lambda s: s.store.demand_archive()),
    Write("note_event", note_event),
    Write("schedule", lambda s: schedules(s).put(DAILY)),
    Write("token", lambda s: tokens(s).add("ann", [Scope.READ])),
    Write("signing_key", lambda s: tokens(s).signing_key()),
    Write("alert", lambda s: timeouts(first_entry(s), Client(Settings(), s.redis))),
)

each_write = pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)


@pytest.fixture
def stage(redis: Redis) -> Scene:
    """A running task."""
    return scene(redis)


def set_up(stage: Scene, write: Write) -> None:
    """Put a task into the database, and prepare what the call needs."""
    stage.start_over()
    put(stage, State.PROCESSING)
    write.prepare(stage)


def touched(stage: Scene, write: Write) -> set[str]:
    """Return every key that the call names to Redis, as MONITOR sees it."""
    set_up(stage, write)
    with stage.redis.monitor() as monitor:
        write.call(stage)
        stage.redis.echo("that was it")
        commands = itertools.takewhile(lambda said: not said.startswith("ECHO"), _said(monitor))
        found = {key for command in commands for key in re.findall(r"ghostless:[^\s\"]+", command)}
    return found - {stage.keys.task(ID)}


def _said(monitor: Any) -> Iterator[str]:
    for seen in monitor.listen():
        yield seen["command"]


@each_write
def test_a_wrong_type_at_any_key(stage: Scene, write: Write) -> None:
    """The call names what is damaged and changes nothing else, or it does not meet the damage."""
    for key, kind in itertools.product(sorted(touched(stage, write)), ("string", "list", "zset")):
        if kind != right_type(Keys(), key):
            set_up(stage, write)
            spoil(stage.redis, key, kind)
            assert_all_or_nothing(stage, write, key)


def assert_all_or_nothing(stage: Scene, write: Write, key: str) -> None:
    """Make the call beside a damaged key, which itself may be given a time to live."""
    before = snapshot(stage.redis)
    try:
        write.call(stage)
    except CorruptRecord:
        # Neither a hint to look, nor a queue that goes on without one, nor an entry that is parked and will be handed
        # out again does any harm.
        harmless = {key, stage.keys.wake(QUEUE), stage.keys.queues, stage.keys.parked_entries(GROUP)}
        assert difference(before, snapshot(stage.redis)).keys() <= harmless, key


@each_write
def test_a_read_only_redis(stage: Scene, write: Write) -> None:
    """The call says so, changes nothing, and works afterwards."""
    set_up(stage, write)
    before = snapshot(stage.redis)
    stage.redis.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(RedisUnavailable, match="read only"):
            write.call(stage)
        assert {} == difference(before, snapshot(stage.redis))
    finally:
        stage.redis.replicaof("NO", "ONE")
    write.call(stage)


@each_write
def test_a_full_redis(stage: Scene, write: Write) -> None:
    """What needs memory is refused whole; what does not is done."""
    set_up(stage, write)
    before = snapshot(stage.redis)
    with full(stage.redis):
        if write.needs_memory:
            with pytest.raises(RedisFull):
                write.call(stage)
            assert {} == difference(before, snapshot(stage.redis))
        else:
            write.call(stage)

"""Kill at every step: a process dies, or loses its connection, at each of its commands to Redis in turn.

An operation runs in a real process behind a proxy that counts its commands. At command n the proxy stands still,
before the command reaches Redis or when it was executed and its reply is on the way; the process is then killed. Or
only the connection is cut at that point, and the process has to cope. n runs from 1 to the last command that the
undisturbed operation sends, so a new command is walked without being written down anywhere.

Afterwards a healthy watchdog and a healthy worker go to work; then the audit must be clean and the tasks must have
ended as they should. Where somebody repeats the operation, and where it survived, its tasks must have the very
histories that they have without any fault.

Many steps are made at once, each in a database of its own.
"""

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from audit import audit, leftovers
from faults.victims import Nursery, Victim
from faults.world import OTHER_TYPE, TYPE, Act, Story, World
from ghostless.jobs.messages import Ending
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import FINAL, Event, Reason, State
from helpers import eventually, expect, is_running
from proxy import Cut, CuttingProxy

AT_ONCE = 12
"""Steps that are made at the same time; most of them wait for a lease. Redis has 16 databases."""

PATIENCE = 20.0
"""Seconds that an operation, and what follows it, may take."""

NEVER = ""
"""Instead of a state: the task was never accepted."""

ANY = "*"
"""Instead of a task's id: any other task."""

UNREACHABLE = 3
"""The exit code of a command that does not reach Redis."""

KINDS = ((False, True), (True, False), (True, True), (False, False))
"""What may befall a command: whether it is executed, and whether the process dies of it or loses its connection."""

RESTING = FINAL | {State.PAUSED}


def leave(world: World, _process: Victim) -> None:
    """Do nothing while the operation runs."""


@dataclass(frozen=True)
class Operation:
    """What a process does, and how the tasks of its world may end whatever becomes of it.

    `act` runs in the process, `prepare` before it in the test, `meddle` again and again beside it. An operation that
    `repeats` is made again by somebody when it died; then, and when it survived, `check` must find it done. One that
    `gives_up` may also end by itself, with words, when it loses its connection. Of one that `is_costly` each command
    gets only one of the four faults, in turn, unless all are asked for. Commands count from the first `counts_from`.
    """

    act: Act
    prepare: Act
    ends: Mapping[str, tuple[str, ...]]
    repeats: bool = False
    meddle: Callable[[World, Victim], None] = leave
    check: Act = field(default=lambda world: None)
    gives_up: bool = False
    is_costly: bool = False
    counts_from: bytes = b""

    @property
    def name(self) -> str:
        """The name of the operation and of its start, for reports."""
        return f"{self.act.__name__} {self.prepare.__name__}".replace("_", " ")


# One step


@dataclass
class Outcome:
    """What became of one step."""

    commands: int  # that the process sent until the cut, or in all
    stories: list[Story]
    violations: list[str]


class Walk:
    """Walks one operation after the other on one Redis."""

    def __init__(self, port: int, folder: Path, *, walks_all: bool) -> None:
        self._port, self._folder, self._walks_all = port, folder, walks_all
        self._nursery = Nursery()
        self._databases = list(range(1, AT_ONCE + 1))
        self._numbers = itertools.count()
        self.steps = 0

    def walk(self, operation: Operation) -> list[str]:
        """Let the operation die and lose its connection at each of its commands; return what was wrong."""
        undisturbed = self._make(operation, Cut())
        if undisturbed.violations or not undisturbed.commands:
            return undisturbed.violations or ["it sent no command"]
        cuts = list(self._cuts(operation, undisturbed.commands))
        self.steps += len(cuts)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = list(pool.map(lambda cut: self._make(operation, cut, undisturbed.stories), cuts))
        return [violation for outcome in outcomes for violation in outcome.violations]

    def _cuts(self, operation: Operation, commands: int) -> Iterator[Cut]:
        for number in range(1, commands + 1):
            in_turn = [KINDS[number % len(KINDS)]]
            for executed, stands_still in KINDS if self._walks_all or not operation.is_costly else in_turn:
                yield Cut(number, executed=executed, stands_still=stands_still)

    def _make(self, operation: Operation, cut: Cut, expected: list[Story] | None = None) -> Outcome:
        with self._world(operation, cut) as world:
            operation.prepare(world)
            required = set(world.states())
            proxy = CuttingProxy(self._port, cut, operation.counts_from)
            try:
                violations = self._run(operation, world, proxy)
            finally:
                proxy.close()
            is_over = proxy.was_cut.is_set() and (cut.stands_still or operation.gives_up)
            if is_over and operation.repeats:
                violations += self._run(operation, world)
            violations += _recovered(operation, world, required)
            if not is_over or operation.repeats:
                violations += _as_if_nothing_happened(operation, world, expected)
            where = f"{operation.name}, {cut} {proxy.command!r}"
            stories = world.stories()
        return Outcome(proxy.counted, stories, [f"{where}: {violation}" for violation in violations])

    @contextmanager
    def _world(self, operation: Operation, cut: Cut) -> Iterator[World]:
        number = self._databases.pop()
        folder = self._folder / f"{next(self._numbers)} {operation.name} {cut}".replace(" ", "-")
        folder.mkdir()
        url = f"redis://127.0.0.1:{self._port}/{number}"
        world = World(url, number, folder, url)
        try:
            world.client.store.redis.flushdb()
            world.publish()
            yield world
        finally:
            world.close()
            self._databases.append(number)

    def _run(self, operation: Operation, world: World, proxy: CuttingProxy | None = None) -> list[str]:
        """Let a process carry out the operation, and die if the proxy comes to stand still."""
        url = f"{proxy.url[:-2]}/{world.number}" if proxy else world.url
        victim = self._nursery.start(operation.act, replace(world, url=url))
        give_up_at = time.monotonic() + PATIENCE
        while victim.exit_code is None and time.monotonic() < give_up_at:
            if proxy and proxy.cut.stands_still and proxy.was_cut.is_set():
                return _orphans(victim.kill())
            operation.meddle(world, victim)
            time.sleep(0.01)
        if victim.exit_code is None:
            victim.kill()
            return [f"it did not end: {_last_words(world)}"]
        may_end_with = {
            0: True,
            -signal.SIGTERM: victim.was_told,  # before it could listen to signals
            UNREACHABLE: operation.gives_up,
        }
        is_well = may_end_with.get(victim.exit_code, False)
        return [] if is_well else [f"it ended with {victim.exit_code}: {_last_words(world)}"]


def _last_words(world: World) -> str:
    return (world.folder / "output").read_text()[-600:]


def _orphans(family: list[int]) -> list[str]:
    """Return which children of a killed process outlive it; a horse that hears nothing of its worker ends itself."""
    with suppress(AssertionError):
        eventually(lambda: expect(not any(map(is_running, family))))
    return leftovers(pid for pid in family if is_running(pid))


def _recovered(operation: Operation, world: World, required: set[str]) -> list[str]:
    """Let healthy processes do their work; return what is wrong then."""
    watchdog = Watchdog(world.client.store, "healthy")

    def settle() -> None:
        watchdog.sweep_all()
        _serve(world)
        states = world.states()
        assert set(states.values()) <= RESTING, states

    try:
        eventually(settle, PATIENCE)
    except AssertionError as error:
        return [f"it does not come to rest: {error}"]
    redis, keys = world.client.store.redis, world.client.store.keys
    return audit(redis, keys, required, effects=world.effects()) + list(_wrong_ends(operation, world))


def _serve(world: World) -> None:
    """Do all the work that there is, as a healthy worker does."""
    while claimed := world.begin(os.urandom(4).hex(), TYPE, OTHER_TYPE):
        ending = Ending(Event.COMPLETE, Reason.POLICY, text="1")
        world.client.store.finish(claimed.held, ending, f"worker:{world.worker}")


def _wrong_ends(operation: Operation, world: World) -> Iterator[str]:
    states = world.states()
    for task_id in states.keys() | operation.ends.keys() - {ANY}:
        state, allowed = states.get(task_id, NEVER), operation.ends.get(task_id, operation.ends.get(ANY, ()))
        if state not in allowed:
            yield f"{task_id} ended {state or 'before it was accepted'}, not {allowed}"


def _as_if_nothing_happened(operation: Operation, world: World, expected: list[Story] | None) -> Iterator[str]:
    try:
        operation.check(world)
    except AssertionError as error:
        yield f"it was not carried out: {error}"
    stories = world.stories()
    if expected is not None and stories != expected:
        yield f"the histories are {stories}, not {expected}"

"""Kill at every step: a process dies, or loses its connection, at each of its commands to Redis in turn.

An operation runs in a real process behind a proxy that counts its commands. At command n the proxy stands still,
before the command reaches Redis or when it was executed and its reply is on the way; the process is then killed. Or
only the connection is cut at that point, and the process has to cope. n runs from 1 to the last command that the
undisturbed operation sends, so a new command is walked without being written down anywhere.

Afterwards a healthy watchdog and a healthy worker go to work; then the audit must be clean and the tasks must have
ended as they should. Where somebody repeats the operation, and where it survived, its tasks must have the very
histories that they have without any fault.

The processes are forked from one that has imported everything, and many steps are made at once, each in a database
of its own.
"""

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
from audit import audit, leftovers
from faults import step_tasks  # noqa: F401
from fleet import QUICK
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.messages import Claim, Claimed, Ending
from ghostless.jobs.model import Task
from ghostless.jobs.registry import registry
from ghostless.jobs.settings import Settings
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import FINAL, Event, Reason, State
from helpers import die_with_the_tests, eventually, expect, is_running
from proxy import Cut, CuttingProxy

CLOCKS = {**QUICK, "GHOSTLESS_LEASE": "1.0", "GHOSTLESS_BEAT": "0.2"}
"""Short clocks: a dead worker's task is taken away after a second."""

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

TYPE, OTHER_TYPE, QUEUE = "step.work", "step.other", "default"
KINDS = ((False, True), (True, False), (True, True), (False, False))
"""What may befall a command: whether it is executed, and whether the process dies of it or loses its connection."""

RESTING = FINAL | {State.PAUSED}
Story = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class World:
    """One database, and a folder for what its processes write."""

    url: str
    number: int  # of the database
    folder: Path

    @property
    def worker(self) -> str:
        """A worker's name; those of other databases are seen too."""
        return f"w{self.number}"

    @property
    def environment(self) -> dict[str, str]:
        """The settings of a process in this world."""
        return {
            **CLOCKS,
            "GHOSTLESS_REDIS_URL": self.url,
            "TMPDIR": str(self.folder),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }

    @cached_property
    def client(self) -> Client:
        """The core."""
        return Client(Settings.from_environment(self.environment))

    def publish(self) -> None:
        """Make the task types known."""
        kind = registry.get(TYPE)
        assert kind
        self.client.store.publish_types({TYPE: kind.published()})

    def submit(self, task_id: str, failures: int = 0, seconds: float = 0.0, **wishes: Any) -> None:
        """Submit a task of the walks."""
        params = {"trace": str(self.folder), "failures": failures, "seconds": seconds}
        self.client.submit(TYPE, params, id=task_id, **wishes)

    def claim(self, token: str, *types: str) -> Claim:
        """Return a claim of this world's worker."""
        return Claim(self.worker, (QUEUE,), token, types or (TYPE,))

    def begin(self, token: str, *types: str) -> Claimed | None:
        """Start the next task, and do what it is there for; None when there is none."""
        reply = self.client.store.claim(self.claim(token, *types))
        if not isinstance(reply, Claimed):
            return None
        self.note(reply)
        return reply

    def note(self, claimed: Claimed) -> None:
        """Let the side effect of an attempt happen, as the handler does."""
        with (self.folder / claimed.held.task_id).open("a") as file:
            file.write(f"{claimed.held.attempt}\n")

    def effects(self) -> dict[str, list[int]]:
        """Return the attempts in which each task's side effect happened."""
        found = {path.name: path.read_text().split() for path in self.folder.glob("t[0-9]*")}
        return {task_id: [int(attempt) for attempt in attempts] for task_id, attempts in found.items()}

    def states(self) -> dict[str, State]:
        """Return the state of each task by its id."""
        tasks = self.client.list(limit=100).tasks
        return {task.id: task.state for task in tasks if isinstance(task, Task)}

    def stories(self) -> list[Story]:
        """Return the events of each task, with their attempts, in no order of the tasks."""
        return sorted(
            tuple((str(entry.event), entry.attempt) for entry in self.client.history(task_id))
            for task_id in self.states()
        )

    def close(self) -> None:
        """Close the connections."""
        self.client.store.redis.close()


Act = Callable[[World], None]


def leave(world: World, _process: "Victim") -> None:
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
    meddle: "Callable[[World, Victim], None]" = leave
    check: Act = field(default=lambda world: None)
    gives_up: bool = False
    is_costly: bool = False
    counts_from: bytes = b""

    @property
    def name(self) -> str:
        """The name of the operation and of its start, for reports."""
        return f"{self.act.__name__} {self.prepare.__name__}".replace("_", " ")


# The process that dies


def _live(act: Act, world: World) -> None:
    die_with_the_tests()
    os.environ.update(world.environment)
    output = os.open(world.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    act(world)


def command_line(*arguments: str) -> None:
    """Run `ghostless` in this process; leaves it by SystemExit unless all went well."""
    main(list(arguments))


class Nursery:
    """Forks processes that have everything imported already. Its own methods are for one thread at a time."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["faults.step_operations"])
        self._one_at_a_time = threading.Lock()

    def start(self, act: Act, world: World) -> "Victim":
        """Start a process in which `act` runs."""
        process = self._context.Process(target=_live, args=(act, world))
        with self._one_at_a_time:
            process.start()
        return Victim(process, self._one_at_a_time)


class Victim:
    """A process that is to die."""

    def __init__(self, process: Any, one_at_a_time: threading.Lock) -> None:
        self._process, self._one_at_a_time = process, one_at_a_time
        self.was_told = False

    @property
    def exit_code(self) -> int | None:
        """None while it runs. multiprocessing looks at all of its processes here: one thread at a time."""
        with self._one_at_a_time:
            return self._process.exitcode

    def tell_to_stop(self) -> None:
        """Send SIGTERM, once."""
        if not self.was_told:
            self.was_told = True
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)

    def kill(self) -> list[int]:
        """Send SIGKILL; return the processes that it had started."""
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            family = [child.pid for child in psutil.Process(self._process.pid).children(recursive=True)]
            os.kill(self._process.pid, signal.SIGKILL)
            return family
        return []


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
        if undisturbed.violations:
            return undisturbed.violations
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
        world = World(f"redis://127.0.0.1:{self._port}/{number}", number, folder)
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
        accepted = (0, -signal.SIGTERM, UNREACHABLE if operation.gives_up else 0)
        return [] if victim.exit_code in accepted else [f"it ended with {victim.exit_code}: {_last_words(world)}"]


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
    redis, keys, states = world.client.store.redis, world.client.store.keys, world.states()
    effects = {task_id: attempts for task_id, attempts in world.effects().items() if task_id in states}  # not purged
    return audit(redis, keys, required, effects=effects) + list(_wrong_ends(operation, world))


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

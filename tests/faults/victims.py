"""Processes that are to die: forked from one that has imported everything, since there are many of them."""

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from typing import Any

import psutil
from faults.world import Act, World
from ghostless.jobs.cli import main
from helpers import die_with_the_tests


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
        self._context.set_forkserver_preload(
            [f"faults.step_{part}" for part in ("chores", "keepers", "operations", "rest")]
        )
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

"""Keeps one warm horse for a worker, and knows when it needs another one and what that one can run."""

import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from ..statemachine import Event, Policy, Reason
from .breaker import Breaker
from .diary import Diary
from .horse_process import Horse, HorseBroken, SetupFailure
from .installed import task_modules
from .launch import Process, spawn
from .messages import Ending
from .publishing import publish
from .store import Store
from .zygote_process import ZygoteProcess

log = logging.getLogger("rq.worker.ghostless")

SETUP_FAILED = (Event.FAIL, Event.TIMEOUT)
"""Endings that are a setup's own fault; a cancel or a shutdown in its middle is not."""


class Stable:
    """Keeps one horse for a worker; makes a new one when it died, or when its time is over between two tasks."""

    def __init__(
        self, store: Store, diary: Diary, give_up: Callable[[], bool], on_line: Callable[[TextIO, str], None]
    ) -> None:
        self._store, self._diary, self._give_up, self._on_line = store, diary, give_up, on_line
        self._settings = store.settings
        self._types: Mapping[str, Mapping[str, Any]] = {}
        self._breaker = Breaker()
        self._tasks = 0  # that the horse has run
        self._outworn = ""  # why the horse is to run no further task
        self._is_published = False
        self._zygote: ZygoteProcess | None = None
        self._disowned: set[str] = set()  # named by a horse when it loaded, and not known to it later
        self.horse: Horse | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there is a horse that can be given a task."""
        return self.horse is not None and self.horse.alive and not self._outworn

    @property
    def served(self) -> tuple[str, ...]:
        """The task types that can run here now."""
        return tuple(sorted(self._types.keys() - self.set_aside.keys() - self._disowned))

    @property
    def set_aside(self) -> Mapping[str, str]:
        """The task types that are not run here for a while, since their setup fails again and again, and why."""
        return self._breaker.set_aside

    def fresh_horse(self) -> None:
        """Start a horse in place of the one before, which runs its teardown if it lives. Raises HorseBroken."""
        self._start()
        if self._settings.preload:
            self._preload()

    def review(self, task_type: str, ending: Ending | None) -> None:
        """After a task: judge the setup of its type, and whether the horse may run another one."""
        horse = self.horse
        if horse is None:
            return
        self._tasks += 1
        if ending and ending.reason is Reason.UNKNOWN_TYPE:
            self._disowned.add(task_type)
        if task_type in horse.set_up:
            self._breaker.passed(task_type)
        elif horse.setting_up == task_type and ending and ending.event in SETUP_FAILED:
            self._note_failure(task_type, ending.message)
        self._outworn = self._why_outworn(horse)

    def publish(self) -> None:
        """Publish the task types that the horse serves. Raises GhostlessError."""
        publish(self._store, self._types)
        self._is_published = True

    def publish_if_lost(self) -> None:
        """Publish the types again after Redis lost them. Raises GhostlessError."""
        if self._is_published and not self._store.are_published(self._types):
            self.publish()

    def let_go(self) -> None:
        """In a fork of the worker: close what ties the horse to it."""
        for process in (self.horse, self._zygote):
            if process:
                process.let_go()

    def retire(self, patience: float) -> None:
        """Let the horse run its teardown for at most `patience` seconds, then make sure it is gone."""
        if self.horse:
            self.horse.retire(patience)
        if self._zygote:
            self._zygote.kill()

    def kill(self) -> None:
        """Make sure that no horse is left, also not as a zombie."""
        if self.horse:
            self.horse.kill()

    # A horse's time

    def _start(self) -> None:
        self._part_with_horse()
        modules = task_modules(self._settings)
        horse = Horse(modules, self._settings.artifacts, self._on_line, self._launch)
        try:
            is_ready = horse.wait_until_ready(self._give_up)
        except HorseBroken as error:
            self._diary.note("horse not started", error.summary, logging.ERROR)
            raise
        self.horse = horse
        if not is_ready:
            horse.kill()
        else:
            self._types, self._disowned = horse.types, set()
            self._diary.note("horse started", f"process {horse.pid}")
            if not horse.types:
                log.warning("the modules %s have no handlers: no task can run here", ", ".join(modules) or "(none)")

    def _launch(self, theirs: socket.socket) -> tuple[Process, int]:
        if self._settings.horse == "spawn":
            return spawn(theirs)
        if self._zygote and not self._zygote.alive:
            self._zygote.kill()  # closes what is left of it
            self._zygote = None
        if self._zygote is None:
            self._zygote = ZygoteProcess(task_modules(self._settings), self._on_line)
        return self._zygote.launch(theirs, self._give_up)

    def _part_with_horse(self) -> None:
        horse = self.horse
        if horse and horse.alive:
            horse.retire(self._settings.grace)
            self._diary.note("horse replaced", f"process {horse.pid}: {self._outworn}")
        elif horse:
            self._diary.note("horse died", f"process {horse.pid}: {horse.cause_of_death()}", logging.WARNING)
        self.horse, self._tasks, self._outworn = None, 0, ""

    def _why_outworn(self, horse: Horse) -> str:
        most_tasks, most_rss = self._settings.max_tasks_per_horse, self._settings.max_horse_rss
        if horse.setting_up:
            return f"the setup of {horse.setting_up} did not run to its end, and may have left something behind"
        if horse.retires:
            return horse.retires
        if most_tasks and self._tasks >= most_tasks:
            return f"it ran {self._tasks} tasks (--max-tasks-per-horse)"
        if most_rss and (rss := horse.rss) > most_rss:
            return f"it held {rss >> 20} MiB of memory after {self._tasks} tasks (--max-horse-rss)"
        return ""

    # Setups

    def _preload(self) -> None:
        """Run every setup; a horse in which one failed is replaced by one that leaves it out."""
        failures: dict[str, SetupFailure] = {}
        while failed := self._first_failure():
            name, failure = failed
            failures[name] = failure
            self._note_failure(name, f"setup of {name} failed: {failure.why}", at_once=True)
            self._outworn = f"the setup of {name} failed"
            self._start()
        if failures and not self.served:
            details = (f"setup of {name} failed: {failure.why}\n{failure.detail}" for name, failure in failures.items())
            raise HorseBroken(f"the setup of each task type failed: {', '.join(failures)}", "\n".join(details))

    def _first_failure(self) -> tuple[str, SetupFailure] | None:
        for name in self.served:
            if self.horse is None or self._give_up():
                break
            patience = Policy.unpack(self._types[name]["policy"]).timeout / 1000
            if failure := self.horse.preload(name, patience, self._give_up):
                return name, failure
        return None

    def _note_failure(self, name: str, why: str, *, at_once: bool = False) -> None:
        pause = self._breaker.failed(name, why, at_once=at_once)
        if pause:
            text = f"{name} for {pause:g} s, no such task is claimed until then: {why}"
            self._diary.note("type set aside", text, logging.ERROR)

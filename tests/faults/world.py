"""A database of one step, and what its processes have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from faults import step_tasks  # noqa: F401  registers the task type
from fleet import QUICK
from ghostless.jobs.client import Client
from ghostless.jobs.messages import Claim, Claimed
from ghostless.jobs.model import Task
from ghostless.jobs.registry import registry
from ghostless.jobs.settings import Settings
from ghostless.statemachine import State

CLOCKS = {**QUICK, "GHOSTLESS_LEASE": "1.0", "GHOSTLESS_GRACE": "0.5"}
"""Short clocks: a dead worker's task is taken away after a second. One that stops tries for 1.5 s to tell the end."""

TYPE, OTHER_TYPE, QUEUE = "step.work", "step.other", "default"

Story = tuple[tuple[str, int], ...]
"""The events of a task, each with its attempt."""


@dataclass(frozen=True)
class World:
    """One database, and a folder for what its processes write."""

    url: str
    number: int  # of the database
    folder: Path
    straight_url: str  # past any proxy

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
        self.note_attempt(claimed.held.task_id, claimed.held.attempt)

    def note_attempt(self, task_id: str, attempt: int) -> None:
        """Let the side effect of an attempt happen that was claimed in another way."""
        with (self.folder / task_id).open("a") as file:
            file.write(f"{attempt}\n")

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

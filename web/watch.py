"""What one client listens to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

TASKS_LIMIT = 50
"""Tasks that one stream may name; beyond that there are owner, type and queue."""


class Subject(Protocol):
    """Something that happened to a task."""

    @property
    def task(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def owner(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Watch:
    """Which tasks a client wants to hear of; what is not given does not restrict."""

    tasks: frozenset[str] = frozenset()
    owner: str | None = None
    type: str | None = None
    queue: str | None = None
    live: bool = True  # also progress and log lines

    def accepts(self, subject: Subject) -> bool:
        """Tell whether this is one of the tasks."""
        return self.fits(subject.task, subject.owner, subject.type, subject.queue)

    def fits(self, task: str, owner: str, type: str, queue: str) -> bool:
        """Tell whether a task with this id, owner ("" for none), type and queue is one of them."""
        if self.tasks and task not in self.tasks:
            return False
        wanted = ((self.owner, owner), (self.type, type), (self.queue, queue))
        return all(value is None or value == actual for value, actual in wanted)

    def places(self) -> list[tuple[str, str]]:
        """Return where to look this watch up: one kind of place, the narrowest, so that no event finds it twice."""
        if self.tasks:
            return [("task", task) for task in self.tasks]
        for kind, value in (("owner", self.owner), ("queue", self.queue), ("type", self.type)):
            if value is not None:
                return [(kind, value)]
        return [("all", "")]


def places_of(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield every place in which a watch for this may stand."""
    yield "task", subject.task
    yield "owner", subject.owner
    yield "queue", subject.queue
    yield "type", subject.type
    yield "all", ""

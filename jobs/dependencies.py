"""What a BLOCKED task waits for: looked up, and told in sentences."""

from dataclasses import dataclass

from .model import Task
from .reads import Damaged, Reads
from .spans import duration

NAMED = 5
"""Tasks that a sentence names."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """The tasks that one still waits for: how many, and some of them."""

    number: int = 0
    some: tuple[Task | Damaged, ...] = ()

    @classmethod
    def look_up(cls, reads: Reads, task_id: str) -> "Awaited":
        """Read what a task waits for now. Raises RedisUnavailable."""
        ids = reads.unmet(task_id)
        return cls(len(ids), tuple(reads.tasks(ids[:NAMED])) if ids else ())

    def why(self, task: Task, now: int) -> str:
        """Say what the task waits for, in one sentence. `now` is ms since 1970."""
        if not self.number:
            return f"the tasks that it depends on ({task.dependencies}) ended in SUCCESS, and its time has not come"
        more = f" and {self.number - len(self.some)} more" if self.number > len(self.some) else ""
        named = ", ".join(_standing(other, now) for other in self.some)
        return f"it waits for {self.number} of the {task.dependencies} tasks that it depends on: {named}{more}"

    def upcoming(self, task: Task, unwatched: str) -> tuple[str, int | None]:
        """Say what happens next, and when that is known; `unwatched` says what lacks for a step of the watchdog."""
        if any(isinstance(other, Damaged) for other in self.some):
            return f"the watchdog looks at them, and cancels it when one is gone{unwatched}", None
        if not self.number:
            return f"it goes to its queue{unwatched}", task.due_at
        time = "" if task.due_at is None else ", but not before its time"
        return f"the last of them to end in SUCCESS releases it{time}; the first to end otherwise cancels it", None

    @property
    def evidence(self) -> tuple[str, ...]:
        """Where to look further."""
        return tuple(f"`ghostless explain {other.id}`" for other in self.some if isinstance(other, Task))


def _standing(task: Task | Damaged, now: int) -> str:
    if isinstance(task, Damaged):
        return f"{task.id}, which cannot be read ({task.detail})"
    return f"{task.id}, which is {task.state} for {duration(now - task.entered_at)}"

"""What a schedule is to do, in plain Python; which of its runs are due, and which were missed, says who uses it."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Plan:
    """One schedule."""

    type: str
    queue: str
    misfire: str
    overlap: str
    is_paused: bool = False
    missed: int | None = None  # runs for which nobody was there, before one that is due just now; None: none is due
    last_task: str | None = None
    left_out: int = 0

    @property
    def is_due(self) -> bool:
        """Whether a scheduler is to do something about it."""
        return self.missed is not None and not self.is_paused

    def change(self, other: "Plan") -> bool:
        """It is registered again: what it submits may change, its due time does not. Tell whether anything changed."""
        wanted = (other.type, other.queue, other.misfire, other.overlap)
        changed = wanted != (self.type, self.queue, self.misfire, self.overlap)
        self.type, self.queue, self.misfire, self.overlap = wanted
        return changed

    def pause(self) -> bool:
        """Nothing runs any more; tell whether that is new."""
        was_paused, self.is_paused = self.is_paused, True
        return not was_paused

    def resume(self) -> bool:
        """It goes on with the next run that is to come: what was due meanwhile is over."""
        was_paused, self.is_paused = self.is_paused, False
        self.missed = None if was_paused else self.missed
        return was_paused

    def run(self, unfinished: set[str], new_ids: Iterator[str]) -> Iterator[str]:
        """Yield the ids of the tasks that it submits; with the last one not over, one that must not overlap waits."""
        missed = {"skip": 0, "once": min(self.missed or 0, 1), "all": self.missed or 0}[self.misfire]
        for _ in range(missed + 1):
            if self.overlap == "skip" and self.last_task in unfinished:
                self.left_out += 1
                continue
            self.last_task = next(new_ids)
            unfinished.add(self.last_task)
            yield self.last_task
        self.missed = None

"""What a group of listeners is handed, and how far callbacks are, in plain Python."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from faults.model import Model


@dataclass
class Holding:
    """One entry that was handed out and not done with."""

    task_id: str
    consumer: str  # "" once its consumer gave it back
    begun: int = 0  # how often its handler was begun


@dataclass
class Group:
    """One group: the entries that it wants, as events and as states in which tasks come to rest."""

    wanted: frozenset[str]
    is_of_callbacks: bool = False
    read: dict[str, int] = field(default_factory=dict)  # task -> how many of its entries were looked at
    held: dict[str, Holding] = field(default_factory=dict)  # entry id -> who has it
    gone: set[str] = field(default_factory=set)  # entries that were handed out, whose tasks were purged
    missed: int = 0
    parked: dict[str, str] = field(default_factory=dict)  # entry id -> its task, of what could not be handled

    def begin(self, tasks: Iterable[Model]) -> None:
        """Begin behind all that there is."""
        self.read = {task.id: len(task.entries) for task in tasks}

    def to_come(self, tasks: Iterable[Model]) -> dict[str, list[tuple[str, str, str, int]]]:
        """Return what is new, by task in the order in which it came, and count it as looked at."""
        found = {task.id: list(self._new_of(task)) for task in tasks}
        return {task_id: entries for task_id, entries in found.items() if entries}

    def _new_of(self, task: Model) -> Iterator[tuple[str, str, str, int]]:
        first, self.read[task.id] = self.read.get(task.id, 0), len(task.entries)
        if self.is_of_callbacks and not task.has_callback:
            return
        yield from (task.entries[n] for n in range(first, len(task.entries)) if task.tells(n, self.wanted))

    def of(self, consumer: str) -> list[str]:
        """Return the entries that a consumer holds; "" for nobody."""
        return [entry_id for entry_id, holding in self.held.items() if holding.consumer == consumer]

    def forget(self, task: Model) -> None:
        """A task was purged: what was not looked at is missed; so is, once it is looked for, what was given back."""
        self.missed += len(task.entries) - self.read.pop(task.id, 0)
        self.gone |= {entry_id for entry_id, holding in self.held.items() if holding.task_id == task.id}

    def claim(self, entry_ids: Iterable[str], consumer: str) -> None:
        """A consumer keeps what it holds, or gives it back; what is gone by then it holds no more."""
        for entry_id in entry_ids:
            if entry_id in self.gone:
                self.drop(entry_id)
            else:
                self.held[entry_id].consumer = consumer

    def park(self, entry_id: str) -> None:
        """Its handler could not handle it: it is set aside."""
        self.parked[entry_id] = self.held[entry_id].task_id
        self.drop(entry_id)

    def replay(self, tasks: Collection[str]) -> tuple[set[str], set[str]]:
        """Whoever asks next gets what is parked, but for what is gone; return the ids of both."""
        again = {entry_id for entry_id, task_id in self.parked.items() if task_id in tasks}
        for entry_id in again:
            self.held[entry_id] = Holding(self.parked.pop(entry_id), "")
        return again, set(self.parked)

    def drop(self, entry_id: str) -> None:
        """Nobody holds it any more."""
        del self.held[entry_id]
        self.gone.discard(entry_id)

    def miss(self) -> None:
        """Whoever listens finds out what is gone of what was given back."""
        for entry_id in self.gone & set(self.of("")):
            self.drop(entry_id)
            self.missed += 1


@dataclass
class Told:
    """The delivery of one end to its callback."""

    state: str = "waiting"
    is_due: bool = True  # else it is under way, or its time is still to come
    is_taken: bool = False
    version: int = 0  # of its record: whoever took an earlier one comes too late

    def tried(self, version: int, state: str) -> bool:
        """Somebody who took it tells how it went; tell whether he is heard."""
        if version != self.version:
            return False
        self.state, self.is_due, self.is_taken, self.version = state, False, False, version + 1
        return True

    def anew(self) -> None:
        """Somebody asks for it again: one that is due, or under way, is left alone."""
        if not self.is_due and not self.is_taken:
            self.state, self.is_due, self.version = "waiting", True, self.version + 1


def due(deliveries: Mapping[tuple[str, str], Told]) -> set[tuple[str, str]]:
    """Return those that are to be tried now."""
    return {name for name, told in deliveries.items() if told.is_due}

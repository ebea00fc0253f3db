"""The archivist: writes each task whose retention is over to an archive, and only then lets it be purged.

Any number may run at once. What one archived goes only if nothing happened to it since, so a kill at any moment leaves
a task archived twice at worst.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .archive_file import ArchiveFile
from .messages import Archived, Swept
from .store import BATCH, Store
from .watchdog import Watchdog
from .whole import outdated, read_wholes

AT_ONCE = 10
"""Tasks that are read in one round trip, each of which may have some MiB."""

ENOUGH = 4 * 2**20
"""Characters after which no further tasks are added to a batch."""


class Archivist(Watchdog):
    """A watchdog with this one duty, for a thread of its own: a disk may hang, and the others must go on."""

    def __init__(self, store: Store, folder: Path, name: str | None = None) -> None:
        super().__init__(store, name)
        self._file = ArchiveFile(folder)

    def _duties(self) -> tuple[Callable[[], Swept], ...]:
        return (self.archive,)

    def archive(self) -> Swept:
        """Archive and purge tasks whose retention is over, at most a batch. Raises ArchiveUnusable."""
        self.store.demand_archive()
        now, due = outdated(self.reads, BATCH)
        if not due:
            return self.store.purge()  # which goes on with long histories
        batch = self._read(due, now)
        file = self._file.append(batch.lines, now) if batch.lines else ""
        swept = self.store.purge(Archived(file, batch.proofs))
        looked_at = BATCH if len(batch.proofs) < len(due) else swept.looked_at
        return Swept(looked_at, swept.moved, (*swept.problems, *batch.problems))

    def _read(self, due: Sequence[str], now: int) -> "_Batch":
        batch = _Batch()
        for start in range(0, len(due), AT_ONCE):
            ids = due[start : start + AT_ONCE]
            wholes, problems = read_wholes(self.reads, ids)
            batch.lines += [whole.to_line(now) for whole in wholes]
            batch.proofs |= dict.fromkeys(ids, "") | {whole.id: whole.last_entry for whole in wholes}
            batch.problems += problems
            if sum(map(len, batch.lines)) > ENOUGH:
                break
        return batch


@dataclass(slots=True)
class _Batch:
    """What is archived together: a line a task, and every task that was looked at with its last entry, "" if unread."""

    lines: list[str] = field(default_factory=list[str])
    proofs: dict[str, str] = field(default_factory=dict[str, str])
    problems: list[str] = field(default_factory=list[str])

"""The archivist: writes each task whose retention is over to an archive, and only then lets it be purged.

Any number may run at once. What one archived goes only if nothing happened to it since, so a kill at any moment leaves
a task archived twice at worst.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..lua import BATCH
from .archive_file import ArchiveFile
from .connection import connect
from .messages import Archived, Swept
from .settings import Settings
from .store import Store
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
        self._unpurged: _Batch | None = None

    def _duties(self) -> tuple[Callable[[], Swept], ...]:
        return (self.archive,)

    def check_folder(self) -> None:
        """Look whether the folder is there. Raises ArchiveUnusable."""
        self._file.check()

    def archive(self) -> Swept:
        """Archive and purge tasks whose retention is over, at most a batch. Raises ArchiveUnusable."""
        self.store.demand_archive()
        # A batch that Redis did not purge, for whatever reason, is not written again and again.
        batch = self._unpurged or self._write()
        if not batch:
            return self.store.purge()  # which goes on with long histories
        self._unpurged = batch
        swept = self.store.purge(Archived(batch.file, batch.proofs))
        self._unpurged = None
        return Swept(BATCH if batch.is_cut else swept.looked_at, swept.moved, (*swept.problems, *batch.problems))

    def _write(self) -> "_Batch | None":
        now, due = outdated(self.reads, BATCH)
        batch = self._read(due, now)
        if batch.lines:
            batch.file = self._file.append(batch.lines, now)
            batch.lines = []
        return batch if due else None

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
        batch.is_cut = len(batch.proofs) < len(due)
        return batch


@dataclass(slots=True)
class _Batch:
    """What is archived together: a line a task, and every task that was looked at with its last entry, "" if unread."""

    lines: list[str] = field(default_factory=list[str])
    proofs: dict[str, str] = field(default_factory=dict[str, str])
    problems: list[str] = field(default_factory=list[str])
    file: str = ""
    is_cut: bool = False  # before the last task that was due


def start_archivist(settings: Settings, stop: threading.Event) -> None:
    """Archive to `settings.archive_to`, in a thread of its own, until `stop` is set."""
    archivist = Archivist(Store(connect(settings), settings), Path(settings.archive_to))
    threading.Thread(target=archivist.run, args=(stop,), name="archivist", daemon=True).start()

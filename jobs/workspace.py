"""Temporary folders of attempts, which vanish even when their worker is killed."""

import fcntl
import os
import shutil
import tempfile
import time
from itertools import count
from pathlib import Path

_NEW, _OWNED, _LOCK = "new-", "worker-", "lock"

ABANDONED_AFTER = 3600
"""Seconds after which a folder that never got its lock is nobody's."""


class Workspace:
    """A worker's own temporary folder. A lock held on it tells other workers that its owner is alive."""

    def __init__(self) -> None:
        self._parent = _shared_folder()
        self._numbers = count()  # of folders: what could not be removed is in nobody's way
        self.path, self._lock = self._made()
        self.remove_orphans()

    def _made(self) -> tuple[Path, int]:
        made = Path(tempfile.mkdtemp(prefix=_NEW, dir=self._parent))
        lock = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Only a locked folder gets the name under which others look for orphans.
        return made.rename(self._parent / (_OWNED + made.name.removeprefix(_NEW))), lock

    def folder_for(self, task_id: str, attempt: int) -> str:
        """Return where the folder of one attempt is to be, should it want one; nothing is there yet.

        The workspace is made anew when a cleaner removed it.
        """
        if not os.fstat(self._lock).st_nlink:
            self._parent = _shared_folder()
            (self.path, self._lock), former = self._made(), self._lock
            os.close(former)
        return f"{self.path}/{task_id}-{attempt}-{next(self._numbers)}"

    def remove_orphans(self) -> None:
        """Remove the folders of workers of this user that were killed."""
        for folder in self._parent.glob("*"):
            if folder != self.path and _is_orphan(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _shared_folder() -> Path:
    """Return the folder of all workers of this user. Raises PermissionError when somebody else made it."""
    folder = Path(tempfile.gettempdir()) / f"ghostless-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user; remove it or set TMPDIR")
    return folder


def _is_orphan(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        return _is_old(folder)  # being made or removed right now, unless somebody was killed doing so
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return folder.name.startswith(_OWNED) or _is_old(folder)


def _is_old(folder: Path) -> bool:
    try:
        return time.time() - folder.stat().st_mtime > ABANDONED_AFTER
    except OSError:
        return False

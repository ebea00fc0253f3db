"""Holding a folder, so that two supervisors, or two servers, never share its data."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from .lazy import Failed


class Hold:
    """A folder that is held; its lock file names the processes that use it."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    @property
    def descriptor(self) -> int:
        """What a child inherits to hold the folder as long as it lives."""
        return self._file.fileno()

    def note(self, pid: int) -> None:
        """Add a process to those that are named to whoever is refused."""
        self._file.write(f"{pid}\n")
        self._file.flush()


@contextmanager
def only_one_in(folder: Path) -> Generator[Hold]:
    """Hold a folder while the block runs. Raises Failed when another process holds it."""
    with _lock_file(folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = next(filter(_is_there, file.read().split()), "?")
            raise Failed(f"process {holder} runs in {folder.resolve()} already; stop it first") from error
        file.truncate(0)
        hold = Hold(file)
        hold.note(os.getpid())
        yield hold


def _lock_file(folder: Path) -> TextIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / "lock").open("a+")
    except OSError as error:
        raise Failed(f"{folder.resolve()} cannot be written to: {error.strerror}; go to a folder of yours") from error


def _is_there(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # there, and of another user
    return True

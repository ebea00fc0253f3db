"""The files of an archive: JSON lines in gzip, written so that what was said to be there is there after a crash.

A process has a file of its own, a new one each day, so that no two write to the same. Each batch is one gzip member at
its end: a crash can tear only the last one, whose tasks were not purged yet, and gzip reads all those before it.
"""

import gzip
import json
import os
import re
import secrets
import socket
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from .errors import ArchiveUnusable, NotArchived

ENDING = ".jsonl.gz"


class ArchiveFile:
    """Where one process archives to. It makes no folder: one that is missing may be a disk that is not mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path: Path | None = None

    def check(self) -> None:
        """Look whether the folder can be read. Raises ArchiveUnusable."""
        try:
            os.scandir(self.folder).close()
        except OSError as error:
            raise ArchiveUnusable(str(self.folder), error) from error

    def append(self, lines: Sequence[str], now: int) -> str:
        """Write a batch durably at the time `now` (ms) and return the name of the file. Raises ArchiveUnusable.

        After an error nothing may be purged, although a part of the batch may stand in the file.
        """
        member = gzip.compress("".join(f"{line}\n" for line in lines).encode())
        try:
            path = self._path_of(f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d}")
            _append(path, member)
        except OSError as error:
            self._path = None  # its end may be torn
            raise ArchiveUnusable(str(self.folder), error) from error
        return path.name

    def _path_of(self, day: str) -> Path:
        # It may have been moved away since: then the next name is a new one too, and overwrites nothing there.
        if self._path is None or not self._path.name.startswith(day) or not self._path.exists():
            host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:16]
            self._path = self.folder / f"{day}-{host}-{secrets.token_hex(3)}{ENDING}"
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))
            _sync(self.folder)
        return self._path


def _append(path: Path, member: bytes) -> None:
    with path.open("r+b", buffering=0) as file:  # which creates none
        whole = file.seek(0, os.SEEK_END)
        try:
            left = memoryview(member)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(whole)
                if not whole:
                    path.unlink()
            raise


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_archived(folder: Path, task_id: str) -> dict[str, Any]:
    """Return what was archived of a task last. Raises NotArchived."""
    files = sorted(folder.glob(f"*{ENDING}"), reverse=True)
    # Of one day the names tell no order: each process that archived has a file of its own.
    for _, of_one_day in groupby(files, key=lambda path: path.name.partition("-")[0]):
        lines = (line for path in of_one_day for line in _lines(path))
        found = [json.loads(line) for line in lines if line.startswith(f'{{"id": "{task_id}",')]
        if found:
            return max(reversed(found), key=itemgetter("archived_at"))
    raise NotArchived(task_id, str(folder))


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, up to where a crash tore it."""
    with suppress(EOFError, gzip.BadGzipFile, zlib.error), gzip.open(path, "rt", encoding="utf-8") as file:
        yield from file

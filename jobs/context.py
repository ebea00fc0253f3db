"""What a handler gets as its first argument: who it is, and how it reports, saves and stops."""

import hashlib
import math
import os
import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, SupportsFloat, TypedDict

from ..lua import RESULTS_LIMIT
from .attempt import Attempt
from .errors import TooLarge
from .names import FILE_NAME, FILE_NAME_LIMIT
from .values import InvalidValue, cut, is_text, shown, to_json, type_name

PROGRESS_INTERVAL: Final = 0.1
"""Seconds between two reports of progress that are sent; those between are dropped."""

MESSAGE_LIMIT: Final = 64
LINE_LIMIT: Final = 2048
STAGE_LIMIT: Final = 64
WHY_LIMIT: Final = 200

_CHUNK: Final = 1024 * 1024


class Artifact(TypedDict):
    """A kept file: its name, its size in bytes, and the SHA-256 of its content in hex."""

    name: str
    size: int
    sha256: str


class Context:
    """One attempt as its handler sees it.

    `progress`, `check` and `checkpoint` raise TaskStopped once the attempt was asked to stop (cancel, pause,
    timeout, stall, shutdown); clean up and let it pass. For a pause and a shutdown, a handler that saved a checkpoint
    before is first given the grace to reach its next one. Every call that reports raises StaleAttempt when a thread
    makes it after the handler has ended.
    """

    task_id: str
    attempt: int
    """Number of this attempt, from 1."""
    model: Any
    """What the `setup` of the task type returned."""
    resumed_from: Any
    """The last checkpoint of an earlier attempt; None when there is none."""

    def __init__(
        self,
        attempt: Attempt,
        *,
        model: Any,
        resumed_from: Any,
        tmpdir: str,
        artifacts: Path,
        results: Mapping[str, Any] | int,
    ) -> None:
        self.task_id, self.attempt = attempt.task_id, attempt.number
        self.model, self.resumed_from, self._tmpdir = model, resumed_from, tmpdir
        self._attempt = attempt
        self._artifacts = artifacts
        self._results = results  # how many bytes they are when that is too much
        self._last_fraction = -1.0
        self._next_report = -math.inf

    @property
    def tmpdir(self) -> Path:
        """An empty folder of this attempt, made when it is first asked for, and removed when the attempt ends."""
        folder = Path(self._tmpdir)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    @property
    def results(self) -> Mapping[str, Any]:
        """What the tasks that this one depends on returned: id -> result, in the order of the submit.

        A task whose retention ended is left out. Raises TooLarge when they are more than 1 MiB together.
        """
        if isinstance(self._results, int):
            raise TooLarge("what the tasks that it depends on returned", self._results, RESULTS_LIMIT)
        return self._results

    def progress(self, fraction: float, message: str = "") -> None:
        """Report how far the work is, from 0 to 1, with a message of which 64 bytes are kept.

        At most ten reports a second are sent; the first of all, the first of a stage, and 1 always are.
        Raises InvalidValue, or TaskStopped.
        """
        done = _fraction(fraction)
        self._attempt.check()
        now = time.monotonic()
        is_last = done == 1.0 and self._last_fraction != 1.0
        if is_last or now >= self._next_report:
            self._attempt.send("progress", fraction=done, message=cut(str(message), MESSAGE_LIMIT))
            self._last_fraction, self._next_report = done, now + PROGRESS_INTERVAL

    def check(self) -> None:
        """Raise TaskStopped if the attempt was asked to stop. Costs next to nothing."""
        self._attempt.check()

    def checkpoint(self, value: Any) -> None:
        """Save what a later attempt needs to go on from here; it finds the newest one in `resumed_from`.

        The value is JSON of at most 1 MiB. It is saved first, and then TaskStopped raised if the attempt was asked to
        stop. Raises InvalidValue, or TooLarge.
        """
        self._attempt.send("checkpoint", value=to_json("checkpoint", value))
        self._attempt.check_saved()

    def stage(self, name: str) -> None:
        """Note in the task's history that the work reached a stage; a name of 1 to 64 bytes. Raises InvalidValue."""
        if not is_text(name, STAGE_LIMIT):
            raise InvalidValue("stage name", f"1 to {STAGE_LIMIT} bytes of text", shown(name))
        self._attempt.send("stage", name=name)
        self._next_report = -math.inf

    def log(self, line: str) -> None:
        """Append a line to the task's log; its first 2 KB are kept."""
        self._attempt.send("log", line=cut(str(line), LINE_LIMIT))

    def retire_process(self, why: str) -> None:
        """Let the process of the handlers end after this attempt, however that ends: the next task gets a fresh one.

        For what spoils a process, such as a library in a bad state; 200 bytes of `why` are kept. An exception
        that tells of a lost GPU does so by itself.
        """
        self._attempt.send("retire", retire=f"the handler asked for that: {cut(str(why), WHY_LIMIT)}")

    def artifact(self, name: str, data_or_path: bytes | str | Path) -> Artifact:
        """Keep bytes, or a copy of the file at a path, under a plain file name; return what to put into the result.

        A reader sees the old file or the new one, never a part. Raises InvalidValue, or OSError.
        """
        _check_file_name(name)
        with _chunks(data_or_path) as chunks:
            return self._keep(name, chunks)

    def _keep(self, name: str, chunks: Iterator[bytes]) -> Artifact:
        folder = self._artifacts / self.task_id
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{uuid.uuid4().hex}"
        try:
            with part.open("xb") as file:
                size, digest = _copy(chunks, file)
            part.replace(folder / name)
        finally:
            part.unlink(missing_ok=True)
        return {"name": name, "size": size, "sha256": digest}


def _fraction(value: object) -> float:
    done = float(value) if isinstance(value, SupportsFloat) and not isinstance(value, bool) else math.nan
    if not 0.0 <= done <= 1.0:
        raise InvalidValue("progress fraction", "a number from 0 to 1", shown(value))
    return done


def _check_file_name(name: str) -> None:
    if not is_text(name, FILE_NAME_LIMIT) or not FILE_NAME.fullmatch(name):
        expected = f"a plain file name of at most {FILE_NAME_LIMIT} bytes, without separators or a leading dot"
        raise InvalidValue("artifact name", expected, shown(name))


@contextmanager
def _chunks(data_or_path: object) -> Generator[Iterator[bytes]]:
    if isinstance(data_or_path, bytes):
        yield iter([data_or_path])
    elif isinstance(data_or_path, str | Path):
        with Path(data_or_path).open("rb") as file:
            yield iter(lambda: file.read(_CHUNK), b"")
    else:
        raise InvalidValue("artifact", "bytes or the path of a file", type_name(data_or_path))


def _copy(chunks: Iterator[bytes], file: IO[bytes]) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    for chunk in chunks:
        file.write(chunk)
        digest.update(chunk)
        size += len(chunk)
    file.flush()
    os.fsync(file.fileno())  # the result names it, so it must outlive a power cut as the result does
    return size, digest.hexdigest()

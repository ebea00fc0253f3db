"""The files of an archive: what was said to be written is readable, whatever a crash, a disk or a person did."""

import errno
import gzip
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ghostless.jobs.archive_file import ArchiveFile, find_archived
from ghostless.jobs.errors import ArchiveUnusable, NotArchived

NOON = 1_800_000_000_000
DAY = 86_400_000


def line(task_id: str, text: str = "", archived_at: int = NOON) -> str:
    """Return a line as an archive has it."""
    return f'{{"id": "{task_id}", "archived_at": {archived_at}, "text": "{text}"}}'


def test_batches_follow_each_other_in_one_file(tmp_path: Path) -> None:
    """zcat and every other reader of gzip read all of them, in order."""
    file = ArchiveFile(tmp_path)
    first, second = file.append([line("a"), line("b")], NOON), file.append([line("c")], NOON + 1)
    assert first == second
    assert [tmp_path / first] == list(tmp_path.iterdir())
    shown = subprocess.run(["zcat", tmp_path / first], capture_output=True, text=True, check=True).stdout
    assert [line("a"), line("b"), line("c")] == shown.splitlines()
    assert len(first) <= 45  # it stands in each tombstone


def test_a_process_has_a_file_of_its_own_and_a_new_one_each_day(tmp_path: Path) -> None:
    """So nobody writes behind another's torn end, and old files can be moved away."""
    file = ArchiveFile(tmp_path)
    names = {file.append([line("a")], NOON), file.append([line("a")], NOON + DAY)}
    names.add(ArchiveFile(tmp_path).append([line("a")], NOON))
    assert 3 == len(names)
    assert names == {path.name for path in tmp_path.iterdir()}


def test_a_torn_end_hides_nothing_before_it(tmp_path: Path) -> None:
    """Wherever a crash cuts the last batch: all batches before it are read."""
    file = ArchiveFile(tmp_path)
    path = tmp_path / file.append([line("a", "whole")], NOON)
    whole = path.stat().st_size
    file.append([line("b", "x" * 500)], NOON)
    content = path.read_bytes()
    for end in range(whole, len(content)):
        path.write_bytes(content[:end])
        assert "whole" == find_archived(tmp_path, "a")["text"]
    path.write_bytes(content[:whole] + bytes(4096))  # a length that reached the disk before its content
    assert "whole" == find_archived(tmp_path, "a")["text"]


def test_the_last_of_several_is_found(tmp_path: Path) -> None:
    """A task that was archived twice, or whose id began anew; an id that is the beginning of another is another."""
    file = ArchiveFile(tmp_path)
    file.append([line("a", "old"), line("ab")], NOON)
    file.append([line("a", "new")], NOON + DAY)
    assert "new" == find_archived(tmp_path, "a")["text"]
    for unknown in ("b", "text", "a.*"):
        with pytest.raises(NotArchived, match="no archive in"):
            find_archived(tmp_path, unknown)


@pytest.mark.parametrize("newest", ["1", "2", "3"])
def test_the_last_of_one_day_is_found(tmp_path: Path, newest: str) -> None:
    """Several processes archived a task on one day: their files' names tell no order, the time in the lines does."""
    for name in "123":
        text, at = ("new", NOON + 7) if name == newest else ("old", NOON)
        path = tmp_path / ArchiveFile(tmp_path).append([line("a", text, at), line("b")], NOON)
        path.rename(tmp_path / f"20270115-host{name}-0af3c2.jsonl.gz")
    assert "new" == find_archived(tmp_path, "a")["text"]


def test_a_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    """It may be a disk that is not mounted."""
    folder = tmp_path / "disk"
    file = ArchiveFile(folder)
    with pytest.raises(ArchiveUnusable, match="No such file or directory.*; until it can, no task is purged"):
        file.append([line("a")], NOON)
    folder.mkdir()
    file.append([line("a")], NOON)


def test_a_file_that_was_taken_away_is_noticed(tmp_path: Path) -> None:
    """Nothing is written to where nobody will find it, and no name is used twice."""
    file = ArchiveFile(tmp_path)
    first = file.append([line("a")], NOON)
    (tmp_path / first).unlink()
    second = file.append([line("b")], NOON)
    assert first != second
    assert "b" == find_archived(tmp_path, "b")["id"]


@contextmanager
def disk_with(size: int) -> Iterator[None]:
    """Let no file grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_a_full_disk_took_of_a_batch_is_cut_off(tmp_path: Path) -> None:
    """It is told; what was there stays readable to its end, and no empty files pile up."""
    file = ArchiveFile(tmp_path)
    path = tmp_path / file.append([line("a")], NOON)
    whole = path.stat().st_size
    many = [line(f"b{number}", f"{number**9}") for number in range(500)]
    with disk_with(whole + 100):
        for _ in range(3):
            with pytest.raises(ArchiveUnusable):
                file.append(many, NOON)
    assert whole == path.stat().st_size
    assert [path] == list(tmp_path.iterdir())
    assert [line("a")] == gzip.decompress(path.read_bytes()).decode().splitlines()
    file.append(many, NOON)
    assert "b499" == find_archived(tmp_path, "b499")["id"]


def test_a_disk_that_failed_once_gets_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed sync nobody knows what the file's end is: what follows stands elsewhere, from its beginning."""
    file = ArchiveFile(tmp_path)
    first = file.append([line("a")], NOON)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", fail)
        with pytest.raises(ArchiveUnusable, match="Input/output error"):
            file.append([line("b")], NOON)
    second = file.append([line("b")], NOON)
    assert first != second
    assert ("a", "b") == (find_archived(tmp_path, "a")["id"], find_archived(tmp_path, "b")["id"])

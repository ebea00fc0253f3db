"""Where the kernel's counts of processes killed for memory stand, on folders that look like /sys and /proc."""

from pathlib import Path

import pytest
from ghostless.jobs import memory
from ghostless.jobs.memory import MemoryWatch

EVENTS = "low 0\nhigh 0\nmax 12\noom 3\noom_kill {}\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
VMSTAT = "nr_free_pages 123\noom_kill {}\npgfault 5\n"

V2 = "0::/system.slice/worker.service\n"
V1 = "9:name=systemd:/\n4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n"


def written(root: Path, path: str, text: str) -> Path:
    """Write a file and the folders above it."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("groups", "path", "text"),
    [
        (V2, "sys/fs/cgroup/system.slice/worker.service/memory.events", EVENTS),
        ("0::/\n", "sys/fs/cgroup/memory.events", EVENTS),
        (V2, "sys/fs/cgroup/memory.events", EVENTS),
        (V1, "sys/fs/cgroup/memory/docker/abc/memory.oom_control", CONTROL),
        (V1, "sys/fs/cgroup/memory/memory.oom_control", CONTROL),
        (V1, "proc/vmstat", VMSTAT),
        ("", "proc/vmstat", VMSTAT),
    ],
)
def test_a_count_that_rises_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, path: str, text: str
) -> None:
    """In whatever place the count is, it matters whether it rose since the last look."""
    monkeypatch.setattr(memory, "FRESH", -1.0)
    written(tmp_path, "proc/self/cgroup", groups)
    file = written(tmp_path, path, text.format(2))
    watch = MemoryWatch(tmp_path)
    assert not watch.has_struck()
    file.write_text(text.format(3))
    assert watch.has_struck()
    watch.look()
    assert not watch.has_struck()


def test_a_look_that_is_fresh_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short tasks cost few looks; what was killed since the one that counts is seen."""
    monkeypatch.setattr(memory, "FRESH", 60.0)
    vmstat = written(tmp_path, "proc/vmstat", VMSTAT.format(0))
    watch = MemoryWatch(tmp_path)
    vmstat.write_text(VMSTAT.format(1))
    watch.look()
    assert watch.has_struck()


def test_the_own_cgroup_is_believed_before_the_machine(tmp_path: Path) -> None:
    """What the kernel killed elsewhere is no sign."""
    written(tmp_path, "proc/self/cgroup", V2)
    written(tmp_path, "sys/fs/cgroup/system.slice/worker.service/memory.events", EVENTS.format(0))
    vmstat = written(tmp_path, "proc/vmstat", VMSTAT.format(0))
    watch = MemoryWatch(tmp_path)
    vmstat.write_text(VMSTAT.format(1))
    assert not watch.has_struck()


@pytest.mark.parametrize("text", ["", "oom_kill many\n", "oom 7\n"])
def test_without_a_count_nothing_is_claimed(tmp_path: Path, text: str) -> None:
    """No such files, or files without the count: nobody knows."""
    assert not MemoryWatch(tmp_path / "nothing").has_struck()
    file = written(tmp_path, "proc/vmstat", text)
    watch = MemoryWatch(tmp_path)
    file.unlink()
    assert not watch.has_struck()

"""The supervisor's parts with real processes: who is stopped how, and what is never left behind."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ghostless.jobs.cli import leash
from ghostless.jobs.cli.children import Child, Leash
from ghostless.jobs.cli.database import find_database
from ghostless.jobs.cli.hold import only_one_in
from ghostless.jobs.cli.lazy import Failed
from ghostless.jobs.cli.ports import free_port
from helpers import eventually, is_running

FAMILY = """
import subprocess, sys, time, signal
if "stubborn" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
"""A process with a child of its own, which it tells and then forgets."""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Child]]:
    """What a test started; killed after it, should it still be there."""
    children: list[Child] = []
    yield children
    for child in children:
        if child.alive:
            child.stop(0, lambda: True)


def family(started: list[Child], folder: Path, *arguments: str, inherited: Sequence[int] = ()) -> tuple[Child, int]:
    """Start a process that has a child; return it and the child's pid."""
    log = folder / f"family{len(started)}.log"
    child = Child("family", [sys.executable, "-c", FAMILY, *arguments], log, {}, inherited)
    started.append(child)

    def told() -> int:
        assert log.read_text().strip()
        return int(log.read_text())

    return child, eventually(told)


def assert_gone(*pids: int) -> None:
    """Check that none of these runs any more, within a moment."""

    def check() -> None:
        assert [] == [pid for pid in pids if is_running(pid)]

    eventually(check)


@pytest.mark.parametrize("kind", ["obedient", "stubborn"])
def test_a_child_is_stopped_with_its_children(started: list[Child], tmp_path: Path, kind: str) -> None:
    """Asked first; who does not listen is killed when patience ends, and so is what it leaves behind."""
    child, grandchild = family(started, tmp_path, kind)
    child.stop(0.5, lambda: False)
    assert not child.alive
    assert_gone(grandchild)


def test_patience_ends_at_once_in_a_hurry(started: list[Child], tmp_path: Path) -> None:
    """A second Ctrl-C does not wait for a process that does not listen."""
    child, grandchild = family(started, tmp_path, "stubborn")
    child.stop(600, lambda: True)
    assert not child.alive
    assert_gone(grandchild)


def test_the_end_of_a_child_is_told_with_its_last_words(started: list[Child], tmp_path: Path) -> None:
    """How it ended, and the last lines of its log."""
    said = "for line in range(100): print('line', line)\nraise SystemExit(7)"
    child = Child("worker", [sys.executable, "-c", said], tmp_path / "worker.log", {})
    started.append(child)
    eventually(lambda: _assert_ended(child))
    first, *lines = child.obituary().splitlines()
    assert f"worker ended with exit code 7; the last lines of {tmp_path}/worker.log:" == first
    assert ["  | line 88", "  | line 99"] == [lines[0], lines[-1]]


def _assert_ended(child: Child) -> None:
    assert not child.alive


SUPERVISOR = """
import sys, time
from pathlib import Path
from ghostless.jobs.cli.children import Child, Leash
leash = Leash()
for name in sys.argv[2:]:
    child = Child(name, [sys.executable, "-c", Path(sys.argv[1]).read_text(), name], Path(f"{name}.log"), {})
    leash.watch(child)
    print(child.pid, flush=True)
print(leash._process.pid, flush=True)
time.sleep(600)
"""


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves no chance to clean up: the watcher at the other end of the pipe ends every group, then itself."""
    (tmp_path / "family.py").write_text(FAMILY)
    command = [sys.executable, "-c", SUPERVISOR, "family.py", "obedient", "stubborn"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as supervisor:
        assert supervisor.stdout
        pids = [int(supervisor.stdout.readline()) for _ in range(3)]

        def grandchildren() -> list[int]:
            told = [(tmp_path / f"{name}.log").read_text() for name in ("obedient", "stubborn")]
            assert all(told)
            return list(map(int, told))

        pids += eventually(grandchildren)
        supervisor.kill()
    eventually(lambda: assert_gone(*pids), seconds=leash.PATIENCE + 10)


def test_the_watcher_leaves_alone_what_was_stopped_in_order(started: list[Child], tmp_path: Path) -> None:
    """A group that it was told to forget is not touched: its number may be another's by now."""
    kept, _ = family(started, tmp_path)
    watcher = Leash()
    watcher.watch(kept)
    watcher.forget(kept)
    watcher.close()
    assert kept.alive


def test_a_folder_has_one_supervisor(tmp_path: Path) -> None:
    """The second one is told who holds it; afterwards the folder is free again."""
    with only_one_in(tmp_path), pytest.raises(Failed, match=r"process \d+ runs in .* already"), only_one_in(tmp_path):
        raise AssertionError("two at once")
    with only_one_in(tmp_path):
        pass


def test_a_folder_stays_held_by_a_server_that_was_left_behind(tmp_path: Path, started: list[Child]) -> None:
    """Its data has one writer: while the old server lives, a new one is refused with the old one's pid."""
    with only_one_in(tmp_path) as hold:
        server, _ = family(started, tmp_path, inherited=[hold.descriptor])
        hold.note(server.pid)
    lock = tmp_path / "lock"
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    lock.write_text(f"{gone.stdout.decode()}{server.pid}\n")
    with pytest.raises(Failed, match=f"process {server.pid} runs in"), only_one_in(tmp_path):
        raise AssertionError("two writers")
    server.stop(0, lambda: True)
    with only_one_in(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """In one line that says where."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed, match="cannot be written to"), only_one_in(tmp_path / "file"):
        pass


TAKE_A_PORT = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
input()
"""


def test_a_port_that_is_taken_is_told() -> None:
    """The first free one of those asked for is taken; 0 stands for any."""
    any_port = free_port(0)
    assert any_port == free_port(any_port)
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout
        taken = int(other.stdout.readline())
        with pytest.raises(Failed, match=f"port {taken} of 127.0.0.1 is taken"):
            free_port(taken)
        assert free_port(taken, 0) not in (0, taken)
        other.communicate("")


def fake_server(folder: Path, program: str, said: str) -> None:
    """Put a program on the PATH that only knows its version."""
    path = folder / program
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("programs", "chosen"),
    [
        ({"redis-server": "Redis server v=7.0.15 sha=00000000:0"}, "redis-server 7.0.15"),
        ({"valkey-server": "Server v=8.1.4 sha=00000000:0"}, "valkey-server 8.1.4"),
        (
            {"redis-server": "Redis server v=6.0.16 sha=0", "valkey-server": "Valkey server v=7.2.1 sha=0"},
            "valkey-server 7.2.1",
        ),
        ({"redis-server": "Redis server v=6.0.16 sha=0"}, "a stand-in for trying things out, which keeps nothing"),
        ({}, "a stand-in for trying things out, which keeps nothing"),
    ],
)
def test_the_best_server_of_the_machine_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], chosen: str
) -> None:
    """A real one that is new enough, else the stand-in, which says what it is."""
    for program, said in programs.items():
        fake_server(tmp_path, program, said)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chosen in find_database(tmp_path / "data").description


def test_the_server_writes_everything_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Append-only, each second to disk, nothing evicted, on the loopback address only."""
    fake_server(tmp_path, "redis-server", "Redis server v=7.0.15 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path))
    command = " ".join(find_database(tmp_path).command_for(6399))
    for option in ("--bind 127.0.0.1", "--appendonly yes", "--appendfsync everysec", "--maxmemory-policy noeviction"):
        assert option in command
    assert command.endswith("--port 6399")

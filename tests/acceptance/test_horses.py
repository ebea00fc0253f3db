"""Horses that die, leak, or cannot set up their types: no task is hurt by it, and each of it is told."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.diary import WorkerEvent
from helpers import eventually, expect, is_running

from .conftest import assert_clean, ended

pytestmark = pytest.mark.slow

Start = Callable[..., subprocess.Popen[bytes]]

HOARDED = 200 << 20
"""Bytes at which the kernel ends the hoarder's cgroup."""


@pytest.fixture
def notes(fleet: Fleet, tmp_path: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Return the notes of handlers that begin with a word."""
    file = tmp_path / "notes"
    file.touch()
    fleet.environment["NOTES"] = str(file)

    def read(what: str) -> list[dict[str, Any]]:
        return [note for note in map(json.loads, file.read_text().splitlines()) if note["what"].startswith(what)]

    return read


@pytest.fixture
def start(fleet: Fleet, client: Client, notes: object) -> Start:
    """Start a watchdog and a worker named w, and return it when it serves."""

    def started(
        *options: str, within: tuple[str, ...] = (), program: str = "ghostless.jobs.cli"
    ) -> subprocess.Popen[bytes]:
        fleet.watchdog()
        verb = ["-m", program, "worker", "default", "--tasks", "stalls", "--name", "w", *options]
        worker = fleet.spawn([*within, sys.executable, *verb])
        eventually(lambda: expect(client.types()), seconds=20)
        return worker

    return started


def events(client: Client, kind: str) -> list[WorkerEvent]:
    """Return the events of one kind that the worker told, the oldest first."""
    found = client.worker_events("w")
    return [event for event in reversed(found) if event.kind == kind]


def told(client: Client, kind: str, number: int) -> list[str]:
    """Return the texts of the events of one kind, once there are so many."""

    def check() -> list[str]:
        texts = [event.text for event in events(client, kind)]
        assert len(texts) == number, texts
        return texts

    return eventually(check)


# Dying

SIGKILL, LIMIT = "died: signal 9 (SIGKILL)", "MemoryError: out of memory"


@pytest.mark.parametrize("how_started", ["spawn", "fork"])
def test_a_dying_handler(
    start: Start, client: Client, fleet: Fleet, notes: Callable[..., list[Any]], how_started: str
) -> None:
    """However a handler takes its process down, its task fails within a second and tells the signal or the code.

    Nobody calls it a lack of memory that was none.
    """
    start("--horse", how_started)
    expected = {
        "kill": ("crashed", SIGKILL),
        "segfault": ("crashed", "died: signal 11 (SIGSEGV)"),
        "abort": ("crashed", "died: signal 6 (SIGABRT)"),
        "real-time signal": ("crashed", "died: signal 40 (Real-time signal 6)"),
        "exit": ("crashed", "died: exit code 3"),
        "sys.exit": ("crashed", "SystemExit: 3"),
        "limit": ("exception", LIMIT),
    }
    ids = {how: client.submit("die", {"how": how}).task_id for how in expected}
    for how, (reason, message) in expected.items():
        task = ended(client, ids[how], "FAILED")
        assert (task.reason, task.attempt) == (reason, 1), how
        told_last = client.history(task.id)[-1]
        assert told_last.message.endswith(message), how
    begun_at = {how: note["at"] for note, how in zip(notes("die"), expected, strict=True)}
    taken = [client.get(ids[how]).entered_at / 1000 - begun_at[how] for how in expected if how != "limit"]
    assert median(taken) < 1, "most are; a loaded machine may be late once"
    assert [text.split(": ", 1)[1] for text in told(client, "horse died", 5)] == [
        message.removeprefix("died: ") for _, message in expected.values() if message.startswith("died")
    ]
    assert_clean(client, fleet, *ids.values())


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of this test's own with little memory, by the first version or the second."""
    mounted = Path("/sys/fs/cgroup")
    has_first = (mounted / "memory").exists()
    group = mounted / ("memory" if has_first else "") / f"ghostless-test-{os.getpid()}"
    limit = group / ("memory.limit_in_bytes" if has_first else "memory.max")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    if not limit.exists():
        group.rmdir()
        pytest.skip("cgroups of this machine do not limit memory")
    limit.write_text(str(HOARDED))
    yield group
    eventually(lambda: _removed(group))


def _removed(group: Path) -> None:
    try:
        group.rmdir()
    except OSError as error:
        raise AssertionError(f"{group} still has processes") from error


def test_out_of_memory(start: Start, client: Client, fleet: Fleet, cgroup: Path) -> None:
    """A handler that the kernel kills for memory is told as such, with the signal; the worker goes on.

    A handler that is killed by somebody in the same place is not.
    """
    join = ("sh", "-c", 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"', "worker", str(cgroup))
    start(within=join)
    assert_told_apart(client, "hoard")
    assert_clean(client, fleet)
    assert fleet.end() == []


def test_a_kill_that_the_kernel_counts(start: Start, client: Client, fleet: Fleet) -> None:
    """The same with a count that a test writes, for machines on which no cgroup can be made."""
    (fleet.folder / "proc").mkdir()
    fleet.environment["FAKED_ROOT"] = str(fleet.folder)
    (fleet.folder / "proc/vmstat").write_text("oom_kill 0\n")
    start(program="faked_kernel")
    assert_told_apart(client, "counted")
    assert_clean(client, fleet)


def assert_told_apart(client: Client, killed_for_memory: str) -> None:
    """Check that a death for lack of memory is told as such, and the one before and the one after are not."""
    for how, hint in (("kill", False), (killed_for_memory, True), ("kill", False)):
        task_id = client.submit("die", {"how": how}).task_id
        assert ended(client, task_id, "FAILED").reason == "crashed"
        message = client.history(task_id)[-1].message
        assert SIGKILL in message
        assert ("probably out of memory" in message) == hint


# Setting up


def test_failing_setups(start: Start, client: Client, fleet: Fleet, notes: Callable[..., list[Any]]) -> None:
    """A setup that raises, kills its process or hangs fails its task and says setup; other types go on.

    Each further try has a fresh process, and after three in a row the worker tells that it sets the type aside.
    """
    start()
    expected = {
        "raise": ("FAILED", "exception", "setup of setup.raise failed: RuntimeError: no GPU here"),
        "kill": ("FAILED", "crashed", "the process running the setup of setup.kill died: signal 9 (SIGKILL)"),
        "hang": ("TIMEOUT_CANCELLED", "policy", "in the setup of setup.hang"),
    }
    ids: list[str] = []
    for how, (state, reason, message) in expected.items():
        for _ in range(3):
            ids += [client.submit(name).task_id for name in (f"setup.{how}", "setup.fine")]
            task = ended(client, ids[-2], state)
            assert task.reason == reason
            assert any(message in entry.message for entry in client.history(task.id))
            ended(client, ids[-1], "SUCCESS")
        assert len({note["pid"] for note in notes(f"setup {how}")}) == 3
    assert notes("handler") == []
    aside = told(client, "type set aside", 3)
    assert [text.split()[0] for text in aside] == ["setup.raise", "setup.kill", "setup.hang"]
    assert all("300 s" in text for text in aside)
    assert len(told(client, "horse died", 3)) == 3
    assert_clean(client, fleet, *ids)


def test_a_type_set_aside_is_for_other_workers(start: Start, client: Client, fleet: Fleet) -> None:
    """A worker that sets a type aside takes no such task, says so, and holds none up: another worker runs them."""
    start()
    for _ in range(3):
        ended(client, client.submit("setup.raise").task_id, "FAILED")
    waiting = [client.submit("setup.raise").task_id for _ in range(3)]
    fine = client.submit("setup.fine").task_id
    ended(client, fine, "SUCCESS")
    eventually(lambda: assert_told(client, waiting))
    fleet.worker(name="other", tasks="healed")
    for task_id in waiting:
        task = ended(client, task_id, "SUCCESS")
        assert (task.attempt, client.history(task_id)[1].actor) == (1, "worker:other")
    assert_clean(client, fleet, fine, *waiting)


def assert_told(client: Client, waiting: list[str]) -> None:
    """Check that the worker's record and each task's explanation say why nobody takes the type."""
    (worker,) = client.workers()
    assert worker.record
    assert "no GPU here" in worker.record.set_aside.get("setup.raise", "")
    for task_id in waiting:
        told = client.explain(task_id)
        assert told.why == "no worker of its queue default serves the type setup.raise"
        assert any("w does not take it for now" in line and "no GPU here" in line for line in told.evidence)


@pytest.mark.parametrize("how_started", ["spawn", "fork"])
def test_setup_and_teardown_once_each(
    start: Start, client: Client, notes: Callable[..., list[Any]], how_started: str
) -> None:
    """With --preload a horse sets up its types before any task; a retired one has torn down what it set up.

    It imports its modules and sets up once, whatever number of tasks it runs.
    The worker's events tell each replacement and why. Unless told to fork, horses are spawned.
    """
    how = ("--horse", "fork") if how_started == "fork" else ()
    worker = start("--preload", "--max-tasks-per-horse", "2", *how)
    assert bool(family(worker, "zygote")) == (how_started == "fork")
    assert len(notes("setup fine")) >= 1
    assert (len(notes("import")) == 1) == (how_started == "fork")
    pids = [ended(client, client.submit("setup.fine").task_id, "SUCCESS").result for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    worn = [f"process {pid}: it ran 2 tasks (--max-tasks-per-horse)" for pid in (pids[0], pids[2])]
    eventually(lambda: expect([event.text for event in events(client, "horse replaced")][-2:] == worn))
    worker.terminate()
    assert worker.wait(15) == 0
    done = [(note["what"], note["pid"]) for note in notes("") if note["what"].endswith(" fine")]
    served = [done.index(("setup fine", pid)) < done.index(("teardown fine", pid)) for pid in dict.fromkeys(pids)]
    assert served == [True, True, True]
    assert len(done) == len(set(done))
    importers = [note["pid"] for note in notes("import")]
    assert len(importers) == len(set(importers))


# Replacing


def test_a_leak_is_stopped_between_tasks(
    start: Start, client: Client, fleet: Fleet, notes: Callable[..., list[Any]]
) -> None:
    """Horses that grow too large are replaced: each task runs once and to its end, in one of several processes.

    No task is claimed before there is a process to run it.
    """
    worker = start("--max-horse-rss", "300M")
    ids = [client.submit("leak", {"size": 50}).task_id for _ in range(12)]
    tasks = [ended(client, task_id, "SUCCESS") for task_id in ids]
    assert {task.attempt for task in tasks} == {1}
    pids = list(dict.fromkeys(task.result for task in tasks))
    assert 2 <= len(pids) <= 4
    eventually(lambda: assert_replaced(client, pids))
    born = {note["pid"]: note["at"] for note in notes("import")}
    assert set(pids) <= born.keys()
    assert worker.pid not in born, "the worker imports no task module"
    for task in tasks:
        assert (task.started_at or 0) / 1000 >= born[task.result] - 0.05
    assert_clean(client, fleet, *ids)


def assert_replaced(client: Client, pids: list[int]) -> None:
    """Check that every horse but the last was replaced for its size; the last may have been after its last task."""
    texts = [event.text for event in events(client, "horse replaced")]
    assert len(texts) in (len(pids) - 1, len(pids)), texts
    assert all("--max-horse-rss" in text and "MiB" in text for text in texts)


# Forking


def family(worker: subprocess.Popen[bytes], module: str) -> list[psutil.Process]:
    """Return the living descendants of a worker that began as this module."""
    found = psutil.Process(worker.pid).children(recursive=True)
    return [process for process in found if f"ghostless.jobs.{module}" in process.cmdline()]


def held(client: Client, notes: Callable[..., list[Any]], params: dict[str, Any]) -> str:
    """Submit a task that does not end by itself; return its id once its handler runs."""
    task_id = client.submit("hold", params).task_id
    eventually(lambda: expect(notes("hold")), seconds=20)
    return task_id


def test_a_forked_horse_is_tied_to_its_worker(start: Start, client: Client, notes: Callable[..., list[Any]]) -> None:
    """When the worker is killed, the horse, what its handler started and what it was forked from are gone at once."""
    worker = start("--horse", "fork")
    held(client, notes, {"how": "child"})
    processes = family(worker, "zygote")
    assert len(processes) == 2
    processes += [psutil.Process(note["pid"]) for note in notes("child")]
    assert len(processes) == 3
    worker.kill()
    eventually(lambda: expect(not any(is_running(process.pid) for process in processes)), seconds=1)


def test_a_forked_horse_is_stopped_like_any_other(
    start: Start, client: Client, fleet: Fleet, notes: Callable[..., list[Any]]
) -> None:
    """Cancelled, a stubborn handler is killed with its children, also while what it was forked from is frozen.

    That is killed too, since it does not tell how the handler's process ended; the next one is forked from a new one.
    """
    worker = start("--horse", "fork")
    task_id = held(client, notes, {"how": "stubborn"})
    zygote, horse = family(worker, "zygote")
    assert horse.pid == notes("hold")[0]["pid"]
    zygote.suspend()
    client.cancel(task_id)
    ended(client, task_id, "CANCELLED")
    assert "killed with SIGKILL" in client.history(task_id)[-1].message
    assert not is_running(horse.pid)
    forked = ended(client, client.submit("leak").task_id, "SUCCESS").result
    assert forked in [process.pid for process in family(worker, "zygote")]
    assert not is_running(zygote.pid)
    assert not [child for child in psutil.Process(worker.pid).children() if child.status() == psutil.STATUS_ZOMBIE]


def test_a_forked_horse_outlives_what_it_was_forked_from(
    start: Start, client: Client, fleet: Fleet, notes: Callable[..., list[Any]]
) -> None:
    """The zygote killed, a task goes on to its end; how its horse ends later its worker still knows."""
    worker = start("--horse", "fork")
    task_id = held(client, notes, {"how": "wait"})
    zygote, horse = family(worker, "zygote")
    zygote.kill()
    (fleet.folder / "go").touch()
    assert ended(client, task_id, "SUCCESS").result == horse.pid
    failed = client.submit("die", {"how": "exit"}).task_id
    ended(client, failed, "FAILED")
    assert "died: exit code 3" in client.history(failed)[-1].message
    assert ended(client, client.submit("leak").task_id, "SUCCESS").result != horse.pid
    assert_clean(client, fleet, task_id, failed)


SLOW = """
import os, pathlib, time
from ghostless.jobs import task
while pathlib.Path("wait").exists():
    time.sleep(0.05)

@task("die", max_losses=0, max_retries=0)
def die(ctx):
    os._exit(3)
"""


def test_a_worker_that_is_to_end_starts_no_horse(fleet: Fleet, client: Client) -> None:
    """A signal while modules are imported anew, to fork from: nothing is spawned in its place, nothing waited for."""
    (fleet.folder / "slow_tasks.py").write_text(SLOW)
    fleet.environment["GHOSTLESS_GRACE"] = "60"
    worker = fleet.start("worker", "default", "--tasks", "slow_tasks", "--horse", "fork")
    eventually(lambda: expect(client.types()), seconds=20)
    (fleet.folder / "wait").touch()
    before, horse = family(worker, "zygote")
    before.kill()
    ended(client, client.submit("die").task_id, "FAILED")
    eventually(lambda: expect({before, horse}.isdisjoint(found := family(worker, "zygote")) and found))
    worker.terminate()
    assert worker.wait(20) == 0
    assert "no horse can be forked" not in fleet.logs()


def test_modules_that_cannot_be_forked_are_told(client: Client, fleet: Fleet) -> None:
    """What a module raises is told as without forking."""
    (fleet.folder / "broken_tasks.py").write_text("1 / 0")
    fleet.environment["PYTHONPATH"] = str(fleet.folder)
    worker = fleet.start("worker", "default", "--tasks", "broken_tasks", "--horse", "fork")
    assert worker.wait(20) == 1
    assert fleet.logs().count("Traceback") == 1
    assert "Error: broken_tasks could not be loaded: ZeroDivisionError" in fleet.logs()
    assert_clean(client, fleet)

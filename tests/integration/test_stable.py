"""A stable with real horses: which types it serves, and when it wants another horse."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ghostless.jobs.diary import Diary
from ghostless.jobs.messages import Ending
from ghostless.jobs.settings import Settings
from ghostless.jobs.stable import Stable
from ghostless.jobs.store import Store
from ghostless.jobs.worker import Worker
from ghostless.statemachine import Event, Reason
from helpers import eventually, expect
from redis import Redis

TESTS = Path(__file__).parents[1]
FAILED = Ending(Event.FAIL, Reason.EXCEPTION, "setup failed")
STOPPED = Ending(Event.SUSPEND, Reason.SHUTDOWN, "the worker shuts down")
DONE = Ending(Event.COMPLETE, Reason.POLICY)

Stables = Callable[..., Stable]


@pytest.fixture
def stables(redis: Redis, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stables]:
    """Make stables with handlers that live, leak and die; their horses are ended whatever the test does."""
    made: list[Stable] = []
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))

    def stable(**options: Any) -> Stable:
        store = Store(redis, replace(settings, **{"tasks": ("stalls",), "artifacts": str(tmp_path), **options}))
        made.append(Stable(store, Diary(redis, store.keys, "w"), lambda: False, lambda _stream, line: print(line)))
        return made[-1]

    yield stable
    for stable in made:
        stable.kill()


FROZEN = """
import sys, time
while "ghostless.jobs.zygote" in sys.orig_argv:
    time.sleep(1)
"""


def test_a_zygote_that_freezes_is_not_waited_for(
    stables: Stables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that does not get its modules imported is killed after a while, and a fresh horse spawned."""
    (tmp_path / "frozen.py").write_text(FROZEN)
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{tmp_path}")
    monkeypatch.setattr("ghostless.jobs.zygote_process.LOADING_LIMIT", 0.2)
    stable = stables(horse="fork", tasks=("frozen", "stalls"))
    stable.fresh_horse()
    assert stable.is_ready
    assert "no horse can be forked (its modules are not imported after 0.2 s): a fresh one is spawned" in caplog.text
    assert stable._zygote
    assert not stable._zygote.alive


def run(stable: Stable, name: str, ending: Ending | None, tmp_path: Path, **params: Any) -> int:
    """Run a task to its end, as a supervisor would, and let the stable judge it; return the pid of its horse."""
    horse = stable.horse
    assert horse
    horse.run(
        {
            "task_id": "t",
            "attempt": 1,
            "type": name,
            "params": params,
            "checkpoint": None,
            "tmpdir": str(tmp_path),
            "until": time.monotonic() + 300,
        }
    )

    def ended() -> None:
        kinds = {frame["kind"] for frame in horse.frames(0.1)}
        assert kinds & {"returned", "raised"} or not horse.alive

    eventually(ended)
    stable.review(name, ending)
    return horse.pid


def test_a_type_whose_setup_fails_again_and_again_is_not_served(stables: Stables, tmp_path: Path) -> None:
    """Three failures in a row are enough, each with a fresh horse; what other types do changes nothing."""
    stable = stables()
    stable.fresh_horse()
    everything = ("die", "hold", "leak", "setup.fine", "setup.hang", "setup.kill", "setup.raise")
    pids: list[int] = []
    for name in ("setup.raise", "setup.fine", "setup.raise", "setup.fine", "setup.raise"):
        assert stable.served == everything
        pids.append(run(stable, name, FAILED if name == "setup.raise" else DONE, tmp_path))
        assert stable.is_ready == (name == "setup.fine")
        if not stable.is_ready:
            stable.fresh_horse()
    assert stable.served == ("die", "hold", "leak", "setup.fine", "setup.hang", "setup.kill")
    assert stable.set_aside == {"setup.raise": "setup failed"}
    assert pids[1] == pids[2] != pids[0]
    assert pids[3] == pids[4] != pids[1]


@pytest.mark.parametrize("ending", [STOPPED, None])
def test_a_setup_that_was_stopped_is_not_to_blame(stables: Stables, tmp_path: Path, ending: Ending | None) -> None:
    """A cancel, a shutdown or a lost lease in the middle of a setup counts for nothing, but its horse is replaced."""
    stable = stables()
    for _ in range(4):
        stable.fresh_horse()
        run(stable, "setup.raise", ending, tmp_path)
        assert not stable.is_ready
    assert stable.set_aside == {}


def test_preload_sets_aside_what_fails(stables: Stables, tmp_path: Path) -> None:
    """A setup that raises, dies or takes longer than its type's timeout is set aside at once; the others have run."""
    stable = stables(preload=True)
    stable.fresh_horse()
    assert stable.served == ("die", "hold", "leak", "setup.fine")
    assert stable.set_aside == {
        "setup.hang": "setup of setup.hang failed: it ran longer than the timeout of the type, 0.3 s",
        "setup.kill": "setup of setup.kill failed: it ended its process: signal 9 (SIGKILL)",
        "setup.raise": "setup of setup.raise failed: RuntimeError: no GPU here",
    }
    assert stable.is_ready
    assert stable.horse
    assert stable.horse.set_up == {"die", "hold", "leak", "setup.fine"}
    assert (tmp_path / "notes").read_text().count("setup raise") == 1


def test_a_horse_has_a_number_of_tasks(stables: Stables, tmp_path: Path) -> None:
    """After the last one it is not ready for another; the next horse runs as many."""
    stable = stables(max_tasks_per_horse=2)
    stable.fresh_horse()
    readiness: list[bool] = []
    for _ in range(4):
        run(stable, "leak", DONE, tmp_path)
        readiness.append(stable.is_ready)
        if not stable.is_ready:
            stable.fresh_horse()
    assert readiness == [True, False, True, False]


def test_no_task_is_claimed_for_a_horse_that_is_still_to_be_started(
    redis: Redis, settings: Settings, stables: Stables, tmp_path: Path
) -> None:
    """With the end of the last task of a horse its worker claims no other one."""
    connection = Redis.from_url(settings.redis_url, protocol=2)
    worker = Worker(["default"], "w", connection=connection, settings=settings)
    stable = worker._stable = stables(max_tasks_per_horse=2)
    stable.fresh_horse()
    claims: list[bool] = []
    for _ in range(2):
        run(stable, "leak", DONE, tmp_path)
        claims.append(worker._next_claim() is not None)
    assert claims == [True, False]
    connection.close()


def test_an_idle_horse_that_dies_is_told(redis: Redis, stables: Stables) -> None:
    """A horse that died between two tasks is replaced, and the worker's events say what became of it."""
    stable = stables()
    stable.fresh_horse()
    assert stable.horse
    first = stable.horse.pid
    stable.horse._process.kill()
    eventually(lambda: expect(not stable.is_ready))
    stable.fresh_horse()
    assert stable.is_ready
    notes = [(note.kind, note.text) for note in stable._diary._unsent]
    assert notes[1] == ("horse died", f"process {first}: signal 9 (SIGKILL)")
    assert notes[2][0] == "horse started"


@pytest.mark.timeout(30)
def test_nothing_is_waited_for_when_the_worker_is_to_end(
    stables: Stables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal ends also the wait for a setup that hangs, which may last for half an hour; it is not to blame."""
    monkeypatch.chdir(tmp_path)
    stable = stables(preload=True, tasks=("handlers",))
    hanging = tmp_path / "setup-runs"
    stable._give_up = hanging.exists
    stable.fresh_horse()
    assert hanging.exists()
    assert "test.slow_model" not in stable.set_aside

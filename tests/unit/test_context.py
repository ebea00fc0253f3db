"""The context that a handler gets, with the worker's end of the channel in the test's hands."""

import hashlib
import math
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ghostless.jobs import Context, InvalidValue, StaleAttempt, TaskStopped, TooLarge
from ghostless.jobs import context as context_module
from ghostless.jobs.attempt import Attempt
from ghostless.jobs.frames import Channel, Frame


@dataclass
class Scene:
    """A context, its attempt, and what the worker receives."""

    ctx: Context
    attempt: Attempt
    worker: Channel
    artifacts: Path
    now: float = 1000.0

    def frames(self) -> list[Frame]:
        """Return what was sent by now, without what every frame has."""
        frames = self.worker.receive_ready()
        assert all((frame.pop("task_id"), frame.pop("attempt")) == ("t1", 2) for frame in frames)
        return frames


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A context whose clock stands still."""
    ours, theirs = (Channel(end) for end in socket.socketpair())
    attempt = Attempt(theirs, "t1", 2)
    artifacts = tmp_path / "artifacts"
    given = {"resumed_from": {"step": 1}, "results": {"t0": 7}}
    ctx = Context(attempt, model="model", tmpdir=str(tmp_path / "tmp"), artifacts=artifacts, **given)
    scene = Scene(ctx, attempt, ours, artifacts)
    monkeypatch.setattr(context_module.time, "monotonic", lambda: scene.now)
    yield scene
    ours.close()
    theirs.close()


def test_a_context_says_who_it_is(scene: Scene) -> None:
    """A handler finds its task, attempt, model and last checkpoint in its context."""
    ctx = scene.ctx
    assert (ctx.task_id, ctx.attempt, ctx.model, ctx.resumed_from) == ("t1", 2, "model", {"step": 1})
    assert ctx.results == {"t0": 7}


def test_a_folder_is_made_when_a_handler_asks_for_it(scene: Scene, tmp_path: Path) -> None:
    """A task that needs none pays for none; each look finds it, for its owner's eyes only."""
    assert not (tmp_path / "tmp").exists()
    assert scene.ctx.tmpdir == scene.ctx.tmpdir == tmp_path / "tmp"
    assert 0o700 == stat.S_IMODE(scene.ctx.tmpdir.stat().st_mode)


# Progress


@pytest.mark.parametrize("fraction", [0, 1, 0.5, True + 0.0, Fraction(1, 4), Decimal("0.25")])
def test_progress_is_sent(scene: Scene, fraction: Any) -> None:
    """Any number from 0 to 1 is progress."""
    scene.ctx.progress(fraction, "message")
    assert scene.frames() == [{"kind": "progress", "fraction": float(fraction), "message": "message"}]


@pytest.mark.parametrize("fraction", [-0.01, 1.01, 50, math.nan, math.inf, "0.5", None, True, [0.5], 2 + 1j])
def test_wrong_progress_is_refused(scene: Scene, fraction: Any) -> None:
    """What is no number from 0 to 1 is refused in the handler, and nothing is sent."""
    with pytest.raises(InvalidValue, match="progress fraction: expected a number from 0 to 1, got"):
        scene.ctx.progress(fraction)
    assert scene.frames() == []


def test_progress_is_coalesced(scene: Scene) -> None:
    """Of many reports only ten a second are sent."""
    for step in range(1000):
        scene.now = 1000 + step / 1000
        scene.ctx.progress(step / 1000)
    fractions = [frame["fraction"] for frame in scene.frames()]
    assert fractions[0] == 0
    assert 9 <= len(fractions) <= 10


def test_the_last_progress_is_always_sent(scene: Scene) -> None:
    """The report of 1 is sent at once, and sent once."""
    for fraction in (0.0, 0.5, 1.0, 1.0):
        scene.ctx.progress(fraction)
    assert [frame["fraction"] for frame in scene.frames()] == [0.0, 1.0]


def test_the_first_progress_of_a_stage_is_sent(scene: Scene) -> None:
    """After a new stage the next report is sent at once."""
    scene.ctx.progress(0.1)
    scene.ctx.progress(0.2)
    scene.ctx.stage("next")
    scene.ctx.progress(0.3)
    assert [frame.get("fraction") for frame in scene.frames()] == [0.1, None, 0.3]


@pytest.mark.parametrize(
    ("message", "kept"),
    [("é" * 40, "é" * 32), ("a" + "é" * 40, "a" + "é" * 31), ("\ud800", "?"), (None, "None"), ("😀" * 20, "😀" * 16)],
)
def test_messages_are_cut_between_characters(scene: Scene, message: Any, kept: str) -> None:
    """Of a message 64 bytes are kept, and never a part of a character."""
    scene.ctx.progress(0.5, message)
    assert scene.frames()[0]["message"] == kept


# Checkpoints, stages, lines


def test_a_checkpoint_is_a_json_text(scene: Scene) -> None:
    """A checkpoint is sent as the JSON text that is stored."""
    scene.ctx.checkpoint({"step": 3})
    assert scene.frames() == [{"kind": "checkpoint", "value": '{"step":3}'}]
    assert scene.attempt.has_checkpoint


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"loss": math.nan}, "checkpoint.loss: expected JSON, got nan"),
        ({1, 2}, "checkpoint: expected JSON, got set"),
        (["\ud800"], r"checkpoint\[0\]: expected JSON, got text with half of a surrogate pair"),
    ],
)
def test_a_wrong_checkpoint_is_refused(scene: Scene, value: Any, message: str) -> None:
    """A checkpoint that cannot be stored is refused in the handler, naming the place."""
    with pytest.raises(InvalidValue, match=message):
        scene.ctx.checkpoint(value)
    assert scene.frames() == []
    assert not scene.attempt.has_checkpoint


def test_a_large_checkpoint_is_refused(scene: Scene) -> None:
    """A checkpoint over 1 MiB is refused with its size."""
    with pytest.raises(TooLarge, match="checkpoint is 1048578 bytes"):
        scene.ctx.checkpoint("x" * 1024 * 1024)


@pytest.mark.parametrize("name", ["", "x" * 65, "é" * 33, "\ud800", None, 7])
def test_a_wrong_stage_is_refused(scene: Scene, name: Any) -> None:
    """The name of a stage is 1 to 64 bytes of text."""
    with pytest.raises(InvalidValue, match="stage name"):
        scene.ctx.stage(name)
    assert scene.frames() == []


def test_a_stage_is_sent(scene: Scene) -> None:
    """A stage is one frame with its name."""
    scene.ctx.stage("é" * 32)
    assert scene.frames() == [{"kind": "stage", "name": "é" * 32}]


@pytest.mark.parametrize(("line", "kept"), [("a line", "a line"), ("é" * 2000, "é" * 1024), (ValueError("x"), "x")])
def test_lines_are_cut(scene: Scene, line: Any, kept: str) -> None:
    """Of a log line 2 KB are kept; what is no text is logged as its text."""
    scene.ctx.log(line)
    assert scene.frames() == [{"kind": "log", "line": kept}]


# Stopping


@pytest.mark.parametrize("call", [lambda ctx: ctx.check(), lambda ctx: ctx.progress(0.5)])
def test_check_and_progress_raise_once_asked(scene: Scene, call: Callable[[Context], None]) -> None:
    """Once the attempt was asked to stop, these calls raise why, and send nothing."""
    scene.attempt.stop_asked = "pause"
    with pytest.raises(TaskStopped) as stopped:
        call(scene.ctx)
    assert stopped.value.why == "pause"
    assert scene.frames() == []


def test_a_checkpoint_is_saved_before_the_stop(scene: Scene) -> None:
    """A checkpoint is sent first, so that a paused task goes on from it, and then the stop is raised."""
    scene.attempt.stop_asked = "pause"
    with pytest.raises(TaskStopped):
        scene.ctx.checkpoint(7)
    assert scene.frames() == [{"kind": "checkpoint", "value": "7"}]


def test_other_calls_do_not_stop(scene: Scene) -> None:
    """A handler that cleans up may still log, name a stage and keep artifacts."""
    scene.attempt.stop_asked = "cancel"
    scene.ctx.log("cleaning up")
    scene.ctx.stage("clean-up")
    scene.ctx.artifact("partial.bin", b"half")
    assert [frame["kind"] for frame in scene.frames()] == ["log", "stage"]


def test_a_stop_passes_except_exception() -> None:
    """A handler's `except Exception` does not swallow a stop."""
    assert not issubclass(TaskStopped, Exception)


def test_nothing_is_sent_after_the_end(scene: Scene) -> None:
    """When the attempt is over, what a thread of the handler still reports is refused."""
    scene.attempt.finish("returned", result="null")
    with pytest.raises(StaleAttempt):
        scene.ctx.log("late")
    assert [frame["kind"] for frame in scene.frames()] == ["returned"]


# Artifacts


def test_bytes_are_kept(scene: Scene) -> None:
    """Bytes become a file under the task's id, described by name, size and digest."""
    kept = scene.ctx.artifact("image.png", b"pixels")
    assert kept == {"name": "image.png", "size": 6, "sha256": hashlib.sha256(b"pixels").hexdigest()}
    assert (scene.artifacts / "t1" / "image.png").read_bytes() == b"pixels"


@pytest.mark.parametrize("kind", [str, Path])
def test_files_are_copied(scene: Scene, tmp_path: Path, kind: Callable[[Path], str | Path]) -> None:
    """A path, as text or not, is copied; the file stays where it was."""
    source = tmp_path / "source"
    source.write_bytes(b"x" * 3_000_000)
    assert scene.ctx.artifact("copy", kind(source))["size"] == 3_000_000
    assert (scene.artifacts / "t1" / "copy").read_bytes() == source.read_bytes()


def test_artifacts_are_replaced_whole(scene: Scene) -> None:
    """A second artifact of the same name replaces the first, and only files with given names are left."""
    scene.ctx.artifact("a", b"first")
    scene.ctx.artifact("a", b"second")
    assert [path.name for path in (scene.artifacts / "t1").iterdir()] == ["a"]
    assert (scene.artifacts / "t1" / "a").read_bytes() == b"second"


def test_a_failed_artifact_leaves_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing fails, the old file stays and no part of the new one is left."""
    scene.ctx.artifact("a", b"first")

    def full(_descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(context_module.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        scene.ctx.artifact("a", b"second")
    assert [path.name for path in (scene.artifacts / "t1").iterdir()] == ["a"]
    assert (scene.artifacts / "t1" / "a").read_bytes() == b"first"


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "/a", "../a", "a\\b", "a\x00", "a\n", "x" * 201, "\ud800", None, 7]
)
def test_artifact_names_are_plain(scene: Scene, name: Any) -> None:
    """A name that is not a plain file name is refused, so that nothing is written elsewhere."""
    with pytest.raises(InvalidValue, match="artifact name"):
        scene.ctx.artifact(name, b"x")
    assert not scene.artifacts.exists()


@pytest.mark.parametrize("data", [None, 7, ["x"], bytearray(b"x")])
def test_artifacts_are_bytes_or_paths(scene: Scene, data: Any) -> None:
    """Anything but bytes or a path is refused with its type."""
    with pytest.raises(InvalidValue, match=f"artifact: expected .* got {type(data).__name__}"):
        scene.ctx.artifact("a", data)


def test_a_missing_file_is_an_error(scene: Scene, tmp_path: Path) -> None:
    """A path without a file is the handler's error, and leaves nothing."""
    with pytest.raises(FileNotFoundError):
        scene.ctx.artifact("a", tmp_path / "not there")
    assert not scene.artifacts.exists()


def test_a_handler_can_let_its_process_end(scene: Scene) -> None:
    """The worker hears of it at once, so that it holds however the attempt ends."""
    scene.ctx.retire_process("x" * 1_000)
    assert scene.frames() == [{"kind": "retire", "retire": f"the handler asked for that: {'x' * 200}"}]

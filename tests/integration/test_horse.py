"""The real horse process, driven over its socket as a worker drives it."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ghostless.jobs.frames import Channel, Frame
from helpers import eventually, is_running

TESTS = Path(__file__).parents[1]
ENDINGS = {"returned", "raised", "stopped"}
ID = "t1"


class Rider:
    """The worker's side of one horse."""

    def __init__(self, folder: Path, *modules: str, output: Any = None) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ghostless.jobs.horse", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stdout=output,
                start_new_session=True,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{folder}"},
            )
        self.channel = Channel(ours)
        self.folder = folder
        self.backlog: list[Frame] = []
        self.begun: list[int] = []  # the attempts whose handlers were said to begin
        self.channel.send({"kind": "load", "modules": list(modules), "artifacts": "artifacts"})

    def next(self, seconds: float = 20.0) -> Frame:
        """Return the next frame; fail when none comes."""
        while not self.backlog:
            readable, _, _ = select.select([self.channel], [], [], seconds)
            assert readable, "no frame came"
            frames = self.channel.receive_ready()
            self.begun += [frame["attempt"] for frame in frames if frame["kind"] == "started"]
            self.backlog += [frame for frame in frames if frame["kind"] != "started"]
            assert self.backlog or not self.channel.is_ended, "the horse is gone"
        return self.backlog.pop(0)

    def until(self, *kinds: str) -> list[Frame]:
        """Return the frames up to the first of these kinds."""
        frames = [self.next()]
        while frames[-1]["kind"] not in kinds:
            frames.append(self.next())
        return frames

    def attempt(self) -> list[Frame]:
        """Return all frames about an attempt, up to its end."""
        return [frame for frame in self.until(*ENDINGS) if "attempt" in frame]

    def start(
        self,
        name: str,
        attempt: int = 1,
        checkpoint: Any = None,
        lease: float = 300.0,
        is_timed: bool | None = None,
        needs_permit: bool = False,
        **params: Any,
    ) -> None:
        """Order a task, without waiting for anything."""
        tmpdir = self.folder / f"tmp{attempt}"
        tmpdir.mkdir(exist_ok=True)
        order = {"task_id": ID, "attempt": attempt, "type": name, "params": params, "checkpoint": checkpoint}
        order |= {} if is_timed is None else {"is_timed": is_timed}
        order |= {"permit": True} if needs_permit else {}
        self.channel.send({"kind": "run", "until": time.monotonic() + lease, **order, "tmpdir": str(tmpdir)})

    def started(self, name: str, **order: Any) -> None:
        """Order a task and wait until its handler runs."""
        self.start(name, **order)
        assert self.until("log")[-1]["line"] == "started"

    def run(self, name: str, **order: Any) -> Frame:
        """Order a task and return how it ended."""
        self.start(name, **order)
        return self.until(*ENDINGS)[-1]

    def stop(self, attempt: int = 1, why: str = "cancel", *, force: bool = False, task_id: str = ID) -> None:
        """Ask an attempt to stop."""
        self.channel.send({"kind": "stop", "task_id": task_id, "attempt": attempt, "why": why, "force": force})

    def lease(self, until: float, attempt: int = 1) -> None:
        """Tell an attempt how long it may go on."""
        self.channel.send({"kind": "lease", "task_id": ID, "attempt": attempt, "until": until})

    def is_well(self) -> None:
        """Check that the horse still runs tasks, and that nothing of an earlier one reaches the next."""
        self.start("test.echo", attempt=99, value="well")
        frames = [frame for frame in self.attempt() if frame["attempt"] == 99]
        assert [frame["kind"] for frame in frames] == ["log", "returned"]

    def end(self) -> None:
        """End the process and its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        self.channel.close()


@pytest.fixture
def ride(tmp_path: Path) -> Iterator[Callable[..., Rider]]:
    """Start horses; they are ended whatever the test does."""
    riders: list[Rider] = []

    def start(*modules: str, **options: Any) -> Rider:
        riders.append(Rider(tmp_path, *modules, **options))
        return riders[-1]

    yield start
    for rider in riders:
        rider.end()


@pytest.fixture
def horse(ride: Callable[..., Rider]) -> Rider:
    """A horse that has loaded the test handlers."""
    rider = ride("handlers")
    assert [frame["kind"] for frame in rider.until("ready")] == ["loading", "ready"]
    return rider


# Loading


def test_ready_names_what_was_loaded(ride: Callable[..., Rider]) -> None:
    """A horse that has loaded its modules says so with every type as it is published, and its pid."""
    rider = ride("handlers")
    ready = rider.until("ready")[-1]
    assert (ready["kind"], ready["pid"]) == ("ready", rider.process.pid)
    echo = ready["types"]["test.echo"]
    assert set(echo) == {"queue", "policy", "schema", "description"}
    assert echo["description"] == "Return the value."


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def f(:", "SyntaxError"),
        ("import not_there", "No module named 'not_there'"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("from ghostless.jobs import task\n@task('x')\ndef f(ctx, a): ...", "parameter a"),
        ("from ghostless.jobs import task\n@task('x')\ndef f(ctx, a: object()): ...", "parameter a"),
        ("from ghostless.jobs import task\n@task('x')\ndef f(ctx, a: float = float('inf')): ...", "schema of x"),
    ],
)
def test_a_module_that_cannot_be_loaded(ride: Callable[..., Rider], tmp_path: Path, source: str, hint: str) -> None:
    """Whatever a module raises while it is imported is told with its name and traceback, and the horse exits with 1."""
    (tmp_path / "broken_tasks.py").write_text(source)
    rider = ride("handlers", "broken_tasks")
    broken = rider.until("broken")[-1]
    assert broken["module"] == "broken_tasks"
    assert hint in broken["traceback"]
    assert rider.process.wait(10) == 1


def test_a_module_that_ends_the_process(ride: Callable[..., Rider], tmp_path: Path) -> None:
    """A module that calls os._exit closes the channel without a word; the last one told of is to blame."""
    (tmp_path / "broken_tasks.py").write_text("import os; os._exit(3)")
    rider = ride("broken_tasks")
    assert rider.process.wait(10) == 3
    assert rider.channel.receive_ready() == [{"kind": "loading", "module": "broken_tasks"}]
    assert rider.channel.is_ended


# Running


def test_an_attempt_reports_and_returns(horse: Rider) -> None:
    """Each call of the context is one frame with the attempt's id and number, and the result is the last one."""
    horse.start("test.report", attempt=3, checkpoint={"step": 0})
    frames = horse.attempt()
    assert all((frame["task_id"], frame["attempt"]) == (ID, 3) for frame in frames)
    assert [frame["kind"] for frame in frames] == ["log", "progress", "stage", "checkpoint", "returned"]
    assert (frames[1]["fraction"], frames[1]["message"]) == (0.25, "a quarter")
    assert frames[2]["name"] == "watermark"
    assert json.loads(frames[3]["value"]) == {"step": 1}
    result = json.loads(frames[4]["result"])
    assert (result["task_id"], result["attempt"], result["resumed_from"]) == (ID, 3, {"step": 0})
    assert (horse.folder / "artifacts" / ID / "file.txt").read_text() == "from a file"


def test_who_waits_for_word_that_a_handler_begins_is_told(horse: Rider) -> None:
    """A worker of an older version waits for it with each attempt; one that times it itself spares the frame."""
    for attempt, is_timed in ((1, False), (2, None), (3, True)):
        horse.run("test.echo", attempt=attempt, is_timed=is_timed, value="x")
    assert [1, 2] == horse.begun


def test_handlers_run_in_the_process_that_imported_them(horse: Rider) -> None:
    """The handler's module is imported in the process that runs it, in its main thread, with nothing to read."""
    result = json.loads(horse.run("test.process")["result"])
    assert result["imported_in"] == result["pid"] == horse.process.pid
    assert (result["thread"], result["input"]) == (True, "")


def test_a_horse_stays_warm(horse: Rider) -> None:
    """One process runs task after task, and a type's setup runs once for all of them."""
    first, second = horse.run("test.model"), horse.run("test.model", attempt=2)
    assert first["result"] == second["result"] != "null"
    assert horse.run("test.setup", attempt=3)["result"] == "null"


def test_a_failing_setup_is_tried_again(horse: Rider) -> None:
    """A setup that raises fails the attempt, says so, and is not remembered."""
    failed = horse.run("test.flaky_model")
    assert (failed["kind"], failed["reason"], failed["retryable"]) == ("raised", "exception", True)
    assert failed["message"] == "setup of test.flaky_model failed: SystemExit: no GPU"
    assert horse.run("test.flaky_model", attempt=2)["result"] == '"loaded"'


@pytest.mark.parametrize("value", [None, 0, "ü\u2028\x00", [1, {"a": [True, None]}], {"k": 1.5e300}])
def test_results_are_json_texts(horse: Rider, value: Any) -> None:
    """A result arrives as the JSON text that is stored."""
    assert json.loads(horse.run("test.echo", value=value)["result"]) == value


def test_large_params_pass(horse: Rider) -> None:
    """Params and results at their limit pass, also when JSON has to escape every character."""
    value = "ü" * (512 * 1024 - 2)
    assert json.loads(horse.run("test.echo", value=value)["result"]) == value


# Failing


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("plain", "ValueError: this is what went wrong"),
        ("interrupt", "KeyboardInterrupt"),
        ("base", "BaseException: not even an Exception"),
        ("unreadable", "Unreadable: (its message cannot be read: RuntimeError)"),
        ("two arguments", "TwoArguments: one"),
        ("bytes", "ValueError: (b'\\xff', {1: None})"),
        ("value", "ValueError: (its message cannot be read: RuntimeError)"),
        ("surrogate", "ValueError: half a pair: ?"),
        ("lines", "ValueError: first second third"),
        ("memory", "MemoryError: out of memory"),
        ("deep", "RecursionError: maximum recursion depth exceeded"),
        ("stopped", "TaskStopped: the attempt was asked to stop: the handler made this up"),
        ("params", "InvalidParams: params.wrong: Extra inputs are not permitted"),
    ],
)
def test_whatever_a_handler_raises_is_a_failure(horse: Rider, how: str, message: str) -> None:
    """Any exception ends the attempt and not the horse; its message is one line and its traceback a text."""
    failed = horse.run("test.raise", how=how)
    assert (failed["kind"], failed["reason"], failed["retryable"], failed["asked"]) == ("raised", "exception", True, 0)
    assert failed["message"].startswith(message)
    assert failed["error"].startswith("Traceback")
    assert "handlers.py" in failed["error"]
    horse.is_well()


def test_an_exit_of_the_handler_is_a_crash(horse: Rider) -> None:
    """A handler that calls sys.exit counts as one whose process ended, with the code; the horse itself lives on."""
    failed = horse.run("test.raise", how="exit")
    assert (failed["kind"], failed["reason"], failed["retryable"]) == ("raised", "crashed", True)
    assert failed["message"] == "the handler wanted its process to end: SystemExit: 3"
    horse.is_well()


def test_tracebacks_begin_in_the_handlers_code(horse: Rider) -> None:
    """A traceback shows the handler's frames and none of the runner's."""
    assert "execution.py" not in horse.run("test.raise")["error"]


def test_long_messages_are_cut(horse: Rider) -> None:
    """A message of 1 MB is cut to 2 KB, and its traceback to 64 KB with head and tail kept."""
    failed = horse.run("test.raise", how="long")
    assert len(failed["message"]) == 2048
    assert len(failed["error"]) <= 64 * 1024
    assert failed["error"].startswith("Traceback")
    assert failed["error"].endswith("tail\n")


@pytest.mark.parametrize(("seconds", "asked"), [(2.5, 2500), (0, 0), (-5, 0), (1e300, 366 * 86_400_000)])
def test_retry_later_asks_for_a_delay(horse: Rider, seconds: float, asked: int) -> None:
    """RetryLater fails the attempt and carries the delay in ms, whatever was asked for."""
    failed = horse.run("test.raise", how="later", seconds=seconds)
    assert (failed["reason"], failed["retryable"], failed["asked"]) == ("exception", True, asked)


def test_retry_later_with_nonsense_asks_for_nothing(horse: Rider) -> None:
    """A delay that is no number is no delay."""
    assert horse.run("test.raise", how="later for ever")["asked"] == 0


def test_never_retry_is_final(horse: Rider) -> None:
    """An exception that the type never retries says so."""
    failed = horse.run("test.raise", how="never")
    assert (failed["reason"], failed["retryable"]) == ("exception", False)


@pytest.mark.parametrize("name", ["test.nothing", "os.system", "builtins.eval"])
def test_unknown_type(horse: Rider, name: str) -> None:
    """A type without a handler is refused with what there is, and retrying is no use: no name is imported."""
    failed = horse.run(name)
    assert (failed["reason"], failed["retryable"]) == ("unknown_type", False)
    assert f"'{name}'" in failed["message"]
    assert "test.echo" in failed["message"]


def test_invalid_params_name_every_fault(horse: Rider) -> None:
    """Params that do not fit are refused with all that is wrong, and the handler is not called."""
    failed = horse.run("test.steps", count="many", extra=1)
    assert (failed["reason"], failed["retryable"]) == ("invalid_params", False)
    assert "params.count" in failed["message"]
    assert "params.extra" in failed["message"]


@pytest.mark.parametrize(
    ("what", "hint"),
    [
        ("nan", "result.scores[1]: expected JSON, got nan"),
        ("set", "result.images[0].tags: expected JSON, got set"),
        ("surrogate", "result.text: expected JSON, got text with half of a surrogate pair"),
        ("large", "result is 1048578 bytes, at most 1048576"),
        ("cycle", "more than 200 levels"),
        ("deep", "more than 200 levels"),
        ("lambda", "result: expected JSON, got function"),
        ("key", "a key of result: expected JSON, got tuple"),
        ("file", "result: expected JSON, got _io.TextIOWrapper"),
        ("generator", "result: expected JSON, got generator"),
        ("bytes", "result: expected JSON, got bytes"),
        ("unspeakable", "result.images[0]: expected JSON, got handlers.Unspeakable"),
        ("unspeakable key", "a key of result: expected JSON, got handlers.Unspeakable"),
    ],
)
def test_bad_results(horse: Rider, what: str, hint: str) -> None:
    """A result that cannot be stored is a failure of its own kind, naming what it is and where."""
    failed = horse.run("test.result", what=what)
    assert (failed["kind"], failed["reason"], failed["retryable"]) == ("raised", "bad_result", False)
    assert hint in failed["message"]
    horse.is_well()


# Stopping


@pytest.mark.parametrize("how", ["check", "progress", "checkpoint"])
@pytest.mark.parametrize("why", ["cancel", "pause", "timeout", "shutdown"])
def test_a_handler_stops_at_its_next_call(horse: Rider, how: str, why: str) -> None:
    """Asked to stop, a handler stops at its next call of the context, and its horse stays warm."""
    horse.started("test.hang", how=how)
    horse.stop(why=why)
    frames = horse.until(*ENDINGS)
    stopped = frames[-1]
    assert (stopped["kind"], stopped["why"]) == ("stopped", why)
    assert (stopped["checkpointed"], stopped["interrupted"]) == (how == "checkpoint", False)
    horse.is_well()


def test_the_newest_reason_to_stop_counts(horse: Rider) -> None:
    """A handler that is to stop for two reasons tells the later one."""
    horse.started("test.hang", how="sleep")
    horse.stop(why="pause")
    horse.stop(why="cancel", force=True)
    assert horse.until(*ENDINGS)[-1]["why"] == "cancel"


@pytest.mark.parametrize("how", ["sleep", "spin"])
def test_force_reaches_a_handler_that_does_not_look(horse: Rider, how: str) -> None:
    """A forced stop is raised in the main thread, wherever the handler is."""
    horse.started("test.hang", how=how)
    horse.stop(force=True)
    stopped = horse.until(*ENDINGS)[-1]
    assert (stopped["kind"], stopped["threads"]) == ("stopped", 0)
    horse.is_well()


def test_without_force_a_handler_that_does_not_look_goes_on(horse: Rider) -> None:
    """A gentle stop interrupts nothing; only the next call of the context does."""
    horse.started("test.hang", how="sleep")
    horse.stop()
    assert not select.select([horse.channel], [], [], 0.3)[0]


def test_a_swallowed_stop_is_a_return(horse: Rider) -> None:
    """A handler that catches the stop and returns has returned; the worker decides what that means."""
    horse.started("test.hang", how="swallow")
    assert horse.next()["line"] == "inside"
    horse.stop(force=True)
    assert horse.until(*ENDINGS)[-1]["kind"] == "returned"


def test_force_can_be_repeated(horse: Rider) -> None:
    """Each forced stop is raised once; a handler that swallows all of them goes on until it is killed."""
    horse.started("test.hang", how="stubborn")
    for _ in range(100):
        assert horse.next()["line"] == "here again"
        horse.stop(force=True)


@pytest.mark.parametrize("how", ["native", "gil", "lock"])
def test_native_code_is_killed(horse: Rider, how: str) -> None:
    """What no signal handler can interrupt, SIGKILL ends; the channel then ends too."""
    horse.started("test.hang", how=how)
    horse.stop(force=True)
    os.killpg(horse.process.pid, signal.SIGKILL)
    assert horse.process.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("change", [{"attempt": 2}, {"attempt": 0}, {"task_id": "other"}])
def test_a_stop_for_somebody_else_is_ignored(horse: Rider, change: dict[str, Any]) -> None:
    """A stop reaches the attempt that it names, and no other."""
    horse.started("test.steps", count=20, pause=0.01)
    horse.stop(force=True, **change)
    assert horse.until(*ENDINGS)[-1]["kind"] == "returned"


def test_a_stop_may_overtake_the_start(horse: Rider) -> None:
    """A stop that arrives before the handler has begun keeps it from beginning."""
    for attempt in range(1, 51):
        horse.start("test.hang", attempt=attempt, how="sleep")
        horse.stop(attempt, force=True)
        assert horse.until(*ENDINGS)[-1]["kind"] == "stopped"


def test_who_was_passed_over_and_ordered_again_can_be_stopped(horse: Rider) -> None:
    """Both orders of the attempt lie there before the first one is passed over."""
    horse.started("test.hang", how="check")
    horse.start("test.hang", attempt=2, needs_permit=True, how="check")
    horse.start("test.hang", attempt=2, how="check")
    horse.stop()
    assert "stopped" == horse.until(*ENDINGS)[-1]["kind"]
    assert "started" == horse.until("log")[-1]["line"]
    horse.stop(attempt=2)
    assert "stopped" == horse.until(*ENDINGS)[-1]["kind"]
    horse.is_well()


def test_a_late_stop_hits_nobody(horse: Rider) -> None:
    """A forced stop that races the end of its attempt ends that attempt or nothing, and each attempt ends once."""
    for attempt in range(1, 301):
        horse.start("test.echo", attempt=attempt, value=attempt)
        if attempt % 3:
            assert horse.until("log")[-1]["line"] == "started"
        horse.stop(attempt, force=True)
        end = horse.until(*ENDINGS)[-1]
        assert end["attempt"] == attempt
        assert end["kind"] in ("returned", "stopped")
    horse.is_well()


def test_a_forced_stop_leaves_frames_whole(horse: Rider) -> None:
    """A forced stop in the middle of a frame waits until the frame is sent: the channel stays readable."""
    for attempt in range(1, 31):
        horse.started("test.chatty", attempt=attempt)
        horse.stop(attempt, force=True)
        frames = horse.until(*ENDINGS)
        assert frames[-1]["kind"] == "stopped"
        assert all(len(frame["line"]) == 2000 for frame in frames[:-1])
    horse.is_well()


def test_setup_can_be_stopped(horse: Rider) -> None:
    """A forced stop reaches a setup that hangs, and the setup is not remembered as done."""
    for attempt in (1, 2):
        horse.start("test.slow_model", attempt=attempt)
        eventually(lambda: _assert_there(horse.folder / "setup-runs")).unlink()
        horse.stop(attempt, why="timeout", force=True)
        assert horse.until(*ENDINGS)[-1]["kind"] == "stopped"


def _assert_there(path: Path) -> Path:
    assert path.exists()
    return path


def test_a_handler_may_take_the_signal(horse: Rider) -> None:
    """A handler that ignores the signal, or leaves the folder, spoils nothing for the next one."""
    horse.run("test.signals", attempt=1)
    (horse.folder / "tmp1").rmdir()
    folder = json.loads(horse.run("test.process", attempt=2)["result"])["folder"]
    assert folder == str(horse.folder)
    horse.started("test.hang", attempt=3, how="sleep")
    horse.stop(3, force=True)
    assert horse.until(*ENDINGS)[-1]["kind"] == "stopped"


def test_threads_left_behind_are_refused(horse: Rider) -> None:
    """After an attempt has ended no frame of it is sent, also when a thread of its handler goes on."""
    ended = horse.run("test.thread")
    assert (ended["kind"], ended["threads"]) == ("returned", 1)
    horse.start("test.echo", attempt=2)
    assert [frame["attempt"] for frame in horse.attempt()] == [2, 2]


# Coroutines


def test_coroutines_run(horse: Rider) -> None:
    """A handler may be a coroutine; its result and its failure are those of any other."""
    assert horse.run("test.async")["result"] == '"from a coroutine"'
    assert horse.run("test.async", attempt=2, how="raise")["message"] == "ValueError: from a coroutine"


@pytest.mark.parametrize("how", ["check", "group"])
def test_coroutines_stop_when_asked(horse: Rider, how: str) -> None:
    """A coroutine stops at its next call of the context, also inside a task group."""
    horse.started("test.async", how=how)
    horse.stop()
    assert horse.until(*ENDINGS)[-1]["kind"] == "stopped"
    horse.is_well()


def test_coroutines_clean_up_when_forced(horse: Rider) -> None:
    """A forced stop reaches a coroutine that waits, and its `finally` runs."""
    horse.started("test.async", how="hang")
    assert horse.next()["line"] == "inside"
    horse.stop(force=True)
    frames = horse.until(*ENDINGS)
    assert [frame["kind"] for frame in frames] == ["log", "stopped"]
    assert frames[0]["line"] == "cleaned up"
    horse.is_well()


# Ending


@pytest.mark.parametrize(("how", "code"), [("kill", -9), ("segfault", -11), ("exit", 7)])
def test_a_horse_that_dies(horse: Rider, how: str, code: int) -> None:
    """A handler that ends its process ends the channel, and the exit status says how."""
    horse.started("test.die", how=how)
    assert horse.process.wait(5) == code
    assert horse.channel.receive_ready() == []
    assert horse.channel.is_ended


def test_exit_tears_down(ride: Callable[..., Rider]) -> None:
    """Told to exit, a horse runs the teardown of each type that was set up, whatever they raise, and exits with 0."""
    rider = ride("handlers", output=subprocess.PIPE)
    rider.until("ready")
    loaded = json.loads(rider.run("test.model")["result"])["loaded"]
    rider.run("test.flaky_model", attempt=2)
    rider.run("test.flaky_model", attempt=3)
    rider.channel.send({"kind": "exit"})
    assert rider.process.wait(10) == 0
    assert rider.process.stdout
    assert f"unloaded {loaded}".encode() in rider.process.stdout.read()


def test_signals_of_the_terminal(horse: Rider) -> None:
    """Ctrl-C and SIGTERM to a whole group are the worker's business; what a handler starts gets them as usual."""
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(horse.process.pid, number)
        horse.is_well()


def test_a_forked_child_cannot_speak_for_the_attempt(horse: Rider) -> None:
    """What a handler forks has no channel, so it can neither send frames nor keep the channel open."""
    assert json.loads(horse.run("test.fork")["result"]) == "refused"


def test_garbage_ends_the_horse(horse: Rider) -> None:
    """A horse that cannot understand its worker ends itself."""
    with socket.socket(fileno=os.dup(horse.channel.fileno())) as raw:
        raw.sendall(b"\xff\xff\xff\xff")
    assert horse.process.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("how", ["sleep", "spin", "native"])
def test_nothing_outlives_the_worker(tmp_path: Path, how: str) -> None:
    """When a worker is killed, its horse dies at once, and so do the children that a handler started.

    A child in a session of its own is out of the kernel's reach then; it is ended by every orderly stop.
    """
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path), how],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS / 'integration'}"},
    )
    assert worker.stdout
    with worker.stdout:
        *pids, apart = (int(pid) for pid in worker.stdout.readline().split())
    try:
        assert all(map(is_running, pids))
        worker.kill()
        eventually(lambda: _assert_gone(pids), seconds=1)
    finally:
        worker.kill()
        worker.wait()
        for group in (pids[0], apart):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


def _assert_gone(pids: list[int]) -> None:
    assert not [pid for pid in pids if is_running(pid)]


WORKER = """
import sys, time
from pathlib import Path
from test_horse import Rider

rider = Rider(Path(sys.argv[1]), "handlers")
rider.until("ready")
rider.start("test.children", how=sys.argv[2])
print(rider.until("log")[-1]["line"], flush=True)
time.sleep(3600)
"""


# The lease


def test_a_lease_that_is_over_ends_the_horse(horse: Rider) -> None:
    """Also when the word about it comes late: it names a moment, and gives no time anew."""
    horse.started("test.hang", how="sleep")
    horse.lease(time.monotonic() - 1)
    assert -signal.SIGKILL == horse.process.wait(timeout=10)


def test_no_handler_begins_when_the_lease_is_over(horse: Rider) -> None:
    """A horse that was frozen with an order unread does nothing of it: by now another one may run the task."""
    horse.start("test.echo", lease=-1)
    assert -signal.SIGKILL == horse.process.wait(timeout=10)
    assert [] == horse.channel.receive_ready()


def test_a_lease_is_for_the_attempt_that_runs(horse: Rider) -> None:
    """A word about an attempt that has ended, or another one, never ends an idle horse or somebody else's handler."""
    assert "returned" == horse.run("test.echo", value=1)["kind"]
    horse.lease(time.monotonic() - 1)
    horse.lease(time.monotonic() - 1, attempt=98)
    with pytest.raises(subprocess.TimeoutExpired):
        horse.process.wait(timeout=1)
    horse.is_well()


def test_each_attempt_has_a_lease_of_its_own(horse: Rider) -> None:
    """What is left of an earlier one, over or not, ends no later handler, and lets none run longer."""
    assert "returned" == horse.run("test.echo", value=1, lease=1.0)["kind"]
    horse.started("test.hang", attempt=2, how="sleep")
    with pytest.raises(subprocess.TimeoutExpired):
        horse.process.wait(timeout=1.5)
    horse.stop(attempt=2, force=True)
    assert "stopped" == horse.until(*ENDINGS)[-1]["kind"]
    horse.start("test.hang", attempt=3, how="sleep", lease=0.3)
    assert -signal.SIGKILL == horse.process.wait(timeout=10)

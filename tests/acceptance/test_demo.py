"""`ghostless demo` and `ghostless dev` as a stranger starts them: in an empty folder, with one command."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from helpers import eventually, expect
from PIL import Image

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MARK = "GHOSTLESS_TEST_MARK"
"""A variable by which every process of one test is known: children inherit it, whatever group they are in."""

SETTINGS = "GHOSTLESS_"


@dataclass
class Stranger:
    """A person with an empty folder and a shell."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    path: str = os.environ["PATH"]
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a verb; its output goes to files of the folder."""
        with self.output.open("w") as output, self.errors.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "ghostless.jobs.cli", *arguments],
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                text=True,
                start_new_session=True,
                preexec_fn=_as_in_a_terminal,
            )
        self.started.append(process)
        return process

    def ask(self, *arguments: str, code: int = 0, **variables: str) -> str:
        """Run a verb to its end, check its exit code, and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "ghostless.jobs.cli", *arguments],
            cwd=self.folder,
            env=self.environment() | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert code == done.returncode, done.stdout + done.stderr
        return done.stdout + done.stderr

    def environment(self) -> dict[str, str]:
        """Return a shell's environment, without any settings of whoever runs the tests."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
        return clean | {MARK: self.mark, "PATH": self.path}

    @property
    def output(self) -> Path:
        """What the started verb printed."""
        return self.folder / "stdout.txt"

    @property
    def errors(self) -> Path:
        """What the started verb complained of."""
        return self.folder / "stderr.txt"

    def said(self, pattern: str, seconds: float = 60.0) -> re.Match[str]:
        """Wait until the started verb printed something; fail at once when it ended without."""

        def check() -> re.Match[str]:
            found = re.search(pattern, self.output.read_text())
            if found is None and self.started[-1].poll() is not None:
                pytest.fail(f"it ended without saying {pattern!r}: {self.everything()}")
            assert found, self.everything()
            return found

        return eventually(check, seconds)

    def everything(self) -> str:
        """Return all that was written, for the message of a failed test."""
        logs = sorted((self.folder / ".ghostless" / "logs").glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in [self.output, self.errors, *logs])

    def processes(self) -> list[psutil.Process]:
        """Return every process of this person that runs."""
        return [process for process in psutil.process_iter() if self._owns(process)]

    def _owns(self, process: psutil.Process) -> bool:
        # redis-server writes its title over its environment, but lives in its folder.
        try:
            place = Path(process.cwd())
            lives_here = self.folder in (place, *place.parents) or process.environ().get(MARK) == self.mark
            return lives_here and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):
            return False

    def leave(self) -> None:
        """Kill whatever is left."""
        for process in self.processes():
            process.kill()
        for process in self.started:
            process.wait()


def _as_in_a_terminal() -> None:
    """Undo what nohup does to whoever runs the tests."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    """A person in an empty folder, of whom nothing stays."""
    person = Stranger(tmp_path)
    yield person
    person.leave()


def command_of(process: psutil.Process) -> list[str]:
    """Return the command of a process; nothing when it has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def nothing_runs(stranger: Stranger) -> None:
    """Check that no process of the person is left."""
    assert [] == [command for process in stranger.processes() if (command := command_of(process))]


def started_dev(stranger: Stranger, *options: str) -> str:
    """Start `dev` on any free port, wait until it is ready, and return the URL of its Redis."""
    stranger.start("dev", "--port", "0", *options)
    return stranger.said(r"export GHOSTLESS_REDIS_URL=(\S+)")[1]


def test_the_demo_ends_as_planned_and_leaves_nothing_but_pictures(stranger: Stranger) -> None:
    """Five pictures that are pictures, one cancel, one retry, told with times; afterwards no process is left."""
    started_at = time.monotonic()
    process = stranger.start("demo")
    process.wait(280)
    assert 0 == process.returncode, stranger.everything()
    nothing_runs(stranger)
    print(f"the demo took {time.monotonic() - started_at:.0f} s")
    shown = stranger.output.read_text()
    assert re.search(r"cancelled picture 4 by the API at \d\d %", shown)
    stories = re.findall(r"^(\d) .*\d\d:\d\d:\d\d   (PENDING .*)$", shown, re.MULTILINE)
    ends = {int(number): re.sub(r"[ \d.]", "", story).split("->")[-1] for number, story in stories}
    assert {1: "SUCCESS", 2: "SUCCESS", 3: "SUCCESS", 4: "CANCELLED", 5: "SUCCESS", 6: "SUCCESS"} == ends
    assert re.search(r"FAILED [\d.]+ -> RETRY_WAITING [\d.]+ -> PENDING [\d.]+ -> PROCESSING", dict(stories)["2"])
    assert "\x1b" not in shown
    pictures = sorted((stranger.folder / "demo-output").iterdir())
    assert ["1", "2", "3", "5", "6"] == [picture.name.partition("-")[0] for picture in pictures]
    for picture in pictures:
        with Image.open(picture) as image:
            image.load()
            assert ("PNG", (512, 512)) == (image.format, image.size)
            assert len(image.getcolors(512 * 512) or []) > 1000, "a picture has many colours"


def test_what_the_demo_did_is_still_there_afterwards(stranger: Stranger) -> None:
    """The data outlives the stack: `dev` in the same folder shows what an earlier one was given."""
    url = started_dev(stranger)
    task_id = stranger.ask("submit", "image.generate", "-p", "prompt=x", "--delay", "3600", GHOSTLESS_REDIS_URL=url)
    stranger.started[-1].send_signal(signal.SIGTERM)
    assert 0 == stranger.started[-1].wait(60)
    url = started_dev(stranger)
    assert "SCHEDULED" in stranger.ask("status", task_id.split()[0], GHOSTLESS_REDIS_URL=url)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_of_the_demo_leaves_nothing_running(stranger: Stranger, number: signal.Signals) -> None:
    """Every process is gone when the demo is; exit code 1 and one line say that it did not end."""
    process = stranger.start("demo")
    stranger.said(r"PROCESSING +25 %")
    process.send_signal(number)
    assert 1 == process.wait(60), stranger.everything()
    nothing_runs(stranger)
    assert f"Error: stopped by {number.name}\n" == stranger.errors.read_text()


def test_killing_the_supervisor_leaves_nothing_running(stranger: Stranger) -> None:
    """SIGKILL cannot be caught: the watcher ends what the supervisor started."""
    started_dev(stranger)
    assert len(stranger.processes()) >= 6
    stranger.started[-1].kill()
    eventually(lambda: nothing_runs(stranger), seconds=30)


def test_dev_stays_until_ctrl_c_and_ends_well(stranger: Stranger) -> None:
    """Exit code 0, and everything it said was true: a task submitted as it told succeeds."""
    url = started_dev(stranger)
    shown = stranger.output.read_text()
    assert ["redis", "watchdog", "scheduler", "worker", "web"] == [line.split()[0] for line in shown.splitlines()[:5]]
    small = ("-p", "prompt=x", "-p", "width=32", "-p", "height=32")
    task = json.loads(stranger.ask("submit", "image.generate", *small, "--wait", "--json", GHOSTLESS_REDIS_URL=url))
    assert (stranger.folder / ".ghostless" / "artifacts" / task["id"] / task["result"]["artifact"]).exists()
    stranger.started[-1].send_signal(signal.SIGINT)
    assert 0 == stranger.started[-1].wait(60), stranger.everything()
    assert stranger.output.read_text().endswith("everything is stopped\n")
    nothing_runs(stranger)


def test_dev_works_without_any_redis_installed(stranger: Stranger) -> None:
    """The stand-in runs tasks, and handlers of what happened; one line says that it keeps nothing."""
    stranger.path = "/nonexistent"
    url = started_dev(stranger, "--handlers", "ghostless.examples.alerts")
    assert "no redis-server found: a stand-in for trying things out, which keeps nothing" in stranger.output.read_text()
    small = ("-p", "prompt=x", "-p", "width=32", "-p", "height=32", "-p", "fail_first=true")
    task = json.loads(stranger.ask("submit", "image.generate", *small, "--wait", "--json", GHOSTLESS_REDIS_URL=url))
    assert ("SUCCESS", 2) == (task["state"], task["attempt"])
    stranger.ask("submit", "image.generate", *small, "--max-retries", "0", "--wait", code=1, GHOSTLESS_REDIS_URL=url)
    told = stranger.folder / ".ghostless" / "logs" / "listener.log"
    eventually(lambda: expect("image.generate of nobody is FAILED" in told.read_text()), seconds=20)
    stranger.started[-1].send_signal(signal.SIGINT)
    assert 0 == stranger.started[-1].wait(60), stranger.everything()
    nothing_runs(stranger)


def is_worker(command: list[str]) -> bool:
    """Tell the worker's process from the others by its command."""
    return "worker" in command


def is_redis(command: list[str]) -> bool:
    """Tell the server's process from the others by its command."""
    return any("redis-server" in word for word in command)


@pytest.mark.parametrize(("name", "is_it"), [("worker", is_worker), ("redis", is_redis)])
def test_the_end_of_a_process_is_told_and_ends_dev(
    stranger: Stranger, name: str, is_it: Callable[[list[str]], bool]
) -> None:
    """With how it ended and the last lines of its log; the others are stopped."""
    started_dev(stranger)
    next(process for process in stranger.processes() if is_it(command_of(process))).kill()
    assert 1 == stranger.started[-1].wait(60)
    told = stranger.errors.read_text()
    assert told.startswith(f"Error: {name} was ended by SIGKILL; the last lines of .ghostless/logs/{name}.log:\n  | ")
    eventually(lambda: nothing_runs(stranger))


def test_a_second_stack_is_refused_by_folder_and_by_port(stranger: Stranger, tmp_path: Path) -> None:
    """Each in one line that says what is in the way; the first one is not disturbed."""
    started_dev(stranger)
    port = stranger.said(r"web +http://127.0.0.1:(\d+)")[1]
    pid = stranger.started[-1].pid
    for verb in (["dev", "--port", "0"], ["demo"]):
        assert f"Error: process {pid} runs in {tmp_path}/.ghostless already; stop it first\n" == stranger.ask(
            *verb, code=1
        )
    (tmp_path / "elsewhere").mkdir()
    other = Stranger(tmp_path / "elsewhere", stranger.mark)
    refusal = f"Error: port {port} of 127.0.0.1 is taken; choose another one with --port\n"
    assert refusal == other.ask("dev", "--port", port, code=1)
    assert stranger.started[-1].poll() is None


MY_TASKS = """
from ghostless.jobs import Context, task

@task("hello", queue="q")
def hello(ctx: Context, name: str) -> str:
    return f"hello {name}"

@task("tick", queue="q", cron="* * * * * *")
def tick(ctx: Context) -> None:
    pass
"""


def test_handlers_of_ones_own_are_served(stranger: Stranger) -> None:
    """`dev --tasks` finds a module of the current folder; the example's packages are not asked for, its type not told.

    What has a time runs at it.
    """
    (stranger.folder / "my_tasks.py").write_text(MY_TASKS)
    url = started_dev(stranger, "--tasks", "my_tasks", "--queue", "q")
    task = json.loads(stranger.ask("submit", "hello", "-p", "name=ann", "--wait", "--json", GHOSTLESS_REDIS_URL=url))
    assert "hello ann" == task["result"]
    assert "image.generate" not in stranger.output.read_text()
    listing = ("list", "--type", "tick", "--state", "SUCCESS")
    eventually(lambda: expect("tick" in stranger.ask(*listing, GHOSTLESS_REDIS_URL=url)), seconds=20)


def test_handlers_that_cannot_be_loaded_are_told(stranger: Stranger) -> None:
    """Exit 1, nothing is left, and the worker's last words name the module and the place."""
    (stranger.folder / "broken_tasks.py").write_text("import ghostless\n\n1 / 0\n")
    assert 1 == stranger.start("dev", "--port", "0", "--tasks", "broken_tasks").wait(60)
    told = stranger.errors.read_text()
    assert "worker ended with exit code 1" in told
    assert "broken_tasks could not be loaded: ZeroDivisionError: division by zero" in told
    assert "broken_tasks.py, line 3" in told
    assert "Traceback" not in told
    nothing_runs(stranger)

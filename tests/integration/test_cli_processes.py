"""The verbs that run on: how they start, refuse and stop, with real processes."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from ghostless.statemachine import State
from helpers import eventually
from redis import Redis

MY_TASKS = """
from ghostless.jobs import Context, task

@task("hello", queue="q", max_retries=0)
def hello(ctx: Context, name: str) -> str:
    if name == "nobody":
        raise ValueError("there is nobody")
    return f"hello {name}"
"""

Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def environment(settings: Settings, redis: Redis) -> dict[str, str]:
    """A shell's environment that names the empty database of the test."""
    return {**os.environ, "GHOSTLESS_REDIS_URL": settings.redis_url, "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def ask(environment: dict[str, str], tmp_path: Path) -> Ask:
    """Run a verb to its end in a folder with handlers; return its exit code and what it printed."""
    (tmp_path / "my_tasks.py").write_text(MY_TASKS)
    (tmp_path / "broken_tasks.py").write_text("1 / 0\n")

    def run(*arguments: str, **variables: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "ghostless.jobs.cli", *arguments],
            cwd=tmp_path,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    return run


def test_types_are_published_before_any_worker_runs(ask: Ask, client: Client) -> None:
    """From modules of the current folder; then they can be submitted."""
    assert (0, "published: hello\n") == ask("types", "publish", "--tasks", "my_tasks")
    assert {"hello"} == set(client.types())
    code, shown = ask("types", "publish", "--json", GHOSTLESS_TASKS="my_tasks")
    assert (0, {"published": ["hello"]}) == (code, json.loads(shown))


@pytest.mark.parametrize("verb", [["types", "publish"], ["worker", "q"]])
@pytest.mark.parametrize(
    ("options", "code", "parts"),
    [
        ([], 2, ["--tasks: name the modules"]),
        (["--tasks", "a b"], 2, ["--tasks: expected names of Python modules"]),
        (["--tasks", "no_such"], 1, ["no_such could not be loaded: ModuleNotFoundError: No module named 'no_such'\n"]),
        (["--tasks", "broken_tasks"], 1, ["ZeroDivisionError: division by zero", "broken_tasks.py, line 1)"]),
    ],
)
def test_modules_that_cannot_be_used_are_told(
    ask: Ask, client: Client, verb: list[str], options: list[str], code: int, parts: list[str]
) -> None:
    """In one line that names the module, the fault and the place; nothing is published."""
    answer, shown = ask(*verb, *options)
    assert code == answer
    assert all(part in shown for part in parts), shown
    assert "Traceback" not in shown
    assert {} == client.types()


def test_a_burst_worker_ends_when_its_queues_are_empty(ask: Ask, client: Client) -> None:
    """It runs what is there and ends with exit code 0; `submit --wait` then tells the outcomes."""
    ask("types", "publish", "--tasks", "my_tasks")
    good, bad = (client.submit("hello", {"name": name}).task_id for name in ("ann", "nobody"))
    code, shown = ask("worker", "q", "--tasks", "my_tasks", "--burst")
    assert 0 == code, shown
    assert [State.SUCCESS, State.FAILED] == [client.get(task_id).state for task_id in (good, bad)]
    assert "ValueError: there is nobody" in ask("status", bad)[1]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["two words"], "'QUEUE...': expected text matching"),
        (["q", "--name", "a b"], "'--name': expected text matching"),
        (["q", "--tasks", "my_tasks", "--drain", "soon"], "--drain: expected a number of seconds"),
        (["q", "--tasks", "my_tasks", "-n", "0"], "'-n': 0 is not in the range"),
        (["q", "--tasks", "my_tasks", "--gpus", ""], "--gpus: expected all, or different GPUs"),
        (["q", "--tasks", "my_tasks", "--gpus", "all"], "--gpus: expected numbers such as 0,1"),
        ([], "Missing argument 'QUEUE...'"),
    ],
)
def test_a_worker_refuses_what_it_cannot_use(ask: Ask, options: list[str], part: str) -> None:
    """Wrong usage is exit code 2, by name."""
    code, shown = ask("worker", *options)
    assert 2 == code
    assert part in shown


@pytest.mark.parametrize("verb", [["worker", "q", "--tasks", "my_tasks"], ["watchdog"]])
def test_without_redis_a_process_does_not_start(ask: Ask, verb: list[str]) -> None:
    """Exit code 3 at the start; an outage later is waited for."""
    code, shown = ask("--redis-url", "redis://127.0.0.1:1", *verb)
    assert 3 == code
    assert "Redis is not reachable" in shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_watchdog_stops_when_asked(environment: dict[str, str], client: Client, number: signal.Signals) -> None:
    """It sweeps at once, and a signal is a good end."""
    command = [sys.executable, "-m", "ghostless.jobs.cli", "watchdog"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:

        def swept() -> None:
            assert client.reads.watchdog()

        eventually(swept)
        process.send_signal(number)
        assert 0 == process.wait(20)


def test_serve_keeps_to_this_machine(ask: Ask) -> None:
    """Another address needs a word that says what it means."""
    code, shown = ask("serve", "--host", "0.0.0.0", "--port", "0")
    assert 2 == code
    assert "--host: expected an address of this machine only, or --allow-anonymous" in shown


def test_serve_says_at_once_that_a_port_is_taken(ask: Ask) -> None:
    """One line instead of the server's own attempts."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refusal = f"Error: port {port} of 127.0.0.1 is taken; choose another one with --port\n"
        assert (1, refusal) == ask("serve", "--port", str(port))


def test_serve_says_that_an_address_is_not_of_this_machine(ask: Ask) -> None:
    """192.0.2.1 belongs to documentation, and to nobody's machine."""
    code, shown = ask("serve", "--host", "192.0.2.1", "--port", "0", "--allow-anonymous")
    assert 1 == code
    assert shown.startswith("Error: 192.0.2.1 port 0 cannot be listened on: ")

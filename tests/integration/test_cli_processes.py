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
from ghostless.jobs.messages import Claim
from ghostless.jobs.settings import Settings
from ghostless.statemachine import State
from helpers import eventually, run_command
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
        return run_command(*arguments, environment=environment | variables, cwd=tmp_path)

    return run


def test_types_are_published_before_any_worker_runs(ask: Ask, client: Client) -> None:
    """From modules of the current folder; then they can be submitted."""
    assert (0, "published: hello\n") == ask("types", "publish", "--tasks", "my_tasks")
    assert {"hello"} == set(client.types())
    code, shown = ask("types", "publish", "--json", GHOSTLESS_TASKS="my_tasks")
    assert (0, {"published": ["hello"], "given_back": 0}) == (code, json.loads(shown))


def test_publishing_gives_back_what_is_parked(ask: Ask, client: Client) -> None:
    """It says how many tasks of the published types are in their queues again."""
    ask("types", "publish", "--tasks", "my_tasks")
    task_id = client.submit("hello", {"name": "world"}).task_id
    client.store.claim(Claim.new("w", [client.get(task_id).queue], ["another"]))
    assert client.get(task_id).parked_at
    code, shown = ask("types", "publish", "--tasks", "my_tasks")
    assert (0, "published: hello\ntasks that were parked and are in their queues again: 1\n") == (code, shown)
    assert client.get(task_id).parked_at is None


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
    """The last line names the module, the fault and the place; nothing is published."""
    answer, shown = ask(*verb, *options)
    assert code == answer
    assert all(part in shown.splitlines(keepends=True)[-1] for part in parts), shown
    assert {} == client.types()


@pytest.mark.parametrize("verb", [["types", "publish"], ["worker", "q"]])
@pytest.mark.parametrize(
    ("source", "traceback", "summary"),
    [
        ("def f(:", 'File "{folder}/ending_tasks.py", line 1', "SyntaxError: "),
        ("import sys\nsys.exit(3)", 'File "{folder}/ending_tasks.py", line 2, in <module>', "SystemExit: 3 ("),
        ("import os\nprint('goodbye')\nos._exit(3)", "goodbye", "its process ended: exit code 3\n"),
    ],
)
def test_a_module_that_ends_its_process_is_told(
    ask: Ask, client: Client, tmp_path: Path, verb: list[str], source: str, traceback: str, summary: str
) -> None:
    """With its traceback, or with what it printed, and then in one line; exit code 1, and nothing is published."""
    (tmp_path / "ending_tasks.py").write_text(source)
    code, shown = ask(*verb, "--tasks", "my_tasks", "--tasks", "ending_tasks")
    assert 1 == code
    assert traceback.format(folder=tmp_path) in shown
    last = shown.splitlines(keepends=True)[-1]
    assert last.startswith("Error: ending_tasks could not be loaded: ")
    assert summary in last
    assert {} == client.types()


def test_modules_of_installed_packages_are_found(ask: Ask, client: Client, tmp_path: Path) -> None:
    """Entry points name the modules when nothing else does; what is named by hand is the whole list."""
    installed = tmp_path / "site"
    described = installed / "team_tasks-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: team-tasks\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[ghostless.tasks]\nours = installed_tasks\n")
    (installed / "installed_tasks.py").write_text(MY_TASKS.replace('"hello"', '"installed.hello"'))
    variables = {"PYTHONPATH": str(installed)}
    assert (0, "published: hello\n") == ask("types", "publish", "--tasks", "my_tasks", **variables)
    assert (0, "published: hello\n") == ask("types", "publish", GHOSTLESS_TASKS="my_tasks", **variables)
    assert (0, "published: installed.hello\n") == ask("types", "publish", **variables)
    task_id = client.submit("installed.hello", {"name": "ann"}).task_id
    assert 0 == ask("worker", "q", "--burst", **variables)[0]
    assert "hello ann" == client.get(task_id).result


def test_a_worker_without_one_setup_that_works_does_not_start(ask: Ask, client: Client, tmp_path: Path) -> None:
    """With --preload the tracebacks of all setups are shown, exit code 1, and nothing is published."""
    setup = 'def {0}(): raise RuntimeError("no {0}")\n@task("{0}", setup={0})\ndef do_{0}(ctx): ...\n'
    handlers = "".join(setup.format(name) for name in ("gpu", "licence"))
    (tmp_path / "heavy_tasks.py").write_text(f"from ghostless.jobs import task\n{handlers}")
    code, shown = ask("worker", "q", "--tasks", "heavy_tasks", "--preload", "--burst")
    assert 1 == code
    assert "Error: the setup of each task type failed: gpu, licence\n" == shown.splitlines(keepends=True)[-1]
    assert all(f"RuntimeError: no {name}" in shown for name in ("gpu", "licence"))
    assert 2 == shown.count("Traceback")
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
        (["q", "--tasks", "my_tasks", "--max-horse-rss", "much"], "--max-horse-rss: expected a number of bytes"),
        (["q", "--tasks", "my_tasks", "--max-tasks-per-horse", "-1"], "--max-tasks-per-horse: expected a whole number"),
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


def test_serve_refuses_to_let_everybody_in_and_to_demand_tokens_at_once(ask: Ask) -> None:
    """A contradiction is told before anything listens."""
    code, shown = ask("serve", "--port", "0", "--allow-anonymous", "--require-tokens")
    assert 2 == code
    assert "allow_anonymous: expected no require_tokens" in shown


def test_a_health_port_that_is_taken_is_told(ask: Ask, client: Client) -> None:
    """A worker that could not be asked does not start, and nothing is published."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, shown = ask("worker", "q", "--tasks", "my_tasks", "--health-port", str(port))
    assert 1 == code
    refusal = (
        f"--health-port: 127.0.0.1 port {port} cannot be listened on (Address already in use); choose another port"
    )
    assert refusal in shown
    assert "Traceback" not in shown
    assert ({}, []) == (client.types(), client.workers())


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ([], 2, "name the address of a worker, or set GHOSTLESS_HEALTH_PORT"),
        (["127.0.0.1:9"], 1, "connection refused"),
        (["gpubox:9000"], 1, "gpubox:9000 is no address like 10.0.0.5:9000"),
    ],
)
def test_health_that_cannot_be_asked_for(ask: Ask, arguments: list[str], code: int, part: str) -> None:
    """One line says why, for whoever reads a failed container check."""
    answered, shown = ask("health", *arguments)
    assert (code, True) == (answered, part in shown), shown


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

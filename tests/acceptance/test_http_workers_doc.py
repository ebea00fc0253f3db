"""What `docs/http-workers.md` shows is true: the worker in a shell works as it stands there, and is short."""

import ast
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from documents import examples
from fleet import Fleet
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.tokens import Scope
from ghostless.statemachine import Reason
from helpers import eventually, expect
from web_tools import in_process

from .conftest import assert_clean, ended, entry_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "http_worker.py"
WORKER = examples("http-workers.md", "sh")[-1]


def test_it_takes_forty_lines() -> None:
    """In a language that has an HTTP client; and they are lines that can be read."""
    lines = WORKER.splitlines()
    assert len(lines) <= 40
    assert max(len(line) for line in lines) <= 120


def test_the_example_in_python_needs_requests_only() -> None:
    """Nothing of Ghostless, and nothing else that has to be installed."""
    found = list(ast.walk(ast.parse(EXAMPLE.read_text())))
    names = [alias.name for node in found if isinstance(node, ast.Import) for alias in node.names]
    names += ["." * node.level + (node.module or "") for node in found if isinstance(node, ast.ImportFrom)]
    assert {"requests"} == {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def stop(group: int) -> None:
    """End the worker as a service manager does, so that its curl ends too."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)


@pytest.fixture
def demands() -> bool:
    """Whether the server demands a token, and the worker has one."""
    return False


@pytest.fixture
def shell(tmp_path: Path, fleet: Fleet, client: Client, demands: bool) -> Iterator[psutil.Process]:
    """The worker in a shell, as the guide has it, for the queue `text`."""
    missing = [tool for tool in ("curl", "jq") if not shutil.which(tool)]
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not on PATH: `apt install {' '.join(missing)}`")
    path = tmp_path / "worker.sh"
    path.write_text(WORKER)
    token = client.tokens.add("box7", [Scope.WORK])[0] if demands else ""
    with in_process(create_app(client=Client(client.settings), require_tokens=demands)) as served:
        fleet.environment |= {"GHOSTLESS_TOKEN": token, "TMPDIR": str(tmp_path)}
        process = fleet.spawn(["sh", str(path), served.url, "text", "box7"])
        eventually(lambda: expect("text.count" in client.types()), seconds=20)
        yield psutil.Process(process.pid)
        stop(process.pid)
        process.wait(timeout=10)


@pytest.mark.parametrize("demands", [True], ids=["with a token"])
@pytest.mark.usefixtures("shell")
def test_a_shell_is_language_enough(fleet: Fleet, client: Client) -> None:
    """It returns results, fails, ends in time, and stops for a cancel and a pause; each end is its own word.

    The shell has nothing to say of the processes that are ended.
    """
    counted = client.submit("text.count", {"text": 'to be "or" not\nto be'}).task_id
    assert 6 == ended(client, counted, "SUCCESS").result
    assert "worker:box7" == entry_of(client, counted, "COMPLETE").actor
    failed = client.submit("text.count", {"text": "x", "pause": "no time"}, max_retries=0).task_id
    assert "the handler ended with 1" == ended(client, failed, "FAILED").error
    late = client.submit("text.count", {"text": "x", "pause": 60}, timeout=1).task_id
    ended(client, late, "RETRY_WAITING")
    timeout = entry_of(client, late, "TIMEOUT")
    assert ("worker:box7", Reason.DEADLINE) == (timeout.actor, timeout.reason)
    stopped = [client.submit("text.count", {"text": "x", "pause": 60}).task_id for _ in range(2)]
    for task_id, ask, state in zip(stopped, (client.cancel, client.pause), ("CANCELLED", "PAUSED"), strict=True):
        ended(client, task_id, "PROCESSING")
        ask(task_id)
        ended(client, task_id, state)
    assert not re.search("Terminated|No such process", fleet.logs())
    assert_clean(client, fleet, counted, failed, late, *stopped)


@pytest.mark.usefixtures("shell")
def test_a_shell_leaves_alone_what_is_another_ones(fleet: Fleet, client: Client) -> None:
    """It tells progress; a task that was given to somebody else it drops without a word, and claims the next one."""
    taken = client.submit("text.count", {"text": "x", "pause": 60}).task_id
    eventually(lambda: expect(0.5 == client.get(taken).progress), seconds=20)
    client.store.lose(taken, 1, "box7", "test", "it was taken for dead", is_dead=False)
    counted = client.submit("text.count", {"text": "to be"}).task_id
    assert 2 == ended(client, counted, "SUCCESS").result
    assert ["test"] == [entry.actor for entry in client.history(taken) if entry.event == "TIMEOUT"]
    client.cancel(taken)
    assert_clean(client, fleet, taken, counted)


def test_a_shell_that_is_stopped_takes_its_handler_with_it(shell: psutil.Process, fleet: Fleet, client: Client) -> None:
    """Nothing of the attempt runs on beside the next one, which begins when the lease is over."""
    held = client.submit("text.count", {"text": "x", "pause": 61}).task_id
    ended(client, held, "PROCESSING")
    eventually(lambda: expect(["sleep", "61"] in [one.info["cmdline"] for one in psutil.process_iter(["cmdline"])]))
    family = shell.children(recursive=True)
    stop(shell.pid)
    assert [] == psutil.wait_procs(family, timeout=10)[1]
    client.cancel(held)
    assert_clean(client, fleet, held)

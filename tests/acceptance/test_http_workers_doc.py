"""What `docs/http-workers.md` shows is true: the worker in a shell works as it stands there."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.app import create_app
from ghostless.jobs.client import Client
from helpers import eventually, expect
from web_tools import in_process

from .conftest import assert_clean, ended, entry_of

GUIDE = Path(__file__).parents[2] / "docs" / "http-workers.md"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The worker in a shell, as the guide has it."""
    missing = [tool for tool in ("curl", "jq") if not shutil.which(tool)]
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not on PATH: `apt install {' '.join(missing)}`")
    path = tmp_path / "worker.sh"
    path.write_text(re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[-1])
    return path


def test_a_shell_is_language_enough(fleet: Fleet, client: Client, script: Path) -> None:
    """It publishes its type, returns results, and stops for a cancel and a pause."""
    with in_process(create_app(client=Client(client.settings))) as served:
        fleet.environment["GHOSTLESS_TOKEN"] = ""
        shell = fleet.spawn(["sh", str(script), served.url, "text", "box7"])
        eventually(lambda: expect("text.count" in client.types()), seconds=20)
        counted = client.submit("text.count", {"text": 'to be "or" not\nto be'}).task_id
        assert 6 == ended(client, counted, "SUCCESS").result
        assert "worker:box7" == entry_of(client, counted, "COMPLETE").actor
        stopped = [client.submit("text.count", {"text": "x", "pause": 60}).task_id for _ in range(2)]
        for task_id, ask, state in zip(stopped, (client.cancel, client.pause), ("CANCELLED", "PAUSED"), strict=True):
            ended(client, task_id, "PROCESSING")
            ask(task_id)
            ended(client, task_id, state)
        os.killpg(shell.pid, signal.SIGTERM)  # as a service manager does, so that its curl ends too
        shell.wait(timeout=10)
    assert_clean(client, fleet, counted, *stopped)

"""A machine without Redis: the tests say what they skip and how to get it, and with CI set that is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("ci", "code", "outcome"), [({}, 0, "skipped"), ({"CI": "true"}, 1, "error")])
def test_a_missing_redis_is_told(tmp_path: Path, ci: dict[str, str], code: int, outcome: str) -> None:
    """Either way the line names what is missing and how to install it."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    one_test = "tests/integration/test_queues.py::test_queues_that_anything_names_are_known"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", one_test],
        cwd=ROOT,
        env=environment | {"PATH": str(tmp_path)} | ci,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, f"1 {outcome}" in done.stdout) == (code, True), done.stdout
    assert "no redis-server on PATH: `apt install redis-server`" in done.stdout

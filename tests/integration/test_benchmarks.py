"""A benchmark that is ended before it is done, as by `timeout`, leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from helpers import die_with_the_tests, eventually


def test_a_benchmark_that_is_ended_takes_its_redis_with_it(tmp_path: Path) -> None:
    """Neither the server nor its folder outlives it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ghostless.benchmarks.looks"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        preexec_fn=die_with_the_tests,
    )

    def running() -> psutil.Process:
        children = psutil.Process(process.pid).children()
        assert len(children) == 1
        assert [*tmp_path.glob("*/redis.sock")]
        return children[0]

    server = eventually(running, seconds=20)
    process.terminate()
    assert 128 + signal.SIGTERM == process.wait(timeout=20)
    assert not server.is_running()
    assert [] == list(tmp_path.iterdir())

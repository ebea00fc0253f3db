"""The comparison with other job runners: that it runs, what it writes, and that the committed page is of its making."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from ghostless.benchmarks.peers.__main__ import PAGE, RESULTS, Comparison
from ghostless.benchmarks.peers.columns import COLUMNS, RATE, SUBMITS_BULK
from ghostless.benchmarks.peers.delay import DELAY
from ghostless.benchmarks.peers.errors import LeftOut
from ghostless.benchmarks.peers.page import page
from ghostless.benchmarks.peers.peer import OURS, PEERS
from ghostless.benchmarks.peers.report import compare, result
from ghostless.benchmarks.peers.visit import Size
from redis import Redis
from redis_server import RedisServer

ROOT = Path(__file__).parents[2]
STOCK = "rq SimpleWorker"


@pytest.mark.slow
def test_a_run_measures_every_column(tmp_path: Path) -> None:
    """Of ourselves and of a peer, each in the same run; it writes the results and the page, and leaves no process."""
    chosen = ["--only", OURS.name, "--only", STOCK]
    command = [sys.executable, "-m", "ghostless.benchmarks.peers", "--rounds", "1", "--tasks", "40", *chosen]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([*command, "--save", tmp_path], env=environment, check=True, capture_output=True, timeout=60)
    report = json.loads((tmp_path / RESULTS).read_text())
    assert (tmp_path / PAGE).read_text() == page(report)
    assert {"cores", "redis", "python", "appendfsync"} == set(report["machine"])
    assert [OURS.name, STOCK] == [one["name"] for one in report["results"]]
    for one in report["results"]:
        assert [] == [column.key for column in COLUMNS if not one[column.key] >= 0]
        assert min(one[column.key] for column in COLUMNS if column.more_is_better) > 0
    ours, theirs = report["results"]
    assert theirs["we_are_times_better"]["tasks_per_second"] > 0
    assert ours["commands_in_scripts"] > 1 > theirs["commands_in_scripts"]  # rq sends each command by itself
    environments = [one.info["environ"] or {} for one in psutil.process_iter(["environ"])]
    assert [] == [found for found in environments if found.get("TMPDIR") == str(tmp_path)]


def test_the_slow_network_is_slow(redis_server: RedisServer) -> None:
    """Each answer comes a millisecond later, and is the right one."""
    command = [sys.executable, "-m", "ghostless.benchmarks.peers.delay", str(redis_server.port)]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert proxy.stdout
        with Redis(port=int(proxy.stdout.readline())) as far:
            assert min(trip(far, number) for number in range(20)) >= DELAY
    finally:
        proxy.kill()
        proxy.communicate()


def trip(redis: Redis, number: int) -> float:
    """Make a round trip; return how many seconds it took."""
    began = time.monotonic()
    assert redis.echo(f"{number}") == f"{number}".encode()
    return time.monotonic() - began


def test_the_committed_page_is_made_from_the_committed_results() -> None:
    """Nobody writes it by hand; it has every column, every runner, and says why one is missing."""
    report: dict[str, Any] = json.loads((ROOT / RESULTS).read_text())
    text = (ROOT / PAGE).read_text()
    assert text == page(report)
    assert [] == [column.title for column in COLUMNS if f"| {column.title} |" not in text]
    assert [] == [peer.name for peer in PEERS if peer.name not in text]


def test_how_many_times_better_we_are() -> None:
    """More tasks a second are better, fewer bytes are; what a peer does not have is not compared."""
    few, many = [{column: [1.0] for column in COLUMNS}], [{column: [2.0] for column in COLUMNS}]
    del many[0][SUBMITS_BULK]
    results = [result(OURS.name, "1", few), result("other", "2", many)]
    compare(results)
    times = results[1]["we_are_times_better"]
    assert (0.5, 2, None) == (times[RATE.key], times["finished_bytes"], times.get(SUBMITS_BULK.key))
    assert "we_are_times_better" not in results[0]


def test_what_cannot_run_here_is_left_out() -> None:
    """With its reason, and the others are measured all the same."""

    def missing() -> str:
        raise LeftOut("it is not installed")

    report = Comparison([replace(OURS, name="other", version=missing)], Size(20), "off").run(1, one_cpu=False)
    assert ([], {"other": "it is not installed"}) == (report["results"], report["left_out"])
    assert "other was left out: it is not installed." in page(report)

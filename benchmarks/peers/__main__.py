"""The command line of the comparison."""

import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from ..tools import FSYNC
from .columns import PINGS, RATE, Figures
from .errors import LeftOut
from .limits import limits, pinned
from .page import page
from .peer import PEERS, Peer
from .report import Report, compare, limits_of, machine, result
from .server import private_server
from .tables import show
from .visit import Size, visit

RESULTS, PAGE = "benchmarks/results.json", "docs/benchmarks.md"
NAMES = [peer.name for peer in PEERS]


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Visits to each.")
@click.option("--tasks", type=click.IntRange(20), default=2000, show_default=True, help="With which a queue is filled.")
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Compare these; may be given several times.")
@click.option("--one-cpu", is_flag=True, help="Run Redis, workers and all else on one CPU.")
@click.option("--appendfsync", type=click.Choice(FSYNC), default="off", show_default=True, help="Redis' durability.")
@click.option("--save", type=click.Path(path_type=Path), help=f"Write {RESULTS} and {PAGE} below this folder.")
def main(rounds: int, tasks: int, only: Sequence[str], one_cpu: bool, appendfsync: str, save: Path | None) -> None:
    """Measure Ghostless beside other job runners, and print the tables."""
    signal.signal(signal.SIGTERM, on_signal)
    peers = [peer for peer in PEERS if not only or peer.name in only]
    with pinned() if one_cpu else contextlib.nullcontext():
        report = Comparison(peers, Size(tasks), appendfsync).run(rounds, one_cpu=one_cpu)
    show(report)
    if save:
        write(report, save)


def on_signal(number: int, frame: FrameType | None) -> None:
    """End as with an error, so that all that was started is ended too."""
    sys.exit(1)


class Comparison:
    """Rounds of visits to peers."""

    def __init__(self, peers: Sequence[Peer], size: Size, fsync: str) -> None:
        self._size, self._fsync = size, fsync
        self._console = Console(stderr=True)
        self._left_out: dict[str, str] = {}
        self._versions: dict[Peer, str] = {}
        self._figures: dict[Peer, list[Figures]] = {peer: [] for peer in peers}

    def run(self, rounds: int, *, one_cpu: bool) -> Report:
        """Visit each peer once a round; return what was found."""
        self._look_for_versions()
        bare = [self._round(f"round {number} of {rounds}") for number in range(1, rounds + 1)]
        results = [result(peer.name, self._versions[peer], found) for peer, found in self._figures.items()]
        compare(results)
        with private_server(self._fsync) as server:
            version = server.redis.info("server")["redis_version"]
        return {
            "machine": machine(version, fsync=self._fsync, one_cpu=one_cpu),
            "size": {"rounds": rounds, "tasks": self._size.tasks, "seconds": self._size.seconds},
            "limits": limits_of(bare),
            "results": results,
            "left_out": self._left_out,
        }

    def _look_for_versions(self) -> None:
        for peer in list(self._figures):
            try:
                self._versions[peer] = peer.version()
            except LeftOut as reason:
                self._leave_out(peer, reason)

    def _round(self, title: str) -> dict[str, float]:
        bare = limits(self._fsync)
        for peer in list(self._figures):
            self._console.print(f"{title}: {peer.name}")
            try:
                figures = visit(peer, self._size, self._fsync)
            except LeftOut as reason:
                self._leave_out(peer, reason)
                continue
            pings = [bare["pings_per_second"] / rate for rate in figures[RATE]]
            self._figures[peer].append({**figures, PINGS: pings})
        return dict(bare)

    def _leave_out(self, peer: Peer, reason: LeftOut) -> None:
        self._console.print(f"{peer.name} is left out: {reason}")
        self._left_out[peer.name] = str(reason)
        del self._figures[peer]


def write(report: Report, folder: Path) -> None:
    """Write the results, and the page that is made from them."""
    for name, text in ((RESULTS, json.dumps(report, indent=2, ensure_ascii=False) + "\n"), (PAGE, page(report))):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()

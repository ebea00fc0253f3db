"""docs/benchmarks.md, made from benchmarks/results.json."""

from collections.abc import Iterator, Sequence

from .columns import GROUPS
from .peer import PEERS
from .report import Report
from .tables import left_out, limits, rows

INTRODUCTION = """\
# Benchmarks

How fast Ghostless is beside other job runners on Redis, and what that costs. This page is made by the program that
measures, from `benchmarks/results.json`:

    make bench                              # measure, and print the tables
    make bench ARGS="--save ."              # and write the results and this page anew
    make bench ARGS="--only ghostless --only rq --rounds 3"
    make bench ARGS="--one-cpu --appendfsync everysec"
"""

MEASURED = """\
## How it was measured

Each round visits every runner, one after the other; a figure is the median of {rounds} rounds. In brackets is between
which figures the rounds lay. ×N says that Ghostless is N times better there, below 1 that it is worse.

A visit has a Redis of its own on loopback TCP, with its defaults, without snapshots and {file}. One
worker process runs one task at a time; all else is the runner's default, or what its guide shows. Ghostless' worker is

    ghostless worker bench --tasks noop_ghostless

with its history, leases, fencing, deadlines and its separate process for handlers. Its watchdog, of which a deployment
has one, does not run; it would sweep once a second. A task gets 150 bytes of params, appends the time to a file and
returns `{{"ok": true}}`. Results are kept where that is the default or, for taskiq, what the README shows.

The queue holds {tasks:,} tasks when it is worked off; what is not done after {seconds:g} seconds is left. The worker
has run tasks before and stands still (SIGSTOP) while the queue is filled, so neither its start nor the submits count.
"""


def page(report: Report) -> str:
    """Return the whole page."""
    return "\n".join([INTRODUCTION, _machine(report), *_tables(report), *_kept(report), *_measured(report)])


def _machine(report: Report) -> str:
    found = report["machine"]
    cores = f"{found['cores']} core{'s' if found['cores'] > 1 else ''}"
    left = "".join(f"{line}\n" for line in left_out(report))
    return f"The machine: {cores}, Redis {found['redis']}, Python {found['python']}.\n{limits(report)}\n{left}"


def _tables(report: Report) -> Iterator[str]:
    for title, columns in GROUPS.items():
        yield f"## {title}\n"
        yield from _table(["", *(column.title for column in columns)], list(rows(report, columns)))


def _kept(report: Report) -> Iterator[str]:
    measured = [one["name"] for one in report["results"]]
    facts = [(peer.name, peer.keeps) for peer in PEERS if peer.name in measured]
    yield "## What is kept\n"
    yield "Speed is easy for those who keep little. With the settings of this comparison:\n"
    yield from _table(
        ["", "history of a task", "result", "when its worker dies by `kill -9`", "source"],
        [[name, keeps.history, keeps.result, keeps.kill, keeps.source] for name, keeps in facts],
    )


def _measured(report: Report) -> Iterator[str]:
    fsync = report["machine"]["appendfsync"]
    file = "without an append-only file" if fsync == "off" else f"with an append-only file (`appendfsync {fsync}`)"
    yield MEASURED.format(**report["size"], file=file)
    yield from _table(
        ["column", "what it is"], [[one.title, one.measured] for group in GROUPS.values() for one in group]
    )


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *body):
        yield f"| {' | '.join(cells)} |"
    yield ""

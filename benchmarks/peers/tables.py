"""The tables of a report: rows of text, for the terminal and for the page."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from .columns import GROUPS, Column
from .report import Report


def rows(report: Report, columns: Sequence[Column]) -> Iterator[list[str]]:
    """Yield a row for each peer: its name and version, and the cell of each column."""
    for one in report["results"]:
        yield [f"{one['name']} {one['version']}", *(cell(one, column) for column in columns)]


def cell(one: Report, column: Column) -> str:
    """Return a figure, between which the rounds lay, and how many times better we are."""
    if column.key not in one:
        return "–"
    low, high = one["spread"][column.key]
    ratio = one.get("we_are_times_better", {}).get(column.key)
    times = "" if ratio is None else f" ×{number(ratio)}"
    return f"{number(one[column.key])}{times} ({number(low)}–{number(high)})"


def number(value: float) -> str:
    """Return a figure as people read it: three places, or all that stand before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def limits(report: Report) -> str:
    """Return the bare round trips in a sentence."""
    found = report["limits"]
    return (
        f"On one CPU, one connection makes {number(found['pings_per_second'])} bare PINGs a second, and "
        f"{number(found['evalshas_per_second'])} calls of a script that does nothing."
    )


def left_out(report: Report) -> Iterator[str]:
    """Yield why each peer that is missing is."""
    for name, reason in report["left_out"].items():
        yield f"{name} was left out: {reason}."


def show(report: Report) -> None:
    """Print the tables; ×N means that we are N times better."""
    console = Console()
    for title, columns in GROUPS.items():
        table = Table()
        for head in (title, *(column.title for column in columns)):
            table.add_column(head, overflow="fold")
        for row in rows(report, columns):
            table.add_row(*(text.replace(" (", "\n(") for text in row))  # narrow enough for a terminal
        console.print(table)
    console.print(limits(report), *left_out(report), sep="\n")

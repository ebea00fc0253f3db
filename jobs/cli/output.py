"""How things look: tables and fields, in colour on a terminal, plain aligned text elsewhere."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...statemachine import State

STYLES: dict[str, str] = {
    State.PENDING: "cyan",
    State.SCHEDULED: "cyan",
    State.BLOCKED: "cyan",
    State.RETRY_WAITING: "yellow",
    State.PROCESSING: "bold blue",
    State.PAUSING: "magenta",
    State.PAUSED: "magenta",
    State.CANCELLING: "yellow",
    State.CANCELLED: "yellow",
    State.SUCCESS: "green",
    State.FAILED: "bold red",
    State.TIMEOUT_CANCELLED: "bold red",
}
"""The colour of each state, the same in every verb."""


class Column(NamedTuple):
    """A column of a table; numbers stand at the `right`."""

    title: str
    right: bool = False


def clean(text: str) -> str:
    """Return the text on one line, without anything that a terminal would obey: tasks bring text of strangers."""
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return " " if character in "\n\t" else character.encode("unicode_escape").decode()


def on_terminal() -> bool:
    """Tell whether a person looks at the output."""
    return sys.stdout.isatty()


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Print rows under their titles, or `empty` when there are none. Text is never cut."""
    shown = [[clean(cell) for cell in row] for row in rows]
    if not shown:
        click.echo(empty)
    elif on_terminal():
        Console().print(_table(columns, shown))
    else:
        click.echo(aligned(columns, shown))


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        # Ids and states are for copying: they keep their line, and the long texts make room.
        longest = max(len(row[index]) for row in rows)
        least = longest if longest <= 36 else 20
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    return table


def aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Return the rows under their titles in columns of equal width."""
    lines = [[column.title for column in columns], *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return "\n".join(_padded(columns, widths, line) for line in lines)


def _padded(columns: Sequence[Column], widths: Sequence[int], line: Sequence[str]) -> str:
    cells = zip(columns, widths, line, strict=True)
    return "  ".join(cell.rjust(width) if column.right else cell.ljust(width) for column, width, cell in cells).rstrip()


def show_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print named values, one a line; those without a value are left out."""
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        if not value:
            continue
        if on_terminal():
            console.print(Text(f"{name.ljust(width)}  ", style="dim") + Text(clean(value), style=_style(value)))
        else:
            click.echo(f"{name.ljust(width)}  {clean(value)}")


def _style(value: str) -> str:
    return STYLES.get(value.partition(" ")[0], "")


# Times and values


def clock(at: int | None) -> str:
    """Return a time in ms as the local clock shows it; the day only when it is not today."""
    if at is None:
        return ""
    moment = datetime.fromtimestamp(at / 1000)
    return moment.strftime("%H:%M:%S" if moment.date() == datetime.now().date() else "%Y-%m-%d %H:%M:%S")


def when(at: int | None, now: int) -> str:
    """Return a time in ms as the local clock shows it, and how far it is from now."""
    return "" if at is None else f"{clock(at)} ({distance(at, now)})"


def distance(at: int, now: int) -> str:
    """Return how far a time is from now: "12 s ago", "in 5 min"."""
    span = duration(abs(now - at))
    return f"{span} ago" if at <= now else f"in {span}"


def duration(ms: int) -> str:
    """Return a length of time with the unit that fits it."""
    seconds = ms / 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def value(given: object, longest: int = 400) -> str:
    """Return a value as JSON on one line, cut when it is long."""
    if given is None:
        return ""
    text = json.dumps(given, ensure_ascii=False)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters; --json shows all)"


def percent(fraction: float | None) -> str:
    """Return a fraction as whole percents, never 100 before the end."""
    return "" if fraction is None else f"{int(fraction * 100)} %"

"""How things look: tables and fields, in colour on a terminal, plain aligned text elsewhere."""

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import click
from rich.console import Console
from rich.text import Text

from ...statemachine import State
from ..spans import distance

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


LEAST_WRAPPED = 24
"""Characters that a wrapped last column must have room for."""


class Column(NamedTuple):
    """A column of a table; numbers stand at the `right`. One `is_spare` that a narrow terminal has no room for."""

    title: str
    right: bool = False
    is_spare: bool = False


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
        _print_coloured(columns, shown)
    else:
        click.echo(aligned(columns, shown))


def aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Return the rows under their titles in columns of equal width."""
    lines = [[column.title for column in columns], *rows]
    widths = _widths(columns, rows)
    return "\n".join("  ".join(_padded(columns, widths, line)).rstrip() for line in lines)


def _print_coloured(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print rows without the columns that are empty; on a narrow terminal, the terminal wraps what is too long."""
    console = Console(highlight=False)
    columns, rows = _fitting(columns, rows, console.width)
    widths = _widths(columns, rows)
    titles = _padded(columns, widths, [column.title for column in columns])
    console.print(Text("  ".join(titles).rstrip(), "bold"), soft_wrap=True)
    for line in _wrapped(rows, console.width - sum(widths[:-1]) - 2 * len(widths[:-1])):
        cells = zip(line, _padded(columns, widths, line), strict=True)
        text = Text("  ").join(Text(shown, STYLES.get(cell, "")) for cell, shown in cells)
        text.rstrip()
        console.print(text, soft_wrap=True)


def _fitting(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int
) -> tuple[list[Column], list[list[str]]]:
    """Return what is not empty, without the last spare columns when it is wider than `room`."""
    all_widths = _widths(columns, rows)
    used = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    spare = [index for index in used if columns[index].is_spare]
    while spare and sum(all_widths[index] + 2 for index in used) - 2 > room:
        used.remove(spare.pop())
    return [columns[index] for index in used], [[row[index] for index in used] for row in rows]


def _wrapped(rows: Sequence[Sequence[str]], room: int) -> Iterator[Sequence[str]]:
    """Yield the rows with a last column that is too long going on below itself, where there is room for that."""
    for *cells, last in rows:
        first, *rest = textwrap.wrap(last, room) if len(last) > room >= LEAST_WRAPPED else [last]
        yield [*cells, first]
        yield from ([*[""] * len(cells), line] for line in rest)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    lines = [[column.title for column in columns], *rows]
    return [max(len(line[index]) for line in lines) for index in range(len(columns))]


def _padded(columns: Sequence[Column], widths: Sequence[int], line: Sequence[str]) -> list[str]:
    cells = zip(columns, widths, line, strict=True)
    return [cell.rjust(width) if column.right else cell.ljust(width) for column, width, cell in cells]


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


def value(given: object, longest: int = 400) -> str:
    """Return a value as JSON on one line, cut when it is long."""
    if given is None:
        return ""
    text = json.dumps(given, ensure_ascii=False)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters; --json shows all)"

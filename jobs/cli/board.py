"""Showing several tasks while they run: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskID, TaskProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from ...statemachine import FINAL, State
from ..spans import percent
from .output import STYLES, clean, on_terminal

STEP = 0.25
"""Part of a task after which the plain form tells its progress again."""


@dataclass(slots=True)
class Row:
    """What is known of one task."""

    number: int
    title: str
    task_id: str
    state: State = State.PENDING
    progress: float = 0.0
    message: str = ""

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.state in FINAL

    def moved(self, state: State, message: str) -> None:
        """Note a move."""
        self.state, self.message = state, message
        if state is State.SUCCESS:
            self.progress = 1.0


class Lines:
    """One line for each move, and a few for the progress between."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._started_at = time.monotonic()
        self._shown: dict[int, tuple[State, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, row: Row) -> None:
        """Tell of a task when there is something to tell."""
        seen = row.state, int(row.progress / STEP) if row.state is State.PROCESSING else 0
        if self._shown.get(row.number) != seen:
            self._shown[row.number] = seen
            done = percent(row.progress) if row.progress else ""
            self.say(f"{row.number} {row.title:<32} {row.state:<13} {done:>5}  {clean(row.message)}".rstrip())

    def say(self, line: str) -> None:
        """Tell something of all."""
        click.echo(f"{time.monotonic() - self._started_at:6.1f} s  {line}")


class Bars:
    """One live bar for each task."""

    def __init__(self, rows: Sequence[Row]) -> None:
        message = TextColumn("{task.fields[message]}", style="dim", markup=False, table_column=_one_line())
        title = TextColumn("{task.description}", markup=False)
        self._progress = Progress(
            title, StateColumn(), BarColumn(24), TaskProgressColumn(), message, console=Console(), expand=True
        )
        self._bars = {row.number: self._add(row) for row in rows}

    def _add(self, row: Row) -> TaskID:
        return self._progress.add_task(f"{row.number} {row.title}", total=1.0, state=row.state, message="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, row: Row) -> None:
        """Draw a task anew."""
        bar = self._bars[row.number]
        self._progress.update(bar, completed=row.progress, state=row.state, message=clean(row.message))

    def say(self, line: str) -> None:
        """Tell something of all, above the bars."""
        self._progress.console.print(Text(line))


class StateColumn(TextColumn):
    """The state, in its colour."""

    def __init__(self) -> None:
        super().__init__("{task.fields[state]:<13}")

    def render(self, task: Task) -> Text:
        """Draw it."""
        state = task.fields["state"]
        return Text(f"{state:<13}", style=STYLES.get(state, ""))


def _one_line() -> Column:
    return Column(ratio=1, no_wrap=True, overflow="ellipsis")


def board(rows: Sequence[Row]) -> Lines | Bars:
    """Return what suits the output."""
    return Bars(rows) if on_terminal() else Lines(rows)

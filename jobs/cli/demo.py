"""`demo`: six pictures from submit to file, through the HTTP API, with one retry and one cancel."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import requests

from ...statemachine import State
from ..spans import percent
from .api import Api
from .board import Bars, Lines, Row, board
from .dev import EXAMPLE, FOLDER, plan_for
from .events import Event, Follower
from .extras import require
from .hold import only_one_in
from .lazy import Failed
from .output import Column, clock, show_table
from .pictures import PICTURES, Picture
from .session import Session, pass_session
from .show import last_line
from .stack import Stack

OUTPUT = Path("demo-output")
"""Where the pictures are left, below the current folder."""

CANCEL_AT = 0.3
"""Part of its work after which the picture that is to be cancelled is."""

LONGEST = 300.0
"""Seconds after which a demo that did not end is given up; a slow machine needs about one minute."""


@click.command()
@pass_session
def demo(session: Session) -> None:
    """Paint six pictures and watch them: one fails first and is retried, one is cancelled.

    Starts everything it needs, and stops it. The pictures are left in ./demo-output.

    \b
    Example: ghostless demo
    """
    require("numpy", "PIL")
    started_at = time.monotonic()
    plan = plan_for(session, "gpu", 0, (EXAMPLE,))
    with only_one_in(plan.folder) as hold, Stack(plan, hold, click.echo) as stack:
        try:
            with Api(stack.url) as api:
                tour = Tour(stack, api)
                tour.run()
        except requests.RequestException as error:
            raise Failed(f"the HTTP API: {error}; its log is {plan.folder / 'logs' / 'web.log'}") from error
    tour.tell(time.monotonic() - started_at)


class Tour:
    """One run of the demo on a running stack."""

    def __init__(self, stack: Stack, api: Api) -> None:
        self._stack, self._api = stack, api
        self._rows = [self._submit(number, picture) for number, picture in enumerate(PICTURES, 1)]
        self._by_id = {row.task_id: row for row in self._rows}
        self._histories: list[list[dict[str, Any]]] = []
        self._faults: list[str] = []
        self._cancelled = False

    def _submit(self, number: int, picture: Picture) -> Row:
        return Row(number, picture.prompt, self._api.submit("image.generate", picture.params))

    def run(self) -> None:
        """Watch the tasks to their end, and take their pictures and histories."""
        click.echo(f"\n{len(self._rows)} tasks were submitted to {self._api.url}/tasks\n")
        follower = Follower(f"{self._api.url}/events", [row.task_id for row in self._rows])
        with board(self._rows) as shown:
            self._watch(follower, shown)
        follower.close()
        self._histories = [self._api.history(row.task_id) for row in self._rows]
        self._faults = [
            fault for row, picture in zip(self._rows, PICTURES, strict=True) for fault in self._take(row, picture)
        ]

    def _watch(self, follower: Follower, shown: Lines | Bars) -> None:
        give_up_at = time.monotonic() + LONGEST
        for row in self._rows:
            shown.update(row)
        while not all(row.is_final for row in self._rows):
            for event in follower.events(0.2):
                self._apply(event, shown)
            self._stack.check()
            if time.monotonic() > give_up_at:
                raise Failed(
                    f"not every task ended within {LONGEST:.0f} s; the logs are in {self._stack.plan.folder}/logs"
                )

    def _apply(self, event: Event, shown: Lines | Bars) -> None:
        if event.name in ("reset", "end"):
            for row in self._rows:
                self._look_at(row)
                shown.update(row)
        elif row := self._by_id.get(event.data.get("id", "")):
            if event.name == "task":
                row.moved(State(event.data["state"]), event.data["message"])
            elif event.name == "progress":
                row.progress, row.message = event.data["progress"], event.data["message"]
            shown.update(row)
            self._cancel_in_time(row, shown)

    def _look_at(self, row: Row) -> None:
        """Take the state as it is: the stream says that something may be missing."""
        task = self._api.task(row.task_id)
        row.progress = task["progress"] or 0.0
        row.moved(State(task["state"]), task["message"] or "")

    def _cancel_in_time(self, row: Row, shown: Lines | Bars) -> None:
        runs = row.state is State.PROCESSING and row.progress >= CANCEL_AT
        if runs and PICTURES[row.number - 1].is_cancelled and not self._cancelled:
            self._cancelled = True
            self._api.cancel(row.task_id, "the demo shows a cancel")
            shown.say(f"cancelled picture {row.number} by the API at {percent(row.progress)}")

    # How it ended

    def _take(self, row: Row, picture: Picture) -> list[str]:
        """Copy a finished picture, and return what is not as it must be."""
        task = self._api.task(row.task_id)
        if task["state"] != picture.expected:
            why = last_line(task["error"]) or task["reason"]
            return [f"picture {row.number} ended in {task['state']} instead of {picture.expected} ({why})"]
        if picture.fails_first and task["attempt"] < 2:
            return [f"picture {row.number} was to fail first and be retried, but had one attempt only"]
        if task["state"] == State.SUCCESS:
            source = Path(self._stack.settings.artifacts) / row.task_id / task["result"]["artifact"]
            OUTPUT.mkdir(exist_ok=True)
            shutil.copyfile(source, OUTPUT / f"{row.number}-{source.name}")
        return []

    def tell(self, seconds: float) -> None:
        """Print what became of each task. Raises Failed when one did not end as planned."""
        click.echo()
        rows = [_story(row, moves) for row, moves in zip(self._rows, self._histories, strict=True)]
        show_table(_STORIES, rows, empty="")
        if self._faults:
            raise Failed("; ".join(self._faults))
        click.echo(_farewell(self._rows, seconds))


_STORIES = [Column("TASK"), Column("SUBMITTED"), Column("STATES, WITH SECONDS SINCE THE SUBMIT")]


def _story(row: Row, moves: Sequence[Mapping[str, Any]]) -> list[str]:
    began = moves[0]["at"]
    steps = [f"{move['to']} {(move['at'] - began) / 1000:.1f}" for move in moves if move["from"] != move["to"]]
    return [f"{row.number} {row.title}", clock(began), " -> ".join(steps)]


def _farewell(rows: Sequence[Row], seconds: float) -> str:
    done = sum(row.state is State.SUCCESS for row in rows)
    return f"""
After {seconds:.0f} s there are {done} pictures in {OUTPUT}/.
Everything is stopped; the data is kept in {FOLDER}. To look around, run `ghostless dev`,
and in another terminal, with the URL that it prints, `ghostless list`.
"""

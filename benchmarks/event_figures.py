"""Figures of the event benchmark: what was measured in each round, what it must be, and how it is printed."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from rich.console import Console
from rich.table import Table

PROGRAMS = ("ghostless", "gunicorn", "gevent", "redis")
"""Whose versions matter."""


@dataclass(slots=True)
class Figure:
    """One thing that was measured, once a round, and what its median must be."""

    name: str
    unit: str = ""
    target: float | None = None
    at_least: bool = False
    values: list[float] = field(default_factory=list[float])

    @property
    def median(self) -> float:
        """The middle of all rounds."""
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool | None:
        """Whether it is what it must be; None where nothing was asked."""
        if self.target is None:
            return None
        return self.median >= self.target if self.at_least else self.median <= self.target

    def row(self) -> tuple[str, str, str, str]:
        """Return the cells of its line."""
        spread = f"{min(self.values):,.4g} - {max(self.values):,.4g}" if len(self.values) > 1 else ""
        bound = f"{'at least' if self.at_least else 'at most'} {self.target:g}" if self.target is not None else ""
        verdict = {None: "", True: ": met", False: ": MISSED"}[self.is_met]
        return self.name, f"{self.median:,.5g} {self.unit}", spread, bound + verdict

    def to_dict(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "values": self.values,
            "target": self.target,
            "met": self.is_met,
        }


class Figures:
    """All of them, in the order in which they were first measured."""

    def __init__(self) -> None:
        self._all: dict[str, Figure] = {}

    def note(self, name: str, value: float, unit: str = "", *, most: float | None = None, least: float | None = None):
        """Add a round's value; the median must be at `most` or at `least` so much."""
        figure = Figure(name, unit, most if least is None else least, at_least=least is not None)
        self._all.setdefault(name, figure).values.append(value)

    def waits(self, name: str, waits: Sequence[int], *, most: float | None = None) -> None:
        """Add the middle and the 99th percentile of how long clients waited (ns); the latter must be at `most` (ms)."""
        percents = statistics.quantiles(waits, n=100)
        self.note(f"{name}, p50", percents[49] / 1e6, "ms")
        self.note(f"{name}, p99", percents[98] / 1e6, "ms", most=most)

    def show(self) -> None:
        """Print a table."""
        table = Table("what", "median", "spread", "target")
        for figure in self._all.values():
            table.add_row(*figure.row())
        Console().print(table)

    def as_json(self, options: Mapping[str, Any]) -> str:
        """Return everything, with what was asked for and the versions, for programs."""
        versions = {name: version(name) for name in PROGRAMS}
        results = [figure.to_dict() for figure in self._all.values()]
        return json.dumps({"options": dict(options), "versions": versions, "results": results}, indent=1)

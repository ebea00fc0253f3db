"""What a run found, as it stands in benchmarks/results.json: medians, spread, and how we compare."""

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from .columns import COLUMNS, Column, Figures
from .peer import OURS

Report = dict[str, Any]


def machine(redis_version: str, *, fsync: str, one_cpu: bool) -> Report:
    """Return what the figures depend on; a machine is named by its cores and its Redis only."""
    return {
        "cores": 1 if one_cpu else os.cpu_count(),
        "redis": redis_version,
        "python": platform.python_version(),
        "appendfsync": fsync,
    }


def limits_of(rounds: Sequence[Mapping[str, float]]) -> Report:
    """Return the median of each limit."""
    return {name: round(statistics.median(one[name] for one in rounds)) for name in rounds[0]}


def result(name: str, version: str, rounds: Sequence[Figures]) -> Report:
    """Return what the visits to a peer make: for each column a figure, and between which the rounds lay."""
    found = {column: [one[column] for one in rounds] for column in COLUMNS if column in rounds[0]}
    return {
        "name": name,
        "version": version,
        **{column.key: _short(column.summary(list(chain(*values)))) for column, values in found.items()},
        "spread": {column.key: _spread(column, values) for column, values in found.items()},
    }


def _spread(column: Column, rounds: Sequence[Sequence[float]]) -> list[float]:
    figures = [_short(column.summary(values)) for values in rounds]
    return [min(figures), max(figures)]


def _short(value: float) -> float:
    return round(value, 2) if value < 100 else round(value)


def compare(results: Sequence[Report]) -> None:
    """Add to each peer's result how many times better we are, in each column that both have."""
    ours = next((one for one in results if one["name"] == OURS.name), None)
    for one in results:
        if ours and one is not ours:
            one["we_are_times_better"] = {
                column.key: ratio for column in COLUMNS if (ratio := _ratio(column, ours, one)) is not None
            }


def _ratio(column: Column, ours: Report, theirs: Report) -> float | None:
    better, worse = (ours, theirs) if column.more_is_better else (theirs, ours)
    if not better.get(column.key) or not worse.get(column.key):
        return None
    return float(f"{better[column.key] / worse[column.key]:.3g}")

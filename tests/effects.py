"""The side effects of the tests' handlers: `task` registers one whose every call is noted in the fleet's one file."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from ghostless.jobs import Context
from ghostless.jobs import task as registered

FILE = "EFFECTS"
"""The variable that names the file. Handlers that are called without any fleet note nothing."""

Handler = Callable[..., Any]


def task(name: str, **terms: Any) -> Callable[[Handler], Handler]:
    """Register a handler that notes each call before it does anything else; the function stays as it is."""

    def register(handler: Handler) -> Handler:
        @wraps(handler)
        def noted(ctx: Context, **params: Any) -> Any:
            _note(ctx)
            return handler(ctx, **params)

        registered(name, **terms)(noted)
        return handler

    return register


def _note(ctx: Context) -> None:
    if path := os.environ.get(FILE):
        with Path(path).open("a") as file:
            file.write(f"{ctx.task_id} {ctx.attempt}\n")


def effects_in(path: Path) -> dict[str, list[int]]:
    """Return the attempts in which each task's side effect happened, as often as it did."""
    found: dict[str, list[int]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        task_id, attempt = line.split()
        found.setdefault(task_id, []).append(int(attempt))
    return found

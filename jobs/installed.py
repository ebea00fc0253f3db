"""The modules with handlers: those that are named, else those that installed packages announce."""

from importlib.metadata import entry_points

from .settings import Settings

GROUP = "ghostless.tasks"
"""Entry points in which a package names its modules; their own names mean nothing."""

LISTENERS_GROUP = "ghostless.handlers"
"""The same for handlers of history entries."""


def task_modules(settings: Settings) -> tuple[str, ...]:
    """Return the names of the modules to import, without importing any.

    What a user names is the whole list, so that a worker can be kept to one module whatever is installed.
    """
    return settings.tasks or _announced(GROUP)


def handler_modules(settings: Settings) -> tuple[str, ...]:
    """Return the names of the modules with handlers of history entries, without importing any."""
    return settings.handlers or _announced(LISTENERS_GROUP)


def _announced(group: str) -> tuple[str, ...]:
    return tuple(sorted({entry.module for entry in entry_points(group=group)}))

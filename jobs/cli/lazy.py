"""A command group that imports a verb's module when the verb is used, and tells errors in one line.

As click's own documentation shows under "Lazily Loading Subcommands". The summaries stand in the table,
so that `--help` needs none of the modules.
"""

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from ..errors import GhostlessError, InvalidSetting, RedisUnavailable

EXTRAS = ("requests",)
"""Modules that some verbs import and that the base installation does not bring."""


class Verb(NamedTuple):
    """Where a verb is, "module:function" in the group's package, and what it does."""

    place: str
    summary: str


class Failed(click.ClickException):
    """The end of a verb that did not do what was asked: one line on stderr, exit code 1."""


class WrongUsage(Failed):
    """What was typed or set cannot be used."""

    exit_code = 2


class NotReachable(Failed):
    """Redis did not answer."""

    exit_code = 3


class LazyGroup(click.Group):
    """A group of verbs in sections, each imported when it is first needed."""

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, Verb]] | None = None, package: str = "", **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._sections, self._package = sections or {}, package
        self._verbs = {name: verb for section in self._sections.values() for name, verb in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of their table."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a verb; None when there is no such verb."""
        verb = self._verbs.get(cmd_name)
        if verb is None:
            return None
        module, _, function = verb.place.partition(":")
        try:
            return getattr(import_module(f".{module}", self._package), function)
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            raise Failed(f"{cmd_name} needs {error.name}; install with: pip install 'ghostless[demo]'") from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; for a misspelt one, name those that are near."""
        near = difflib.get_close_matches(args[0], self._verbs)
        if args[0] not in self._verbs and near:
            ctx.fail(f"No such command {args[0]!r}; did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of --help from the table."""
        for title, verbs in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, verb.summary) for name, verb in verbs.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; an error of ours becomes one line and an exit code."""
        try:
            return super().invoke(ctx)
        except InvalidSetting as error:
            raise WrongUsage(str(error)) from error
        except RedisUnavailable as error:
            raise NotReachable(str(error)) from error
        except GhostlessError as error:
            raise Failed(str(error)) from error

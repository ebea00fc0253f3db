"""What every verb that talks to Redis shares: settings from the options, one client, the actor, --json."""

import getpass
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

import click
from redis import Redis
from redis.exceptions import RedisError

from ... import jobs
from ..connection import connect
from ..errors import InvalidSetting
from ..settings import Settings
from .lazy import Failed

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Session:
    """One run of a verb. `given` are the global options, which win over the environment."""

    given: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def settings(self, **options: str | None) -> Settings:
        """Return the settings, with options of the verb before the global ones before the environment."""
        given = {name: value for name, value in (self.given | options).items() if value is not None}
        variables = {f"GHOSTLESS_{name.upper()}": value for name, value in given.items()}
        try:
            return Settings.from_environment({**os.environ, **variables})
        except InvalidSetting as error:
            if error.name not in variables:
                raise
            # Told by the name under which it was typed.
            option = "--" + error.name.removeprefix("GHOSTLESS_").lower().replace("_", "-")
            raise InvalidSetting(option, error.expected, error.got) from error

    @cached_property
    def client(self) -> "jobs.Client":
        """The client, made when a verb first needs it, and loaded then: a worker starts without it."""
        return jobs.Client(self.settings(), self.redis)

    @cached_property
    def redis(self) -> Redis:
        """The connection, made when a verb first needs it."""
        settings = self.settings()
        try:
            return connect(settings)
        except ValueError as error:  # redis-py's word on a port, a database or an option it cannot read
            name = "--redis-url" if self.given.get("redis_url") else "GHOSTLESS_REDIS_URL"
            raise InvalidSetting(name, f"an address of a Redis ({error})", settings.redis_url) from error

    def now(self) -> int:
        """Return Redis' time in ms, so that "12 s ago" is right whatever this machine's clock says."""
        return self.client.reads.now()


def pass_session(verb: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    """Hand the session to a verb as its first argument; what Redis refuses in its own words is one line."""

    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        given = click.get_current_context().find_root().params
        session = Session({name: given.get(name) for name in ("redis_url", "prefix")})
        try:
            return verb(session, *args, **kwargs)
        except RedisError as error:
            raise Failed(f"Redis refused the call: {error}") from error

    return update_wrapper(wrapped, verb)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, times in ms since 1970.")


def print_json(value: object) -> None:
    """Print a value as JSON for programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def actor() -> str:
    """Name who acts here, for the history."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user without a name
        user = f"uid-{os.getuid()}"
    return f"cli:{user}"[:64]

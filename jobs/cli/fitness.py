"""Refusing a Redis that would lose tasks, before a long-running verb begins."""

import logging

import click

from ..errors import RedisUnavailable
from ..preflight import require_fit
from ..settings import Settings
from .session import Session

log = logging.getLogger("ghostless")

allow_eviction_option = click.option(
    "--allow-eviction", is_flag=True, help="Start although this Redis evicts tasks when its memory is short."
)


def check_fitness(session: Session, settings: Settings, *, waits: bool = False) -> None:
    """Log what is not well about the server. Raises UnfitRedis; RedisUnavailable, unless the verb waits for Redis."""
    try:
        for finding in require_fit(session.redis, allow_eviction=settings.allow_eviction):
            log.warning("Redis: %s", finding)
    except RedisUnavailable as error:
        if not waits:
            raise
        log.warning("%s", error)


def as_setting(allow_eviction: bool) -> str | None:
    """Return what the option says as a setting; without it the environment decides."""
    return "yes" if allow_eviction else None

"""`health`: ask a worker how it is, as container health checks do."""

import click

from ..connection import connect
from ..health import own_address
from ..probe import ask
from .lazy import Failed
from .session import Session, pass_session

PATIENCE = 3.0
"""Seconds to wait for the answer."""


@click.command()
@click.argument("address", required=False, metavar="[IP:PORT]")
@pass_session
def health(session: Session, address: str | None) -> None:
    """Ask a worker for its health: exit code 0 or 1. Without an address, the one on this machine.

    That one listens at GHOSTLESS_HEALTH_PORT; the addresses of others are shown by `ghostless workers NAME`.

    \b
    Example: ghostless health 10.0.0.5:9000
    """
    finding = ask(address or _own(session), PATIENCE)
    if not finding.healthy:
        raise Failed(finding.text)
    click.echo(finding.text)


def _own(session: Session) -> str:
    settings = session.settings()
    if not settings.health_port:
        raise click.UsageError("name the address of a worker, or set GHOSTLESS_HEALTH_PORT")
    try:
        host = own_address(connect(settings))
    except OSError as error:
        raise Failed(f"there is no way to {settings.redis_url.rpartition('@')[2]}: {error.strerror}") from error
    return f"[{host}]:{settings.health_port}" if ":" in host else f"{host}:{settings.health_port}"

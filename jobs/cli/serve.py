"""`serve`: the HTTP API."""

import click

from ...web.hosts import serves_only_here
from ...web.serve import demands_tokens
from ...web.serve import serve as serve_http
from ..settings import LAST_PORT, Settings
from ..tokens import Token
from .fitness import allow_eviction_option, as_setting, check_fitness
from .lazy import Failed
from .logs import log_to_stderr
from .ports import free_port
from .session import Session, pass_session


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, LAST_PORT), default=8000, show_default=True, help="Port to listen on.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Server processes.")
@click.option(
    "--threads",
    type=click.IntRange(0, 1000),
    default=0,
    metavar="N",
    help="Serve with threads instead of greenlets; each stream holds one.",
)
@click.option(
    "--behind-proxy",
    "proxies",
    type=click.IntRange(0, 10),
    default=0,
    metavar="N",
    help="Believe what N reverse proxies say of a client's address (X-Forwarded-For).",
)
@click.option("--allow-anonymous", is_flag=True, help="Let everybody do everything, beyond this machine too.")
@click.option("--require-tokens", is_flag=True, help="Let nobody in without a token, on this machine neither.")
@click.option("--no-watchdog", is_flag=True, help="Leave watching to the watchdogs that run elsewhere.")
@allow_eviction_option
@pass_session
def serve(
    session: Session,
    host: str,
    port: int,
    workers: int,
    threads: int,
    proxies: int,
    allow_anonymous: bool,
    require_tokens: bool,
    no_watchdog: bool,
    allow_eviction: bool,
) -> None:
    """Serve the HTTP API with its live events, and watch over the tasks.

    Beyond this machine everybody must show a token; make one with `ghostless tokens add` before you start there. A
    browser signs in there over https only: put a proxy with TLS before it.

    \b
    Example: ghostless serve --port 8080
    """
    free_port(port, host=host)  # gunicorn would try again and again
    log_to_stderr()
    settings = session.settings(allow_eviction=as_setting(allow_eviction))
    check_fitness(session, settings, waits=True)
    _look_for_tokens(session, settings, host, allow_anonymous=allow_anonymous, require_tokens=require_tokens)
    serve_http(
        settings,
        host,
        port,
        workers,
        allow_anonymous=allow_anonymous,
        require_tokens=require_tokens,
        watchdog=not no_watchdog,
        threads=threads,
        proxies=proxies,
    )


def _look_for_tokens(session: Session, settings: Settings, host: str, **answers: bool) -> None:
    """Raise Failed where everybody would need a token, and others than this machine would ask, but nobody has one."""
    if not demands_tokens(settings, host, **answers):
        return
    click.echo("tokens are demanded; a browser signs in over https only, or on this machine", err=True)
    if not _is_there_a_token(session):
        if not serves_only_here(host):
            raise Failed(f"{host} is reached from other machines, and nobody has a token yet; make one first: {_FIRST}")
        click.echo(f"nobody has a token yet, and everybody needs one: {_FIRST}", err=True)


_FIRST = "ghostless tokens add --name NAME --scope admin"


def _is_there_a_token(session: Session) -> bool:
    found, now = session.client.tokens.all()
    return any(isinstance(token, Token) and not token.is_expired(now) for token in found.values())

"""`serve`: the HTTP API."""

import click

from ...web.serve import serve as serve_http
from ..errors import InvalidSetting
from ..settings import LAST_PORT
from .fitness import allow_eviction_option, as_setting, check_fitness
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
@click.option("--allow-anonymous", is_flag=True, help="Listen beyond this machine although nobody is asked who he is.")
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
    no_watchdog: bool,
    allow_eviction: bool,
) -> None:
    """Serve the HTTP API with its live events, and watch over the tasks.

    \b
    Example: ghostless serve --port 8080
    """
    free_port(port, host=host)  # gunicorn would try again and again
    log_to_stderr()
    settings = session.settings(allow_eviction=as_setting(allow_eviction))
    check_fitness(session, settings, waits=True)
    try:
        serve_http(
            settings,
            host,
            port,
            workers,
            allow_anonymous=allow_anonymous,
            watchdog=not no_watchdog,
            threads=threads,
            proxies=proxies,
        )
    except InvalidSetting as error:
        if error.name != "host":
            raise
        expected = "an address of this machine only, or --allow-anonymous: anyone could cancel every task"
        raise InvalidSetting("--host", expected, host) from error

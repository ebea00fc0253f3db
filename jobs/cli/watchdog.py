"""`watchdog`: sweep until told to stop."""

import signal
import threading
from types import FrameType

import click

from ..archivist import start_archivist
from ..watchdog import run_watchdog
from .fitness import allow_eviction_option, as_setting, check_fitness
from .logs import log_to_stderr
from .session import Session, pass_session


@click.command()
@allow_eviction_option
@pass_session
def watchdog(session: Session, allow_eviction: bool) -> None:
    """Move what would otherwise stand still: dead workers' tasks, due times, ended retention.

    Any number may run at once; each task needs only one of them to be alive.

    \b
    Example: ghostless watchdog
    """
    log_to_stderr()
    settings = session.settings(allow_eviction=as_setting(allow_eviction))
    check_fitness(session, settings)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    if settings.archive_to:
        start_archivist(settings, stop)
    run_watchdog(settings, stop)

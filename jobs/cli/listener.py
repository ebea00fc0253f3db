"""`listener`: do what is to happen after the fact, until told to stop."""

import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click

from .. import alerts, callbacks
from ..errors import InvalidHandler
from ..failure import message_of
from ..groups import BEGINNING
from ..installed import LISTENERS_GROUP, handler_modules
from ..listener import run_listener
from ..subscriptions import Subscription, subscriptions
from .fitness import allow_eviction_option, as_setting, check_fitness
from .lazy import Failed
from .logs import log_to_stderr
from .options import as_name
from .session import Session, pass_session

BUILT_IN = (alerts, callbacks)
"""Modules with handlers of the listener's own, each with a group."""


@click.command()
@click.option(
    "--handlers",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Module with handlers (@on); repeatable. Without it GHOSTLESS_HANDLERS, else the entry points in "
    f"{LISTENERS_GROUP}.",
)
@click.option(
    "--group",
    default="listener",
    callback=as_name,
    metavar="NAME",
    show_default=True,
    help="Listeners of one group share the entries; a group of another name gets all of them too.",
)
@click.option(
    "--from-start",
    is_flag=True,
    help="Let handlers that are new begin with the oldest entry there is, and not with what happens from now on.",
)
@click.option("--drain", metavar="SECONDS", help="How long a stopping listener lets its handlers run on.")
@allow_eviction_option
@pass_session
def listener(
    session: Session, modules: tuple[str, ...], group: str, from_start: bool, drain: str | None, allow_eviction: bool
) -> None:
    """Call handlers for what happened to tasks: alerts, webhooks, whatever is slow and may fail.

    A handler that fails is called again, after growing pauses; then the entry is parked, and the next one has its
    turn. `ghostless listeners` shows how far each handler is, what is parked, and tries that again. Any number of
    listeners may run; when one dies, the others do its work. Alerts about lost workers and too many timeouts are
    sent when GHOSTLESS_ALERTS or GHOSTLESS_ALERT_WEBHOOK says where to, and callbacks delivered when
    GHOSTLESS_CALLBACK_SECRET says what to sign them with.

    \b
    Example: ghostless listener --handlers my_handlers
    """
    log_to_stderr()
    evicts = as_setting(allow_eviction)
    settings = session.settings(handlers=",".join(modules) or None, drain=drain, allow_eviction=evicts)
    check_fitness(session, settings)  # at the start an outage is told at once, later it is waited for
    wanted = _loaded(handler_modules(settings), group)
    built_in = {f"{part.GROUP}:{each.name}": each for part in BUILT_IN for each in part.wanted(settings)}
    if not wanted and not built_in:
        missing = "name modules with handlers, set GHOSTLESS_HANDLERS, or GHOSTLESS_ALERTS for alerts alone, or "
        missing += "GHOSTLESS_CALLBACK_SECRET for callbacks alone"
        raise click.UsageError(f"--handlers: {missing}")
    for name in wanted if from_start else ():
        session.client.listeners.create(name, BEGINNING)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    run_listener(settings, wanted | built_in, stop)


def _loaded(modules: Sequence[str], group: str) -> dict[str, Subscription]:
    """Import the modules and return what they subscribe to, by the names of the groups."""
    if group in (part.GROUP for part in BUILT_IN):
        raise click.UsageError(f"--group: {group!r} is the group of the {group}; choose another name")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # where `python -m` finds the modules with tasks, too
    try:
        subscriptions.load(modules)
    except InvalidHandler:
        raise
    except (Exception, SystemExit) as error:
        click.echo(traceback.format_exc().rstrip(), err=True)
        raise Failed(f"the handlers could not be imported: {message_of(error)}") from error
    return {f"{group}:{each.name}": each for each in subscriptions}

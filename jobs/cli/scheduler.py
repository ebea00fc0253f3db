"""`scheduler`: submit what is due until told to stop."""

import click

from ..scheduler import Scheduler
from .fitness import allow_eviction_option, as_setting, check_fitness
from .logs import log_to_stderr
from .session import Session, pass_session


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 60),
    default=1.0,
    metavar="SECONDS",
    show_default=True,
    help="Pause between two looks.",
)
@click.option("--burst", is_flag=True, help="Do once what is due, and end.")
@allow_eviction_option
@pass_session
def scheduler(session: Session, interval: float, burst: bool, allow_eviction: bool) -> None:
    """Submit tasks when their schedules are due, and hand over plain jobs of rq-scheduler.

    Any number may run at once; do not run `rqscheduler`, or rq's workers with --with-scheduler, beside it.

    \b
    Example: ghostless scheduler
    """
    log_to_stderr()
    check_fitness(session, session.settings(allow_eviction=as_setting(allow_eviction)))
    Scheduler(session.client, interval=interval).run(burst)

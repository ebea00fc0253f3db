"""`doctor`: whether the server and everything stored are as they must be."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import click

from ..connection import connect
from ..deliveries import Overview
from ..doctor import Doctor, Problem
from ..preflight import Finding, preflight
from ..settings import Settings
from ..store import Store
from .output import clean
from .session import Session, actor, json_option, pass_session, print_json


@dataclass(frozen=True, slots=True)
class Visit:
    """What one look at a database found."""

    server: Sequence[Finding]
    is_watched: bool
    deliveries: Overview
    problems: Sequence[Problem]
    tasks: int
    entries: int
    queues: int
    seconds: float

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong, or nothing any more."""
        fit = all(finding.level != "refused" for finding in self.server)
        return fit and all(problem.is_solved for problem in self.problems)


@click.command()
@click.option("--repair", "repairs", is_flag=True, help="Put right what can be; the histories tell of it.")
@json_option
@click.pass_context
@pass_session
def doctor(session: Session, ctx: click.Context, repairs: bool, as_json: bool) -> None:
    """Look for anything that is not as it must be: the server, and every task with all that belongs to it.

    Each broken rule is one line, the rule's letter and the task first; docs/doctor.md explains them. It may be run at
    any time and blocks nothing. Exit code 1 when something is wrong, or with --repair still is.

    \b
    Example: ghostless doctor --repair
    """
    settings = session.settings()
    visit = _visit(settings, actor() if repairs else "", quiet=as_json)
    if as_json:
        print_json(_as_dict(visit))
    else:
        _sum_up(visit)
    ctx.exit(0 if visit.is_healthy else 1)


def _visit(settings: Settings, repairer: str, *, quiet: bool) -> Visit:
    started_at = time.monotonic()
    with connect(settings, exact=True) as redis:
        server = preflight(redis, allow_eviction=settings.allow_eviction)
        examined = Doctor(Store(redis, settings), repairer)
        problems: list[Problem] = []
        for problem in examined.audit():
            problems.append(problem)
            if not quiet:
                click.echo(clean(str(problem)))
        seen = (examined.tasks, examined.entries, examined.queues)
        return Visit(
            server, examined.is_watched(), examined.deliveries, problems, *seen, seconds=time.monotonic() - started_at
        )


def _sum_up(visit: Visit) -> None:
    well = [str(finding) for finding in visit.server if finding.level == "ok"]
    click.echo(f"Redis: {'; '.join(well)}")
    for finding in visit.server:
        if finding.level != "ok":
            click.echo(f"Redis: {finding.level}: {finding}")
    if not visit.is_watched:
        click.echo(
            "no watchdog sweeps, so nobody notices lost workers, due times or lost tickets: `ghostless watchdog`"
        )
    if visit.deliveries.late:
        click.echo(f"callbacks: {visit.deliveries}")
    seen = f"{visit.tasks} tasks, {visit.entries} history entries, {visit.queues} queues"
    click.echo(f"looked at {seen} in {visit.seconds:.1f} s")
    solved = sum(problem.is_solved for problem in visit.problems)
    if visit.problems:
        click.echo(f"{len(visit.problems)} problems, {solved} of them solved")
    else:
        click.echo("nothing is wrong with what is stored")


def _as_dict(visit: Visit) -> dict[str, object]:
    return {
        "healthy": visit.is_healthy,
        "server": [finding.to_dict() for finding in visit.server],
        "watched": visit.is_watched,
        "deliveries": visit.deliveries.to_dict(),
        "problems": [problem.to_dict() for problem in visit.problems],
        "tasks": visit.tasks,
        "entries": visit.entries,
        "queues": visit.queues,
        "seconds": round(visit.seconds, 3),
    }

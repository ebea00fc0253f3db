"""`submit`: from the command line to an accepted task, and on to its end when asked."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from ...statemachine import State
from .. import bounds
from ..client import Client, Submitted
from ..errors import GhostlessError
from ..explanation import explain as explain_task
from ..fleet import serving
from ..submission import Request
from .follow import wait_for_end
from .options import all_params, as_moment, as_number, as_params
from .options import as_json as read_json
from .session import Session, actor, json_option, pass_session, print_json


@click.command()
@click.argument("task_type", metavar="TYPE")
@click.option("--params", callback=read_json, metavar="JSON", help="All parameters as a JSON object.")
@click.option("-p", "named", callback=as_params, multiple=True, metavar="NAME=VALUE", help="One parameter; repeatable.")
@click.option("--queue", metavar="QUEUE", help="Queue; else the type's own.")
@click.option("--id", "task_id", metavar="ID", help="Id of your own; submitting it again is safe.")
@click.option("--delay", callback=as_number(bounds.WAIT), metavar="SECONDS", help="Start no sooner than this from now.")
@click.option("--run-at", callback=as_moment, metavar="TIME", help="Start no sooner than this.")
@click.option("--timeout", callback=as_number(bounds.TIMEOUT), metavar="SECONDS", help="Longest run of one attempt.")
@click.option(
    "--stall-timeout", callback=as_number(bounds.CLOCK), metavar="SECONDS", help="Longest silence of one; 0 for any."
)
@click.option(
    "--max-retries", callback=as_number(bounds.ATTEMPTS), metavar="N", help="Further attempts after failures."
)
@click.option("--depends-on", multiple=True, metavar="ID", help="Start once this task is SUCCESS; repeatable.")
@click.option("--owner", metavar="TEXT", help="Who it is for.")
@click.option("--metadata", callback=read_json, metavar="JSON", help="Data of your own, given back unchanged.")
@click.option("--callback-url", metavar="URL", help="Tell each of its ends there by a signed POST (docs/callbacks.md).")
@click.option("--idempotency-key", metavar="TEXT", help="The same key gives the same task for a day.")
@click.option("--wait", is_flag=True, help="Follow it to its end; exit 1 unless it is SUCCESS.")
@json_option
@pass_session
def submit(
    session: Session,
    task_type: str,
    params: Any,
    named: Mapping[str, Any],
    task_id: str | None,
    wait: bool,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Accept a task of a type and print its id.

    A VALUE is read as JSON where it is JSON, else as text.

    \b
    Example: ghostless submit image.generate -p prompt="a lighthouse at dusk" -p width=256 --wait
    """
    request = Request(task_type, all_params(params, named), id=task_id, **wishes)
    submitted = session.client.submit_request(request, actor())
    if wait:
        wait_for_end(session.client, submitted, as_json)
    else:
        _tell(session.client, submitted, as_json)


def _tell(client: Client, submitted: Submitted, as_json: bool) -> None:
    if as_json:
        print_json({"id": submitted.task_id, "state": submitted.state, "created": submitted.created})
        return
    # The id alone on stdout, for scripts: ID=$(ghostless submit …)
    click.echo(submitted.task_id)
    known = "accepted" if submitted.created else "known already"
    verb = "see why" if submitted.state is State.CANCELLED else "follow it"
    shown = "explain" if submitted.state is State.CANCELLED else "status"
    click.echo(f"{known}, {submitted.state}; {verb} with: ghostless {shown} {submitted.task_id}", err=True)
    if submitted.state is State.PENDING:
        _warn_of_an_empty_queue(client, submitted.task_id)


def _warn_of_an_empty_queue(client: Client, task_id: str) -> None:
    """Say so when nobody listens on the queue of a task: its name may be mistaken."""
    with suppress(GhostlessError):  # it is accepted, whatever becomes of this look
        task = client.get(task_id)
        if task.state is State.PENDING and not serving(task.queue, client.workers()):
            click.echo(f"for now, {explain_task(client.look_around(task_id)).why}", err=True)

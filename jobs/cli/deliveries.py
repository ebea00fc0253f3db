"""`deliveries`: what was told to the callback of a task, and what became of each try."""

import click

from ..deliveries import Listed
from ..delivery import Try
from .output import Column, show_table, when
from .session import Session, json_option, pass_session, print_json


@click.command()
@click.argument("task_id", metavar="ID")
@click.option("--redeliver", "delivery_id", metavar="DELIVERY", help="Let this one be tried now, for another day.")
@json_option
@pass_session
def deliveries(session: Session, task_id: str, delivery_id: str | None, as_json: bool) -> None:
    """Show what was told to the callback of a task, and how it was answered; or tell it again.

    One that is waiting is tried by itself: soon after it failed, then ever more seldom, for a day. Its records are kept
    for 7 days, also when the task is purged before.

    \b
    Example: ghostless deliveries 01a229e67abf7fce825b6252ed753bbc --redeliver 1796000000000-0
    """
    client = session.client
    if delivery_id is None:
        found = client.deliveries_of(task_id)
    else:
        found = [client.deliveries.redeliver(task_id, delivery_id)]
    if as_json:
        print_json({"task": task_id, "deliveries": [each.to_dict() for each in found]})
    else:
        now = session.now()
        show_table(_DELIVERIES, [_row(each, now) for each in found], empty="nothing is told of it, or not yet")


_DELIVERIES = [
    Column("DELIVERY"),
    Column("TELLS"),
    Column("TO"),
    Column("STATE"),
    Column("TRIES", right=True),
    Column("NEXT"),
    Column("LAST"),
]


def _row(listed: Listed, now: int) -> list[str]:
    delivery, tries = listed.delivery, listed.delivery.tries
    upcoming = when(listed.next_at, now)
    last = _told(tries[-1], now) if tries else "-"
    return [
        *(delivery.id, delivery.type, delivery.receiver.place),
        *(delivery.state, str(len(tries)), upcoming or "-", last),
    ]


def _told(last: Try, now: int) -> str:
    return f"{last.error or f'answered {last.status}'}, {when(last.at, now)}"

"""`tokens`: who may do what over HTTP; add, list and revoke."""

import click

from ..errors import CorruptRecord
from ..model import damaged_view
from ..tokens import Scope, Token
from .options import as_interval
from .output import Column, clock, show_table, when
from .session import Session, json_option, pass_session, print_json


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def tokens(ctx: click.Context, as_json: bool) -> None:
    """List the tokens of the HTTP API; add and revoke them.

    \b
    Example: ghostless tokens add --name ci --scope submit --scope read --owner ann --expires 90d
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_tokens, as_json=as_json)


@tokens.command("list")
@json_option
@pass_session
def list_tokens(session: Session, as_json: bool) -> None:
    """List the tokens: what each allows, and until when. Their secrets are stored nowhere.

    \b
    Example: ghostless tokens list
    """
    found, now = session.client.tokens.all()
    if as_json:
        print_json({"tokens": [_view(token_id, token) for token_id, token in found.items()]})
    else:
        rows = [_row(token_id, token, now) for token_id, token in found.items()]
        show_table(_COLUMNS, rows, empty="there is no token; add one: ghostless tokens add --help")


_COLUMNS = [Column("ID"), Column("NAME"), Column("SCOPES"), Column("OWNER"), Column("CREATED"), Column("EXPIRES")]


def _view(token_id: str, token: Token | CorruptRecord) -> dict[str, object]:
    return damaged_view(token.detail, id=token_id) if isinstance(token, CorruptRecord) else token.to_dict()


def _row(token_id: str, token: Token | CorruptRecord, now: int) -> list[str]:
    if isinstance(token, CorruptRecord):
        return [token_id, token.detail, "", "", "", ""]
    until = "expired" if token.is_expired(now) else when(token.expires, now) or "never"
    return [token_id, token.name, " ".join(sorted(token.scopes)), token.owner or "", clock(token.created), until]


@tokens.command("add", short_help="Make a token and print it, once.")
@click.option(
    "--name",
    metavar="NAME",
    help="Who has it; the history calls its holder api:NAME. By default its owner, or without one its scopes.",
)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([scope.value for scope in Scope]),
    multiple=True,
    required=True,
    help="What it allows; repeatable.",
)
@click.option("--owner", metavar="OWNER", help="Confine it to the tasks of one owner; else it sees all.")
@click.option("--expires", callback=as_interval, metavar="INTERVAL", help="Its life: 12h, 90d; else it has no end.")
@json_option
@pass_session
def add(
    session: Session, name: str | None, scopes: tuple[str, ...], owner: str | None, expires: int | None, as_json: bool
) -> None:
    """Make a token and print it, once: nobody can tell it again. `admin` stands for all scopes.

    \b
    Example: ghostless tokens add --name ci --scope submit --scope read --owner ann --expires 90d
    """
    seconds = None if expires is None else expires / 1000
    name = (owner or "-".join(scopes)) if name is None else name
    text, token = session.client.tokens.add(name, [Scope(scope) for scope in scopes], owner, seconds)
    if as_json:
        print_json(token.to_dict() | {"token": text})
    else:
        click.echo(text)
        click.echo(f"keep it, it is shown this once; to revoke it: ghostless tokens revoke {token.id}", err=True)


@tokens.command("revoke")
@click.argument("token_id", metavar="ID")
@pass_session
def revoke(session: Session, token_id: str) -> None:
    """Revoke a token: within seconds its holder is let in no more, and his streams end.

    \b
    Example: ghostless tokens revoke 3f9a01c2d4e5
    """
    session.client.tokens.revoke(token_id)
    click.echo(f"token {token_id} is revoked")

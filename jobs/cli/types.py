"""`types`: what can be submitted, and publishing it in a deploy step."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from ..catalog import PublishedType
from ..horse_process import Horse, HorseBroken
from ..publishing import publish as publish_types
from ..spans import duration
from .modules import modules_of, modules_option, told
from .output import Column, show_table
from .session import Session, json_option, pass_session, print_json


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def types(ctx: click.Context, as_json: bool) -> None:
    """List the task types; publish them.

    \b
    Example: ghostless types publish --tasks my_tasks
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_types, as_json=as_json)


@types.command("list")
@json_option
@pass_session
def list_types(session: Session, as_json: bool) -> None:
    """List the task types that can be submitted, with their parameters.

    \b
    Example: ghostless types list
    """
    known = sorted(session.client.types().values(), key=lambda kind: kind.name)
    if as_json:
        print_json({"types": [asdict(kind) for kind in known]})
    else:
        empty = "no task type is published; start a worker with --tasks, or: ghostless types publish --tasks MODULE"
        show_table(_TYPES, [_row(kind) for kind in known], empty=empty)


_TYPES = [
    Column("TYPE"),
    Column("QUEUE"),
    Column("TIMEOUT", right=True),
    Column("RETRIES", right=True),
    Column("PARAMS"),
]


def _row(kind: PublishedType) -> list[str]:
    policy = kind.policy
    return [kind.name, kind.queue, duration(policy.timeout), str(policy.max_retries), _params(kind.schema)]


def _params(schema: Mapping[str, Any]) -> str:
    """Return the parameters as Python writes them: `prompt, width=512`."""
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    return ", ".join(
        f"{name}={given['default']!r}" if "default" in given else name for name, given in properties.items()
    )


@types.command()
@modules_option
@json_option
@pass_session
def publish(session: Session, modules: tuple[str, ...], as_json: bool) -> None:
    """Publish the task types of modules, so that they can be submitted before a worker runs.

    Tasks of these types that were parked go back to their queues, where stock rq workers find them.

    \b
    Example: ghostless types publish --tasks my_tasks
    """
    settings = session.settings(tasks=",".join(modules) or None)
    modules = modules_of(settings)
    session.client.reads.ping()  # before anything is imported
    found = _declared(modules, settings.artifacts)
    publish_types(session.client.store, found)
    given_back = session.client.store.unpark(sorted(found))
    if as_json:
        print_json({"published": sorted(found), "given_back": given_back})
        return
    click.echo(f"published: {', '.join(sorted(found)) or 'nothing, the modules have no handlers'}")
    if given_back:
        click.echo(f"tasks that were parked and are in their queues again: {given_back}")


def _declared(modules: tuple[str, ...], artifacts: str) -> Mapping[str, Mapping[str, Any]]:
    """Return what the modules declare, read in a process of its own exactly as a worker's."""
    # What modules print while they are imported must not get between the lines of --json.
    horse = Horse(modules, artifacts, lambda _stream, line: click.echo(line, err=True))
    try:
        horse.wait_until_ready(lambda: False)
        return horse.types
    except HorseBroken as error:
        raise told(error) from error
    finally:
        horse.kill()

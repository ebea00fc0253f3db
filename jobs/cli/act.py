"""`cancel`, `pause`, `resume` and `retry`: what a person does to a task."""

from collections.abc import Callable

import click

from ...statemachine import FINAL, RUNNING, State
from ..messages import Answer
from .session import Session, actor, json_option, pass_session, print_json

Verb = Callable[..., None]


def _action(verb: Verb) -> Verb:
    """Give a verb the arguments that all actions share."""
    for decorate in (pass_session, json_option, _message, click.argument("task_id", metavar="ID"), click.command()):
        verb = decorate(verb)
    return verb


_message = click.option("--message", default="", metavar="TEXT", help="Why, for the history.")


@_action
def cancel(session: Session, task_id: str, message: str, as_json: bool) -> None:
    """Cancel a task: at once when it waits, and soon when it runs.

    \b
    Example: ghostless cancel 01a229e67abf7fce825b6252ed753bbc --message "wrong prompt"
    """
    _tell(session.client.cancel(task_id, actor=actor(), message=message), as_json)


@_action
def pause(session: Session, task_id: str, message: str, as_json: bool) -> None:
    """Pause a task: at once when it waits, at its next checkpoint when it runs.

    \b
    Example: ghostless pause 01a229e67abf7fce825b6252ed753bbc
    """
    _tell(session.client.pause(task_id, actor=actor(), message=message), as_json)


@_action
def resume(session: Session, task_id: str, message: str, as_json: bool) -> None:
    """Let a paused task go on from its last checkpoint.

    \b
    Example: ghostless resume 01a229e67abf7fce825b6252ed753bbc
    """
    _tell(session.client.resume(task_id, actor=actor(), message=message), as_json)


@_action
def retry(session: Session, task_id: str, message: str, as_json: bool) -> None:
    """Give a failed or given-up task another life, due at once.

    \b
    Example: ghostless retry 01a229e67abf7fce825b6252ed753bbc
    """
    _tell(session.client.retry(task_id, actor=actor(), message=message), as_json)


def _tell(answer: Answer, as_json: bool) -> None:
    if as_json:
        print_json({"id": answer.task_id, "answer": answer.word, "state": answer.state})
    else:
        click.echo(_sentence(answer))


def _sentence(answer: Answer) -> str:
    state = State(answer.state)
    if answer.word == "already":
        return f"{answer.task_id} {'ended in' if state in FINAL else 'is already'} {state}; nothing was changed"
    soon = ", its worker was asked to stop" if state in RUNNING - {State.PROCESSING} else ""
    return f"{answer.task_id} is {state}{soon}"

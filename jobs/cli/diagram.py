"""`diagram`: the state machine as text that draws itself."""

import click

from ...statemachine.diagram import dot, mermaid


@click.command()
@click.option(
    "--format", "form", type=click.Choice(["mermaid", "dot"]), default="mermaid", show_default=True, help="Notation."
)
def diagram(form: str) -> None:
    """Print the state machine, made from the table that every move passes.

    \b
    Example: ghostless diagram --format dot | dot -Tsvg > states.svg
    """
    click.echo({"mermaid": mermaid, "dot": dot}[form]())

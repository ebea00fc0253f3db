"""Draws the table: Mermaid for pages, DOT for Graphviz. Arrows that lead back to their own state are left out."""

from collections.abc import Iterator

from .events import Event
from .states import FINAL, TRANSIENT, State
from .table import INITIAL, TABLE


def mermaid() -> str:
    """Return a `stateDiagram-v2`; final states are thick and lead to the end mark, passing ones are dashed."""
    return "\n".join(
        [
            "stateDiagram-v2",
            "    direction LR",
            *(f"    [*] --> {state}: {Event.SUBMIT}" for state in State if state in INITIAL),
            *(f"    {source} --> {target}: {label}" for source, target, label in arrows()),
            *(f"    {state} --> [*]" for state in State if state in FINAL),
            "    classDef final stroke-width:3px",
            "    classDef passing stroke-dasharray:4",
            f"    class {','.join(state for state in State if state in FINAL)} final",
            f"    class {','.join(state for state in State if state in TRANSIENT)} passing",
            "",
        ]
    )


def dot() -> str:
    """Return a Graphviz digraph; final states have a double border, passing ones a dashed border."""
    return "\n".join(
        [
            "digraph task {",
            "    rankdir=LR;",
            '    node [shape=box, style=rounded, fontname="sans-serif"];',
            '    edge [fontname="sans-serif", fontsize=10];',
            '    submitted [shape=point, label=""];',
            *(f"    {state} [peripheries=2];" for state in State if state in FINAL),
            *(f'    {state} [style="rounded,dashed"];' for state in State if state in TRANSIENT),
            *(f'    submitted -> {state} [label="{Event.SUBMIT}"];' for state in State if state in INITIAL),
            *(f'    {source} -> {target} [label="{label}"];' for source, target, label in arrows()),
            "}",
            "",
        ]
    )


def arrows() -> Iterator[tuple[State, State, str]]:
    """Yield each pair of states with the events that lead from one to the other, in reading order."""
    for source in State:
        for target in State:
            events = [event for event in Event if TABLE.get((source, event)) is target]
            if events and source is not target:
                yield source, target, ", ".join(events)

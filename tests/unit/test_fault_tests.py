"""Every fault test ends with a look at the whole database, whatever it broke."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "faults"

AUDITS = {"audit", "assert_clean"}
"""The functions that look at everything. The doctor is our own code, which is on trial here."""

END = 4
"""Statements of a test that count as its end."""

Definition = ast.FunctionDef | ast.ClassDef


@cache
def definitions(module: str) -> dict[str, list[Definition]]:
    """Return the functions, methods and classes of a module of the fault tests, and of those that it imports from."""
    found: dict[str, list[Definition]] = {}
    for node in ast.walk(ast.parse((FOLDER / f"{module}.py").read_text())):
        if isinstance(node, Definition):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("faults."):
            for name, there in definitions((node.module or "").removeprefix("faults.")).items():
                found.setdefault(name, []).extend(there)
    return found


def mentioned(parts: Iterable[ast.AST]) -> Iterator[str]:
    """Return the names that stand in statements and expressions; those of attributes begin with a dot."""
    for node in (node for part in parts for node in ast.walk(part)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield f".{node.attr}"


def is_audited(module: str, test: str) -> bool:
    """Tell whether a test ends with an audit, by itself or by what it calls; with a class come bases and methods."""
    known, reached = definitions(module), set[str]()
    ahead = [name for definition in known[test] for name in mentioned(definition.body[-END:])]
    while ahead:
        name = ahead.pop()
        if name in AUDITS:
            return True
        for definition in known.get(name.removeprefix("."), []) if name not in reached else []:
            ahead += mentioned([*definition.body, *getattr(definition, "bases", [])])
        reached.add(name)
    return False


TESTS = [
    (path.stem, node.name)
    for path in sorted(FOLDER.glob("test_*.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
]


@pytest.mark.parametrize(("module", "test"), TESTS)
def test_it_ends_with_the_audit(module: str, test: str) -> None:
    """The audit reads Redis without our code, and finds also what the test itself did not think of."""
    assert is_audited(module, test)


def test_what_does_not_audit_is_seen() -> None:
    """A walk ends with the audit, and the damage that it begins with does not."""
    assert (True, False) == (is_audited("steps", "walk"), is_audited("step_scenes", "damage"))

"""What the documents say is what the code does."""

import inspect
import json
import re
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from unittest.mock import Mock

import click
import pytest
from documents import examples
from ghostless.jobs import Context, InvalidHandler
from ghostless.jobs import registry as registry_module
from ghostless.jobs.cli import main
from ghostless.jobs.registry import Registry
from ghostless.jobs.settings import Settings
from ghostless.jobs.terms import Terms, policy_of
from ghostless.lua import VERBS
from ghostless.statemachine import Policy
from ghostless.statemachine.diagram import mermaid

ROOT = Path(__file__).parents[2]


def test_picture_of_the_states() -> None:
    """The picture in the README is the one that `ghostless diagram` draws."""
    pictures = re.findall(r"```mermaid\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert pictures == [mermaid()]


def test_imports_in_the_readme() -> None:
    """Every import of ours that the README shows works."""
    readme = (ROOT / "README.md").read_text()
    shown = [line for line in readme.splitlines() if line.startswith("from ghostless")]
    assert len(shown) >= 2
    for line in shown:
        exec(line, {})  # the README's own words


def test_settings_in_the_readme() -> None:
    """The README names every setting, and no other."""
    named = set(re.findall(r"`GHOSTLESS_([A-Z_]+)`", (ROOT / "README.md").read_text()))
    assert named == {field.name.upper() for field in fields(Settings)}


def commands(text: str) -> list[list[str]]:
    """Return the commands of ours that stand in the code of a document."""
    code = re.sub(r"```yaml.*?```", "", text, flags=re.DOTALL)
    lines = re.findall(
        r"^(?:    |ExecStart=|exec srun )\S*(?:(?<=/)|\b)ghostless ([a-z].*?)(?: +#.*)?$", code, re.MULTILINE
    )
    return [shlex.split(line) for line in lines + re.findall(r"`ghostless ([a-z][^`]*)`", text)]


@pytest.mark.parametrize("name", ["README.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))])
def test_commands_in_the_documents(name: str) -> None:
    """Each can be pasted: click knows the verb and takes the arguments."""
    found = commands((ROOT / name).read_text())
    assert found
    for verb, *arguments in found:
        command = main.get_command(click.Context(main), verb)
        assert command, f"{name}: ghostless {verb}"
        command.make_context(verb, arguments)  # raises what click refuses


@pytest.mark.parametrize("name", ["docs/workers.md", "docs/retention.md", "docs/tasks.md"])
def test_settings_in_the_guides(name: str) -> None:
    """They name no setting that is none."""
    named = set(re.findall(r"GHOSTLESS_([A-Z_]+)", (ROOT / name).read_text()))
    assert named <= {field.name.upper() for field in fields(Settings)}


def test_tests_in_the_list_of_faults() -> None:
    """Each test that it names exists, and every report has one or a reason why none."""
    text = (ROOT / "docs/faults.md").read_text()
    named = set(re.findall(r"`([a-z_/]+\.py)::(test_[a-z0-9_]+)`", text))
    assert len(named) > 60
    unknown = [(file, name) for file, name in named if f"def {name}(" not in (ROOT / "tests" / file).read_text()]
    assert unknown == []
    reports = re.findall(r"^\| (B\d\d) \| .* \| `", text, re.MULTILINE)
    assert sorted(set(reports)) == reports


def test_scripts_in_the_folder() -> None:
    """Every verb has its file; the other files are the parts that verbs share."""
    files = {path.stem for path in (ROOT / "lua").glob("*.lua")}
    assert set(VERBS) <= files
    shared = files - set(VERBS)
    assert all((ROOT / "lua" / f"{name}.lua").read_text().startswith("-- ") for name in shared)


def rows(heading: str) -> dict[str, list[str]]:
    """Return the rows of the table under a heading of the guide to tasks, by the name in their first cell."""
    section = (ROOT / "docs/tasks.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(?:ctx\.)?(\w+).*?` \| (.*) \|$", section, re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split(" | ")] for name, rest in found}


def test_arguments_in_the_guide_to_tasks() -> None:
    """Its table names every argument of `@task`, and no other, with the defaults and ranges of the terms."""
    table = rows("Arguments of `@task`")
    parameters = set(inspect.signature(Registry.task).parameters) - {"self", "terms"}
    assert set(table) == parameters | set(Terms.__annotations__)
    for name in Terms.__annotations__:
        default, allowed = table[name][:2]
        assert policy_of("t", cast(Terms, {name: json.loads(default)})) == Policy(), name
        with pytest.raises(InvalidHandler) as caught:
            policy_of("t", cast(Terms, {name: -1}))
        assert f"from {allowed.partition(',')[0]}, got" in str(caught.value)
        assert ("0 for none" in str(caught.value)) == allowed.endswith("0: none")


def test_context_in_the_guide_to_tasks() -> None:
    """Its table names every public member of the context, and no other."""
    members = {name for name in {**vars(Context), **Context.__annotations__} if not name.startswith("_")}
    assert set(rows("The context")) == members


def test_examples_in_the_guide_to_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its type can be served, and the tests that it shows pass."""
    types, module = Registry(), ModuleType("my_tasks")
    monkeypatch.setattr(registry_module, "task", types.task)
    monkeypatch.setitem(sys.modules, "my_tasks", module)
    shown: dict[str, Any] = vars(module)
    shown["take_picture"] = Mock()
    for code in examples("tasks.md", "python"):
        exec(code, shown)
    assert [one.schema()["required"] for one in types] == [["film"]]
    tests = [value for name, value in shown.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()

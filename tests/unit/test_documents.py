"""What the documents say is what the code does."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import click
import pytest
from ghostless.jobs.cli import main
from ghostless.jobs.settings import Settings
from ghostless.lua import VERBS
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


@pytest.mark.parametrize("name", ["docs/workers.md", "docs/retention.md"])
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

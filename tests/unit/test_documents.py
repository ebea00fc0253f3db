"""What the documents say is what the code does."""

import re
from dataclasses import fields
from pathlib import Path

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


def test_scripts_in_the_folder() -> None:
    """Every verb has its file; the other files are the parts that verbs share."""
    files = {path.stem for path in (ROOT / "lua").glob("*.lua")}
    assert set(VERBS) <= files
    shared = files - set(VERBS)
    assert all((ROOT / "lua" / f"{name}.lua").read_text().startswith("-- ") for name in shared)

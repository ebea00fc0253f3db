"""Which modules are imported when nobody names any."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ghostless.jobs.installed import task_modules
from ghostless.jobs.settings import Settings


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that announces two modules, one of them twice."""
    described = tmp_path / "team_tasks-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: team-tasks\nVersion: 1.0\n")
    entries = "video = team_tasks.video\nimages = team_tasks.images:handlers\nmore = team_tasks.images\n"
    (described / "entry_points.txt").write_text(f"[ghostless.tasks]\n{entries}[console_scripts]\nx = other:main\n")
    (tmp_path / "team_tasks.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("package")
def test_installed_packages_announce_modules() -> None:
    """Each module once, in a fixed order, and none is imported to find that out."""
    assert ("team_tasks.images", "team_tasks.video") == task_modules(Settings())
    assert "team_tasks" not in sys.modules


@pytest.mark.usefixtures("package")
def test_what_is_named_is_the_whole_list() -> None:
    """A worker can be kept to one module whatever is installed."""
    assert ("mine",) == task_modules(replace(Settings(), tasks=("mine",)))


def test_nothing_named_and_nothing_installed_is_nothing() -> None:
    """The verbs then say what is missing."""
    assert () == task_modules(Settings())

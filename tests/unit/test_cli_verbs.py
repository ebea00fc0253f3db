"""The shape of the command line: its verbs, their help, and what they import."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from ghostless.jobs.cli import VERBS, main

NAMES = [name for section in VERBS.values() for name in section]


def commands(name: str) -> dict[str, click.Command]:
    """Return a verb and, by their whole names, the verbs below it."""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    below = command.commands if isinstance(command, click.Group) else {}
    return {name: command, **{f"{name} {word}": child for word, child in below.items()}}


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_has_a_help_with_an_example(name: str) -> None:
    """--help of each verb, and of the verbs below it, says what it does and shows a command to copy."""
    for words, command in commands(name).items():
        result = CliRunner().invoke(main, [*words.split(), "--help"])
        assert 0 == result.exit_code
        assert f"Example: ghostless {words.split()[0]}" in result.stdout
        options = [param for param in command.params if isinstance(param, click.Option)]
        assert all(option.help for option in options), f"{words}: an option without help"


def test_the_help_lists_every_verb_and_the_exit_codes() -> None:
    """The first thing a person reads."""
    result = CliRunner().invoke(main, ["--help"])
    assert 0 == result.exit_code
    assert all(f"\n  {name} " in result.stdout for name in NAMES)
    assert "3 Redis not reachable" in " ".join(result.stdout.split())


def test_the_help_imports_nothing_heavy() -> None:
    """`ghostless --help` answers at once: servers, Redis and tables are imported by the verbs that need them."""
    code = (
        "import sys; from ghostless.jobs.cli import main; main(['--help'], standalone_mode=False);"
        "print('heavy:', sorted({'redis', 'rq', 'flask', 'gunicorn', 'rich', 'requests'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "heavy: []" == done.stdout.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["statsu"], ["status"], ["list", "--nonsense"], ["diagram", "--format", "svg"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    """What click refuses goes to stderr, and nothing to stdout."""
    result = CliRunner().invoke(main, arguments)
    assert (2, "") == (result.exit_code, result.stdout)
    assert "Error: " in result.stderr


def test_a_misspelt_verb_is_answered_with_the_near_ones() -> None:
    """And so is a state that is none, with those that are."""
    assert "did you mean stats or status?" in CliRunner().invoke(main, ["statsu"]).stderr
    result = CliRunner().invoke(main, ["list", "--state", "done"])
    assert 2 == result.exit_code
    assert "'--state': expected one of SCHEDULED, BLOCKED, PENDING" in result.stderr


@pytest.mark.parametrize(("form", "start"), [("mermaid", "stateDiagram"), ("dot", "digraph")])
def test_the_diagram_is_printed_in_both_notations(form: str, start: str) -> None:
    """It needs no Redis."""
    result = CliRunner().invoke(main, ["diagram", "--format", form], env={"GHOSTLESS_REDIS_URL": "redis://127.0.0.1:1"})
    assert 0 == result.exit_code
    assert start in result.stdout
    assert "RETRY_WAITING" in result.stdout


def test_the_version_is_told() -> None:
    """--version names the product and a number."""
    result = CliRunner().invoke(main, ["--version"])
    assert result.stdout.startswith("ghostless, version ")

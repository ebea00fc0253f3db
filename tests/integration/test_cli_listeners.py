"""The verbs about listeners, on a real Redis: how each group stands, what is parked, and how to try it again."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ghostless.jobs.cli import main
from ghostless.jobs.consumer import Consumer
from ghostless.jobs.groups import Groups
from ghostless.jobs.settings import Settings
from ghostless.jobs.subscriptions import Subscriptions
from redis import Redis
from scripts.seeding import scene, submission

GROUP = "listener:page"

Cli = Callable[..., Result]


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever handlers the modules of other tests registered in this process."""
    monkeypatch.setattr(import_module("ghostless.jobs.cli.listener"), "subscriptions", Subscriptions())


@pytest.fixture
def cli(settings: Settings, redis: Redis) -> Cli:
    """Run a verb against an empty database."""

    def run(*arguments: str, **variables: str) -> Result:
        environment = {"GHOSTLESS_REDIS_URL": settings.redis_url, **variables}
        return CliRunner().invoke(main, list(arguments), env=environment)

    return run


@pytest.fixture
def parked(redis: Redis, settings: Settings) -> str:
    """The id of an entry that one handler could not handle, while another entry waits."""
    stage, groups = scene(redis), Groups(redis, settings)
    groups.create(GROUP)
    stage.store.submit(submission())
    stage.store.submit(submission("t2"))
    one = Consumer(groups, GROUP, "box-1-aa", 60.0)
    heard = one.listen(("SUBMIT",), 1)
    assert heard
    one.park(heard.handed[0].entry, 8, "Traceback\nOSError: \x1b[31mno such page")
    return heard.handed[0].entry.id


def test_nobody_listens_yet(cli: Cli) -> None:
    """A first look says how to begin, and the overview has nothing to say."""
    assert "no listener has run yet; start one: ghostless listener --handlers MODULE" in cli("listeners").stdout
    assert {"listeners": []} == json.loads(cli("listeners", "--json").stdout)
    assert "listeners" not in cli("stats").stdout


def test_how_the_groups_stand(cli: Cli, parked: str) -> None:
    """One line a group; programs get the same as JSON, from here and from the overview."""
    titles, row = cli("listeners").stdout.splitlines()
    assert [
        "GROUP",
        "LISTENERS",
        "UNREAD",
        "BEHIND",
        "PENDING",
        "OLDEST",
        "PARKED",
        "MISSED",
        "PROBLEM",
    ] == titles.split()
    assert [GROUP, "1", "1"] == row.split()[:3]
    assert ["0", "-", "1", "0"] == row.split()[-4:]
    [told] = json.loads(cli("listeners", "list", "--json").stdout)["listeners"]
    assert (GROUP, ["box-1-aa"], 1, 0) == (told["name"], told["listeners"], told["parked"], told["pending"])
    assert [GROUP] == [group["name"] for group in json.loads(cli("stats", "--json").stdout)["listeners"]]
    assert "1 group, at most" in cli("stats").stdout
    assert "1 parked, 0 missed" in cli("stats").stdout


def test_what_is_parked_is_shown_with_its_last_line(cli: Cli, parked: str) -> None:
    """Without what a terminal would obey; the whole error is in the JSON."""
    shown = cli("listeners", "parked", GROUP).stdout
    assert f"{parked}  t1    SUBMIT      8" in shown
    assert "OSError: \\x1b[31mno such page" in shown
    [told] = json.loads(cli("listeners", "parked", GROUP, "--json").stdout)["parked"]
    assert ("t1", 8, "Traceback") == (told["entry"]["task"], told["begun"], told["error"].partition("\n")[0])


def test_parked_entries_are_tried_again(cli: Cli, parked: str) -> None:
    """By name or all; what is not parked is told, with exit code 1."""
    result = cli("listeners", "replay", GROUP, "1-1")
    assert (1, "Error: not to be tried again: 1-1 (not parked)\n") == (result.exit_code, result.stderr)
    assert {"group": GROUP, "replayed": [parked], "gone": [], "damaged": []} == json.loads(
        cli("listeners", "replay", GROUP, parked, "--json").stdout
    )
    assert "to be tried again: 0" in cli("listeners", "replay", GROUP, "--all").stdout
    assert 2 == cli("listeners", "replay", GROUP).exit_code
    assert 2 == cli("listeners", "replay", GROUP, parked, "--all").exit_code


@pytest.mark.parametrize("arguments", [("parked",), ("replay", "--all"), ("replay", "1-1"), ("remove",)])
def test_a_group_that_is_none_is_told_with_those_that_are(cli: Cli, parked: str, arguments: tuple[str, ...]) -> None:
    """A misspelt name is no empty group: exit code 1, and the names to choose from."""
    verb, *options = arguments
    cli("listeners", "create", "alerts")
    result = cli("listeners", verb, "nonsense", *options)
    said = f"Error: no listener reads the history as 'nonsense'; these groups do: alerts, {GROUP}\n"
    assert (1, "", said) == (result.exit_code, result.stdout, result.stderr)
    assert "nothing is parked here" in cli("listeners", "parked", "alerts").stdout


def test_a_group_in_an_empty_database_is_told(cli: Cli) -> None:
    """There is none at all."""
    result = cli("listeners", "parked", "nonsense")
    said = "Error: no listener reads the history as 'nonsense'; nor does any other group\n"
    assert (1, said) == (result.exit_code, result.stderr)


def test_what_was_purged_is_told(cli: Cli, parked: str, redis: Redis) -> None:
    """It cannot be tried again, and stays to be seen."""
    redis.xdel(scene(redis).keys.history, parked)
    result = cli("listeners", "replay", GROUP, "--all")
    assert (1, f"Error: not to be tried again: {parked} (its task was purged)\n") == (result.exit_code, result.stderr)
    assert parked in cli("listeners", "parked", GROUP).stdout


def test_damage_is_told_beside_what_is_well(cli: Cli, parked: str, redis: Redis) -> None:
    """What can be read is shown and tried again; the exit code says that something is wrong."""
    keys = scene(redis).keys
    redis.lpush(keys.parked_entries(GROUP), "nonsense")
    redis.hset(keys.listener(GROUP), "missed", "many")
    assert "field missed: expected a whole number" in cli("listeners").stdout
    assert "field missed: expected a whole number" in cli("stats").stdout
    shown = cli("listeners", "parked", GROUP)
    assert (1, True) == (shown.exit_code, "1 parked entries cannot be read" in shown.stderr)
    assert parked in shown.stdout
    result = cli("listeners", "replay", GROUP, "--all", "--json")
    assert 1 == result.exit_code
    told = json.loads(result.stdout)
    assert ([parked], 1) == (told["replayed"], len(told["damaged"]))


def test_groups_are_created_and_removed(cli: Cli, parked: str) -> None:
    """Before a first listener, and when a handler is no more."""
    assert "listener:new begins\n" == cli("listeners", "create", "listener:new", "--from-start").stdout
    assert "listener:new began earlier, and goes on\n" == cli("listeners", "create", "listener:new").stdout
    names = [group["name"] for group in json.loads(cli("listeners", "--json").stdout)["listeners"]]
    assert ["listener:new", GROUP] == names
    assert f"{GROUP} is removed\n" == cli("listeners", "remove", GROUP).stdout
    result = cli("listeners", "remove", GROUP)
    assert (1, True) == (result.exit_code, f"no listener reads the history as '{GROUP}'" in result.stderr)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("from ghostless.jobs import on\n\n@on('NEVER')\ndef tell(entry, client): pass\n", 1, "got 'NEVER'"),
        ("raise OSError('no disk')\n", 1, "Error: the handlers could not be imported: OSError: no disk"),
        ("raise SystemExit(0)\n", 1, "SystemExit: 0"),
        (None, 1, "ModuleNotFoundError: No module named 'my_broken"),
    ],
)
def test_handlers_that_cannot_be_used_are_told_at_the_start(
    cli: Cli, text: str | None, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, before anything is listened to."""
    name = f"my_broken_{abs(hash(said))}"
    if text is not None:
        tmp_path.joinpath(f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = cli("listener", "--handlers", name)
    assert code == result.exit_code
    assert said in result.stderr
    assert {"listeners": []} == json.loads(cli("listeners", "--json").stdout)


def test_a_listener_without_handlers_says_what_to_do(cli: Cli) -> None:
    """Wrong usage; and so is the group of the alerts, and an unreachable Redis is exit code 3."""
    result = cli("listener")
    assert 2 == result.exit_code
    assert "set GHOSTLESS_HANDLERS, or GHOSTLESS_ALERTS for alerts alone" in result.stderr
    assert "is the group of the alerts" in cli("listener", "--group", "alerts").stderr
    assert 3 == cli("listener", GHOSTLESS_REDIS_URL="redis://127.0.0.1:1").exit_code


def test_a_replay_into_a_group_that_is_gone_is_refused(cli: Cli, parked: str, redis: Redis) -> None:
    """The entries stay parked."""
    redis.xgroup_destroy(scene(redis).keys.history, GROUP)
    result = cli("listeners", "replay", GROUP, "--all")
    assert (1, True) == (result.exit_code, "no listener reads the history as" in result.stderr)
    assert parked in cli("listeners", "parked", GROUP).stdout

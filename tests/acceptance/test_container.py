"""The image and the composition, read as far as that goes without a container engine."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import requests
from fleet import Fleet
from ghostless.jobs.cli import VERBS, main
from ghostless.jobs.client import Client
from helpers import eventually, expect, free_port
from web_tools import answers

from .conftest import assert_clean

try:
    import yaml
except ModuleNotFoundError:
    if os.environ.get("CI"):
        raise
    pytest.skip("pyyaml is not installed: make test brings it", allow_module_level=True)

ROOT = Path(__file__).parents[2]

OURS = ("web", "watchdog", "listener", "worker")


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile in order, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    pairs = (line.partition(" ") for line in text.splitlines() if line.strip())
    return [(word, rest.strip()) for word, _, rest in pairs]


@pytest.fixture(scope="module")
def composition() -> dict[str, Any]:
    """The composition with its anchors resolved."""
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def copied(steps: list[tuple[str, str]]) -> list[str]:
    """Return what the image is built from."""
    lines = [shlex.split(rest) for word, rest in steps if word == "COPY" and "--from" not in rest]
    return [source for *sources, _ in lines for source in sources]


def test_the_image_is_built_from_what_is_there(steps: list[tuple[str, str]]) -> None:
    """Every source exists, and .dockerignore lets exactly those through."""
    sources = copied(steps)
    assert all((ROOT / source).exists() for source in sources)
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignore
    assert sorted(sources) == sorted(line.removeprefix("!") for line in ignore if line.startswith("!"))


def test_the_image_has_every_folder_of_the_package(steps: list[tuple[str, str]]) -> None:
    """What pyproject.toml packs is copied."""
    folders = re.findall(r'^"?ghostless\.([a-z]+)"? = ', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert folders
    assert set(folders) <= set(copied(steps))


def test_the_image_runs_the_command_as_nobody_special(steps: list[tuple[str, str]]) -> None:
    """The last stage ends with a user that is not root, and `ghostless` as its program."""
    last = dict(steps[max(index for index, (word, _) in enumerate(steps) if word == "FROM") :])
    assert "ghostless" == last["USER"]
    assert "--uid 10001" in last["RUN"]
    assert '["ghostless"]' == last["ENTRYPOINT"]
    assert "HEALTHCHECK" not in last


def test_no_stage_runs_a_server_as_root(steps: list[tuple[str, str]]) -> None:
    """USER stands before ENTRYPOINT."""
    words = [word for word, _ in steps]
    assert words.index("USER") < words.index("ENTRYPOINT")


@pytest.mark.parametrize("name", OURS)
def test_the_services_are_verbs_of_the_command_line(composition: dict[str, Any], name: str) -> None:
    """Each command is one that the verb understands, options included."""
    verb, *arguments = composition["services"][name]["command"]
    assert verb in VERBS["Processes"]
    command = main.get_command(click.Context(main), verb)
    assert command is not None
    assert [] == command.make_context(verb, list(arguments)).args  # raises what click refuses


@pytest.mark.parametrize("name", [*OURS, "redis"])
def test_every_service_comes_back(composition: dict[str, Any], name: str) -> None:
    """After a crash or a reboot; and ours wait until Redis is healthy."""
    service = composition["services"][name]
    assert "unless-stopped" == service["restart"]
    if name in OURS:
        assert {"redis": {"condition": "service_healthy"}} == service["depends_on"]


def test_redis_keeps_everything(composition: dict[str, Any]) -> None:
    """Append-only on a volume, and nothing is evicted."""
    redis = composition["services"]["redis"]
    command = " ".join(redis["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert ["redis:/data"] == redis["volumes"]
    assert redis["healthcheck"]
    assert "ports" not in redis


def test_the_web_is_reached_from_this_machine_only(composition: dict[str, Any]) -> None:
    """It starts before there is a token and asks nobody who he is, so no other address is published; and it tells
    whether it is ready."""
    web = composition["services"]["web"]
    assert "--allow-anonymous" in web["command"]
    assert all(port.startswith("127.0.0.1:") for port in web["ports"])
    assert "/readyz" in " ".join(web["healthcheck"]["test"])


def test_the_web_starts_on_an_empty_redis(composition: dict[str, Any], fleet: Fleet, client: Client) -> None:
    """By the command that stands there, but for the port: nobody has a token yet."""
    port, command = str(free_port()), composition["services"]["web"]["command"]
    fleet.start(*(port if word == "8000" else word for word in command))
    eventually(lambda: expect(answers(int(port))), seconds=20)
    assert 200 == requests.get(f"http://127.0.0.1:{port}/api/tasks", timeout=5).status_code
    assert_clean(client, fleet)


def test_the_worker_has_time_to_drain(composition: dict[str, Any]) -> None:
    """The engine kills it later than it gives up by itself."""
    worker = composition["services"]["worker"]
    drain = float(worker["command"][worker["command"].index("--drain") + 1])
    assert float(worker["stop_grace_period"].removesuffix("s")) >= drain + 2 * 5 + 5


def test_the_worker_tells_its_health(composition: dict[str, Any]) -> None:
    """The engine asks by a verb of ours, which finds the port in the environment; no curl is needed."""
    worker = composition["services"]["worker"]
    assert ["CMD", "ghostless", "health"] == worker["healthcheck"]["test"]
    assert 0 < int(worker["environment"]["GHOSTLESS_HEALTH_PORT"]) < 65536
    assert composition["services"]["web"]["environment"].items() < worker["environment"].items()


def test_the_engine_understands_the_composition() -> None:
    """Where docker has its compose command; elsewhere the tests above must do."""
    has_compose = (
        shutil.which("docker")
        and not subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode
    )
    if has_compose:
        subprocess.run(["docker", "compose", "-f", ROOT / "compose.yaml", "config", "--quiet"], check=True)

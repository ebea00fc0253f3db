"""What the documents show with curl is what a server answers."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import DOCS
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.statemachine import Policy
from web_tools import in_process, submitted

from .test_bulk import watching

CODE = re.compile(r"^```(sh|json|text)\n(?!#!)(.*?)^```$", re.DOTALL | re.MULTILINE)
ANYTHING = "…"

SCHEMA = {
    "type": "object", "properties": {"url": {"type": "string"}, "count": {"type": "integer"}}, "required": ["url"],
}  # fmt: skip
TYPES = {
    "video.thumbnails": {"queue": "media", "policy": Policy().pack(), "schema": SCHEMA, "description": ""},
    "image.generate": {"queue": "gpu", "policy": Policy().pack(), "schema": {"type": "object"}, "description": ""},
}


@pytest.fixture
def client(client: Client) -> Iterator[Client]:
    """The core, with the types of the documents, and three tasks that somebody wants to be rid of; a watchdog runs."""
    client.store.publish_types(TYPES)
    for _ in range(3):
        submitted(client, type="image.generate")
    with watching(client.store):
        yield client


def shown(document: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each piece of shell that is no whole script, with what the document says that it prints."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for kind, text in CODE.findall((DOCS / document).read_text(encoding="utf-8")):
        if kind == "sh":
            found.append((text, []))
        else:
            found[-1][1].append((kind, text))
    return found


def fits(told: Any, expected: Any) -> bool:
    """Tell whether an answer has all that is expected of it, and perhaps more."""
    if expected == ANYTHING:
        return True
    if isinstance(expected, dict):
        return isinstance(told, dict) and all(name in told and fits(told[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(told) == len(expected) and all(map(fits, told, expected))
    return told == expected


def printed(pieces: list[str], address: str, folder: Path, redis_url: str) -> list[str]:
    """Return what each piece of shell prints, all run in one shell."""
    script = "\n".join(f"printf '\\n# {number}\\n'\n{piece}" for number, piece in enumerate(pieces))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace("localhost:8000", address)],
        cwd=folder,
        env=os.environ | {"PATH": path, "GHOSTLESS_REDIS_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return re.split(r"\n# \d+\n", done.stdout)[1:]


@pytest.mark.parametrize("document", ["api.md", "bulk.md", "http-workers.md", "security.md"])
def test_every_example_is_true(client: Client, tmp_path: Path, document: str) -> None:
    """One after the other, in one shell, as by a reader; what is said of security holds where tokens are demanded."""
    if missing := [tool for tool in ("curl", "jq") if not shutil.which(tool)]:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not on PATH: `apt install {' '.join(missing)}`")
    for name, text in re.findall(
        r"^```python\n# (\w+\.py)\n(.*?)^```$", (DOCS / document).read_text(), re.DOTALL | re.M
    ):
        (tmp_path / name).write_text(text)
    examples = shown(document)
    assert examples
    with in_process(create_app(client=client, require_tokens=document == "security.md")) as served:
        address = served.url.removeprefix("http://")
        told = printed([shell for shell, _ in examples], address, tmp_path, client.settings.redis_url)
    for (shell, expected), output in zip(examples, told, strict=True):
        if expected[0][0] == "text":
            assert re.fullmatch(re.escape(expected[0][1]).replace(ANYTHING, ".*"), output), (shell, output)
        else:
            answers = [json.loads(line) for line in output.splitlines()]
            assert len(answers) == len(expected), output
            for answer, (_, text) in zip(answers, expected, strict=True):
                assert fits(answer, json.loads(text)), (shell, answer)

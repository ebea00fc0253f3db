"""What `docs/api.md` shows with curl is what a server answers."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ghostless.jobs.store import Store
from ghostless.statemachine import Policy
from web_tools import Served

DOCUMENT = Path(__file__).parents[2] / "docs" / "api.md"
CODE = re.compile(r"^```(sh|json|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ANYTHING = "…"

SCHEMA = {
    "type": "object", "properties": {"url": {"type": "string"}, "count": {"type": "integer"}}, "required": ["url"],
}  # fmt: skip


def shown() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each piece of shell, with what the document says that it prints."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for kind, text in CODE.findall(DOCUMENT.read_text(encoding="utf-8")):
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


def test_every_example_is_true(served: Served, store: Store) -> None:
    """Run one after the other on one server, as a reader would."""
    if shutil.which("curl") is None:
        pytest.skip("no curl on PATH")
    kind = {"queue": "media", "policy": Policy().pack(), "schema": SCHEMA, "description": ""}
    store.publish_types({"video.thumbnails": kind})
    examples = shown()
    assert len(examples) > 6
    for shell, expected in examples:
        script = shell.replace("localhost:8000", served.url.removeprefix("http://"))
        done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=30, check=True)
        if expected[0][0] == "text":
            assert expected[0][1] == done.stdout, shell
        else:
            answers = [json.loads(line) for line in done.stdout.splitlines()]
            assert len(answers) == len(expected), done.stdout
            for told, (_, text) in zip(answers, expected, strict=True):
                assert fits(told, json.loads(text)), (shell, told)

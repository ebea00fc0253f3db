"""Odd values for every time and count of a submit, over HTTP and on the command line (B21)."""

import json
import math
from typing import Any

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.model import Task
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from odd_values import MEANINGS, ODD, RANGES, SUBMITTED, is_taken
from web_tools import publish

DEFAULTS = {"timeout": 1_800_000, "stall_timeout": 0, "max_retries": 3, "delay": 0}


def stored(task: Task, field: str) -> int:
    """Return what became of a field, in ms or as a count."""
    if field == "delay":
        return (task.due_at or task.submitted_at) - task.submitted_at
    return getattr(task.policy, field)


@pytest.mark.parametrize("field", SUBMITTED)
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_over_http(web: FlaskClient, client: Client, field: str, value: Any) -> None:
    """202 and stored in its unit, or 422 pointing to the field with its range; NaN and Infinity are no JSON: 400."""
    body = json.dumps({"type": "work", field: value})
    answer = web.post("/api/tasks", data=body, content_type="application/json")
    if value is None or is_taken(field, value):
        assert answer.status_code == 202
        expected = DEFAULTS[field] if value is None else MEANINGS[field][value]
        assert stored(client.get(answer.json["id"]), field) == expected
        return
    is_json = not isinstance(value, float) or math.isfinite(value)
    assert (answer.status_code, sum(client.counts().values())) == (422 if is_json else 400, 0)
    if is_json:
        (fault,) = answer.json["errors"]
        assert fault == {"pointer": f"/{field}", "detail": f"{RANGES[field]}, got {value!r}"}


def test_a_number_beyond_all_others_over_http(web: FlaskClient) -> None:
    """1e999 is JSON, and is read as infinity."""
    answer = web.post("/api/tasks", data='{"type": "work", "timeout": 1e999}', content_type="application/json")
    assert answer.status_code == 422
    assert answer.json["errors"] == [{"pointer": "/timeout", "detail": f"{RANGES['timeout']}, got inf"}]


@pytest.mark.parametrize("field", SUBMITTED)
@pytest.mark.parametrize("value", [value for value in ODD if value is not None], ids=repr)
def test_on_the_command_line(client: Client, store: Store, settings: Settings, field: str, value: Any) -> None:
    """Exit 0 and stored in its unit; 1 for a number out of the range, 2 for no number, with the field and its range."""
    publish(store)
    arguments = ["submit", "work", f"--{field.replace('_', '-')}", str(value)]
    result = CliRunner().invoke(main, arguments, env={"GHOSTLESS_REDIS_URL": settings.redis_url})
    if is_taken(field, value):
        assert result.exit_code == 0, result.output
        assert stored(client.get(result.stdout.strip()), field) == MEANINGS[field][value]
        return
    assert result.exit_code in (1, 2)
    assert RANGES[field] in result.stderr
    assert field in result.stderr.replace("-", "_")
    assert sum(client.counts().values()) == 0


def test_the_clocks_of_a_type_are_shown_and_kept(web: FlaskClient, client: Client, store: Store) -> None:
    """What was published comes back with the type and with each task of it; a submit changes its own silence alone."""
    publish(store)
    packed = "60000,3,2,3,2000,600000,604800000,9000,5000,90000"
    store.publish_types({"clocked": {"queue": "work", "schema": {}, "description": "", "policy": packed}})
    clocks = {"timeout": 60_000, "stall_timeout": 9_000, "extend_by": 5_000, "max_runtime": 90_000}
    (shown,) = [known for known in web.get("/api/types").json["types"] if known["name"] == "clocked"]
    assert clocks.items() <= shown["policy"].items()
    for wish, expected in (({}, 9_000), ({"stall_timeout": 0}, 0), ({"stall_timeout": 2}, 2_000)):
        task_id = web.post("/api/tasks", json={"type": "clocked", **wish}).json["id"]
        policy = web.get(f"/api/tasks/{task_id}").json["policy"]
        assert (clocks | {"stall_timeout": expected}).items() <= policy.items()

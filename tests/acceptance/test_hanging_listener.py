"""Nothing slow runs inside a transition: a handler of the history that hangs holds up no task."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.groups import GroupStatus
from helpers import eventually, expect, is_running, run_command

from .conftest import assert_clean, assert_gone, ended, running, story

pytestmark = pytest.mark.slow

GROUP = "listener:hang"


def live(client: Client, folder: Path) -> dict[str, list[str]]:
    """Let tasks end in each way that a handler, a person or a clock may bring about; return their histories by id."""
    folder.mkdir()
    name, end = folder.name, {"end": str(folder / "end")}
    traces = {kind: {"trace": str(folder / kind)} for kind in ("well", "again", "badly", "late", "cancelled", "paused")}
    for kind, task_type, wishes in (
        ("well", "life.once", {}),
        ("again", "life.flaky", {}),
        ("badly", "life.flaky", {"max_retries": 0}),
        ("late", "life.until", {"timeout": 0.3}),
        ("cancelled", "life.until", {}),
        ("paused", "life.until", {}),
    ):
        params = traces[kind] | (end if task_type == "life.until" else {})
        client.submit(task_type, params, id=f"{kind}-{name}", **wishes)
    for kind in ("cancelled", "paused"):
        running(folder / kind)
    client.cancel(f"cancelled-{name}")
    client.pause(f"paused-{name}")
    ended(client, f"paused-{name}", "PAUSED")
    client.resume(f"paused-{name}")
    ended(client, f"late-{name}", "TIMEOUT_CANCELLED")
    (folder / "end").touch()
    for kind, state in (("well", "SUCCESS"), ("again", "SUCCESS"), ("badly", "FAILED"), ("cancelled", "CANCELLED")):
        ended(client, f"{kind}-{name}", state)
    ended(client, f"paused-{name}", "SUCCESS")
    return {f"{kind}-{name}": story(client, f"{kind}-{name}") for kind in traces}


def duration(client: Client, task_ids: list[str]) -> int:
    """Return the ms from the first to the last move of these tasks, by Redis' clock."""
    moments = [entry.at for task_id in task_ids for entry in client.history(task_id)]
    return max(moments) - min(moments)


def standing(client: Client) -> GroupStatus:
    """Return how the group of the handler stands."""
    return next(status for status in client.listeners.all() if status.name == GROUP)


def test_a_handler_that_hangs_holds_no_task_up(
    serving: Callable[..., None], client: Client, fleet: Fleet, tmp_path: Path
) -> None:
    """All tasks move and end as they do with nobody listening, and as soon; how far it is behind is shown."""
    serving(workers=2)
    alone = live(client, tmp_path / "alone")
    stuck = tmp_path / "stuck"
    fleet.environment["STUCK"] = str(stuck)
    listener = fleet.start("listener", "--handlers", "stuck")
    eventually(lambda: expect(any(status.listeners for status in client.listeners.all())), seconds=20)
    beside = live(client, tmp_path / "beside")
    (handler,) = running(stuck)
    assert is_running(int(handler)), "it hung from the first move to the last"
    assert list(alone.values()) == list(beside.values())
    assert duration(client, list(beside)) < 3 * duration(client, list(alone))
    moves = sum(map(len, beside.values()))
    status = standing(client)
    assert (moves, True) == (status.pending + (status.lag or 0), status.behind > 0)
    code, shown = run_command("listeners", environment=fleet.surroundings)
    assert (0, True) == (code, str(status.lag) in shown.split()), shown
    listener.kill()
    eventually(lambda: assert_gone(int(handler)))
    assert_clean(client, fleet, *alone, *beside)

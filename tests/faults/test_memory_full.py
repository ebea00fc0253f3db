"""A Redis at its memory limit for longer than a lease, under a fleet at work (B54)."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, begun, ended, owner, running, story
from faults.sizes import FULL
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.errors import RedisFull

pytestmark = pytest.mark.slow


def test_running_work_ends_at_a_full_redis(
    serving: Callable[..., None], client: Client, fleet: Fleet, tmp_path: Path, end: Path
) -> None:
    """What runs ends, retries, is cancelled, paused and taken over as ever; only new work is refused, and told so."""
    serving(workers=5)
    kept, lost = tmp_path / "kept", tmp_path / "lost"
    finishing = client.submit("life.busy", {"trace": f"{tmp_path}/finishing", "seconds": 1.0}).task_id
    failing = client.submit("life.flaky", {"trace": f"{tmp_path}/failing"}, delay=1.0).task_id
    cancelled, paused = (
        client.submit("life.steps", {"trace": f"{tmp_path}/{name}", "count": 10_000}).task_id for name in ("c", "p")
    )
    living = client.submit("life.until", {"trace": str(kept), "end": str(end)}).task_id
    orphan = client.submit("life.until", {"trace": str(lost), "end": str(end)}).task_id
    for name in ("finishing", "c", "p", "kept", "lost"):
        running(tmp_path / name)
    client.store.redis.config_set("maxmemory", 1)
    began = time.monotonic()
    with pytest.raises(RedisFull, match="raise maxmemory or wait"):
        client.submit("life.once", {"trace": f"{tmp_path}/refused"}, id="refused")
    owner(client, fleet, orphan).kill()
    client.cancel(cancelled)
    client.pause(paused)
    ended(client, cancelled, "CANCELLED")
    ended(client, paused, "PAUSED")
    assert ended(client, finishing, "SUCCESS").attempt == 1
    assert ended(client, failing, "SUCCESS").attempt == 2
    begun(lost, 2)
    client.cancel(paused)
    time.sleep(max(0.0, began + FULL - time.monotonic()))  # so that each lease was renewed at a full Redis
    client.store.redis.config_set("maxmemory", 0)
    end.touch()
    assert ended(client, living, "SUCCESS").attempt == 1
    assert ended(client, orphan, "SUCCESS").losses == 1
    assert client.submit("life.once", {"trace": f"{tmp_path}/refused"}, id="refused").task_id == "refused"
    ended(client, "refused", "SUCCESS")
    assert story(client, "refused") == ["SUBMIT", "START", "COMPLETE"]
    ids = (finishing, failing, cancelled, paused, living, orphan, "refused")
    assert_clean(client, fleet, *ids)

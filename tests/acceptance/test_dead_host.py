"""A host that is gone from one moment to the next, with the clocks of production."""

import time
from pathlib import Path

import psutil
import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.settings import Settings
from helpers import eventually, expect

from .conftest import assert_clean, ended, entry_of, running

pytestmark = pytest.mark.slow

DEFAULTS = Settings()
CLOCKS = {f"GHOSTLESS_{name.upper()}": str(getattr(DEFAULTS, name)) for name in ("beat", "lease", "sweep", "grace")}
LEASE = round(1000 * DEFAULTS.lease)


def die_at_once(pid: int) -> None:
    """End a process with all that it started; none of them sees another one end."""
    parent = psutil.Process(pid)
    family = [parent, *parent.children(recursive=True)]
    for process in family:
        process.suspend()
    for process in family:
        process.kill()


def sweeps_until_lost(client: Client, task_ids: list[str]) -> set[int]:
    """Return when watchdogs swept, by Redis' clock, until all these tasks were taken away from their workers."""
    redis, swept = client.store.redis, set[int]()
    patience = time.monotonic() + 4 * DEFAULTS.lease
    while not all(client.get(task_id).losses for task_id in task_ids):
        assert time.monotonic() < patience
        swept.add(int(redis.hget(client.store.keys.watchdog, "swept_at") or 0))
        time.sleep(0.05)
    return swept


def test_a_host_that_dies(client: Client, fleet: Fleet, tmp_path: Path, end: Path) -> None:
    """What ran there is taken away when its lease is over, and not before, by the very next sweep or the one after.

    So it is noticed 15 to 16 seconds after its last beat; then a worker elsewhere runs it anew.
    """
    fleet.environment |= CLOCKS
    fleet.watchdog()
    pool = fleet.pool("-n", "2")
    eventually(lambda: expect(client.types()), seconds=20)
    traces = [tmp_path / f"trace{number}" for number in range(2)]
    ids = [client.submit("life.until", {"trace": str(trace), "end": str(end)}).task_id for trace in traces]
    for trace in traces:
        running(trace, 2)
    die_at_once(pool.pid)
    leases = [client.store.redis.pexpiretime(client.store.keys.heartbeat(task_id)) for task_id in ids]
    fleet.worker("default", name="elsewhere", tasks="lifecycle")
    swept = sweeps_until_lost(client, ids)
    for task_id, over in zip(ids, leases, strict=True):
        taken_away = entry_of(client, task_id, "TIMEOUT")
        assert taken_away.reason == "heartbeat_lost"
        assert taken_away.at - (over - LEASE) >= LEASE
        assert len([at for at in swept if over < at < taken_away.at]) <= 2
    end.touch()
    for task_id in ids:
        assert ended(client, task_id, "SUCCESS").attempt == 2
    assert_clean(client, fleet, *ids)

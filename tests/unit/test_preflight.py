"""Whether a Redis is fit to keep tasks."""

import time
from typing import Any

import pytest
from ghostless.jobs.errors import UnfitRedis
from ghostless.jobs.preflight import findings, preflight, require_fit
from redis import Redis

FIT: dict[str, Any] = {"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "aof_enabled": 1, "role": "master"}


def judged(saves: str | None = "", **server: Any) -> list[str]:
    """Return what is not well about a server."""
    return [f"{finding.level}: {finding}" for finding in findings(FIT | server, saves) if finding.level != "ok"]


def test_a_fit_server() -> None:
    """Nothing is told of a server that is as it should be."""
    assert [] == judged()
    assert [] == judged(redis_version="8.2.1")
    assert [] == judged(saves=None, aof_enabled=0)
    assert [] == [f for f in findings({}, None) if f.level != "ok"]


@pytest.mark.parametrize(
    ("server", "saves", "told"),
    [
        ({"redis_version": "6.2.14"}, "", "refused: Redis 6.2.14 is too old"),
        ({"maxmemory_policy": "allkeys-lru"}, "", "refused: it evicts keys"),
        ({"maxmemory_policy": "volatile-ttl"}, "", "refused: it evicts keys"),
        ({"role": "slave"}, "", "refused: it is a replica"),
        ({"aof_enabled": 0}, "", "warning: IT KEEPS NOTHING OVER A RESTART"),
        ({"aof_enabled": 0}, "3600 1", "warning: it only makes snapshots (save 3600 1)"),
        ({"maxmemory": 2**30, "used_memory": 1_000_000_000}, "", "warning: 93% of its 1024 MiB are in use"),
        ({"total_system_memory": 2**30, "used_memory": 2**30}, "", "warning: 100% of its 1024 MiB are in use"),
        ({"aof_last_write_status": "err"}, "", "warning: it could not write to its disk (aof_last_write_status)"),
    ],
)
def test_what_is_wrong_is_told(server: dict[str, Any], saves: str, told: str) -> None:
    """Each fault is named, with what to do about it."""
    (found,) = judged(saves, **server)
    assert found.startswith(told)
    assert "; " in found


def test_eviction_is_refused_unless_allowed(redis: Redis) -> None:
    """A server that evicts loses tasks; who knows what he does may go on, and is warned."""
    redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(UnfitRedis, match="noeviction"):
            require_fit(redis)
        assert any("evicts" in str(finding) for finding in require_fit(redis, allow_eviction=True))
    finally:
        redis.config_set("maxmemory-policy", "noeviction")
    assert ["IT KEEPS NOTHING OVER A RESTART"] == [finding.what for finding in require_fit(redis)]


@pytest.mark.parametrize(("ahead", "told"), [(60, "60 s behind"), (-60, "60 s ahead of")])
def test_another_clock_is_told(redis: Redis, monkeypatch: pytest.MonkeyPatch, ahead: int, told: str) -> None:
    """Which clock is ahead, and by how much; no clock but Redis' decides anything."""
    real = time.time
    monkeypatch.setattr("ghostless.jobs.preflight.time.time", lambda: real() + ahead)
    assert any(told in finding.what for finding in preflight(redis) if finding.level == "warning")

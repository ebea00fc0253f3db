"""Whether a Redis is fit to keep tasks."""

from typing import Any

import pytest
from ghostless.jobs.errors import UnfitRedis
from ghostless.jobs.preflight import findings, require_fit
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


@pytest.mark.parametrize(
    ("server", "saves", "told"),
    [
        ({"redis_version": "6.2.14"}, "", "refused: Redis 6.2.14 is too old"),
        ({"maxmemory_policy": "allkeys-lru"}, "", "refused: it evicts keys"),
        ({"maxmemory_policy": "volatile-ttl"}, "", "refused: it evicts keys"),
        ({"role": "slave"}, "", "refused: it is a read-only replica"),
        ({"aof_enabled": 0}, "", "warning: it keeps nothing over a restart"),
        ({"aof_enabled": 0}, "3600 1", "warning: it only makes snapshots (save 3600 1)"),
        ({"maxmemory": 2**30, "used_memory": 1_000_000_000}, "", "warning: 93% of its 1024 MiB are in use"),
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
    assert ["it keeps nothing over a restart"] == [finding.what for finding in require_fit(redis)]

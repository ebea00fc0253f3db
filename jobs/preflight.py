"""Whether a Redis is fit to keep tasks: its version, whether it evicts, whether it persists, what room it has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from redis import Redis

from .errors import GhostlessError, UnfitRedis
from .scripts import translated

Level = Literal["ok", "warning", "refused"]

OLDEST = (7, 0)
"""Version of Redis that the scripts need; Valkey answers with the version of Redis that it is like."""

LITTLE_ROOM = 0.9
"""Part of `maxmemory` in use from which on it is told."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: how it is, and what to do where it is not well."""

    level: Level
    what: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.what}; {self.advice}" if self.advice else self.what


def preflight(redis: Redis) -> list[Finding]:
    """Look at the server. Raises RedisUnavailable."""
    with translated():
        server = redis.info()
    return findings(server, _saves(redis))


def require_fit(redis: Redis, *, allow_eviction: bool = False) -> list[Finding]:
    """Return the warnings. Raises UnfitRedis when tasks would be lost here, RedisUnavailable."""
    found = preflight(redis)
    refused = [str(finding) for finding in found if finding.level == "refused"]
    if refused and not (allow_eviction and all("evicts" in text for text in refused)):
        raise UnfitRedis(refused)
    return [finding for finding in found if finding.level != "ok"]


def _saves(redis: Redis) -> str | None:
    """Return when snapshots are made; None where nobody may ask, as with managed servers."""
    try:
        with translated():
            return cast(dict[str, str], redis.config_get("save")).get("save")
    except GhostlessError:
        return None


def findings(server: Mapping[str, Any], saves: str | None) -> list[Finding]:
    """Judge a server by its INFO and by when it saves snapshots."""
    return [_version(server), _eviction(server), _persistence(server, saves), _room(server), _role(server)]


def _version(server: Mapping[str, Any]) -> Finding:
    text = str(server.get("redis_version", "0"))
    numbers = tuple(map(int, re.findall(r"\d+", text)[:2]))
    if numbers < OLDEST:
        return Finding("refused", f"Redis {text} is too old", "use Redis 7.0 or Valkey 7.2, or newer")
    return Finding("ok", f"version {text}")


def _eviction(server: Mapping[str, Any]) -> Finding:
    policy = server.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return Finding("ok", "it evicts nothing")
    advice = "set maxmemory-policy noeviction: an evicted task is a lost task"
    return Finding("refused", f"it evicts keys when memory is short (maxmemory-policy {policy})", advice)


def _persistence(server: Mapping[str, Any], saves: str | None) -> Finding:
    if server.get("aof_enabled"):
        return Finding("ok", "it keeps an append-only file")
    if saves is None:
        return Finding("ok", "whether it persists cannot be asked here")
    if not saves:
        return Finding("warning", "it keeps nothing over a restart", "set appendonly yes, or every task is lost then")
    advice = "set appendonly yes to lose at most a second"
    return Finding("warning", f"it only makes snapshots (save {saves}): what came after the last is lost", advice)


def _room(server: Mapping[str, Any]) -> Finding:
    limit, used = server.get("maxmemory", 0), server.get("used_memory", 0)
    if limit and used >= LITTLE_ROOM * limit:
        what = f"{used / limit:.0%} of its {limit // 2**20} MiB are in use"
        return Finding("warning", what, "raise maxmemory, or shorten the retention")
    return Finding("ok", f"{used // 2**20} MiB in use" + (f" of {limit // 2**20} MiB" if limit else ""))


def _role(server: Mapping[str, Any]) -> Finding:
    if server.get("role") == "slave":
        return Finding("refused", "it is a read-only replica", "give the address of its master")
    return Finding("ok", "it takes writes")

"""Whether a Redis is fit to keep tasks: its version, whether it evicts, whether it persists, its room, its clock."""

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from redis import Redis

from .errors import RedisRefused, UnfitRedis
from .scripts import milliseconds, translated

Level = Literal["ok", "warning", "refused"]

OLDEST = (7, 0)
"""Version of Redis that the scripts need; Valkey answers with the version of Redis that it is like."""

LITTLE_ROOM = 0.9
"""Part of the memory in use from which on it is told."""

ANOTHER_CLOCK = 5.0
"""Seconds between two clocks from which on it is told: no clock but Redis' decides, but people compare them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: how it is, and what to do where it is not well."""

    level: Level
    what: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.what}; {self.advice}" if self.advice else self.what

    def to_dict(self) -> dict[str, str]:
        """Return it ready for JSON."""
        return asdict(self)


def preflight(redis: Redis, *, allow_eviction: bool = False) -> list[Finding]:
    """Look at the server; what it does not tell, as managed servers do, is passed over. Raises RedisUnavailable."""
    try:
        with translated():
            server = redis.info()
    except RedisRefused:
        return [Finding("ok", "nothing of it may be asked")]
    return [*findings(server, _saves(redis), allow_eviction=allow_eviction), _clock(redis)]


def require_fit(redis: Redis, *, allow_eviction: bool = False) -> list[Finding]:
    """Return the warnings. Raises UnfitRedis when tasks would be lost here, RedisUnavailable."""
    found = preflight(redis, allow_eviction=allow_eviction)
    refused = [str(finding) for finding in found if finding.level == "refused"]
    if refused:
        raise UnfitRedis(refused)
    return [finding for finding in found if finding.level == "warning"]


def _saves(redis: Redis) -> str | None:
    """Return when snapshots are made; None where nobody may ask."""
    try:
        with translated():
            return cast(dict[str, str], redis.config_get("save")).get("save")
    except RedisRefused:
        return None


def findings(server: Mapping[str, Any], saves: str | None, *, allow_eviction: bool = False) -> list[Finding]:
    """Judge a server by its INFO and by when it saves snapshots."""
    eviction = _eviction(server, allow_eviction)
    return [_version(server), eviction, _persistence(server, saves), _disk(server), _room(server), _role(server)]


def _version(server: Mapping[str, Any]) -> Finding:
    text = str(server.get("redis_version", "unknown"))
    numbers = tuple(map(int, re.findall(r"\d+", text)[:2]))
    if numbers and numbers < OLDEST:
        return Finding("refused", f"Redis {text} is too old", "use Redis 7.0 or Valkey 7.2, or newer")
    return Finding("ok", f"version {text}")


def _eviction(server: Mapping[str, Any], allowed: bool) -> Finding:
    policy = server.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return Finding("ok", "it evicts nothing")
    what = f"it evicts keys when memory is short (maxmemory-policy {policy}), and an evicted task is a lost task"
    advice = "set maxmemory-policy noeviction"
    if allowed:
        return Finding("warning", what, advice)
    return Finding("refused", what, f"{advice}, or start with --allow-eviction")


def _persistence(server: Mapping[str, Any], saves: str | None) -> Finding:
    if server.get("aof_enabled"):
        return Finding("ok", "it keeps an append-only file")
    if saves is None:
        return Finding("ok", "whether it persists may not be asked")
    if not saves:
        return Finding("warning", "IT KEEPS NOTHING OVER A RESTART", "set appendonly yes, or every task is lost then")
    advice = "set appendonly yes to lose at most a second"
    return Finding("warning", f"it only makes snapshots (save {saves}): what came after the last is lost", advice)


def _disk(server: Mapping[str, Any]) -> Finding:
    failed = [
        name
        for name in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")
        if server.get(name, "ok") != "ok"
    ]
    if failed:
        return Finding("warning", f"it could not write to its disk ({', '.join(failed)})", "look at its log")
    return Finding("ok", "its last write to disk went well")


def _room(server: Mapping[str, Any]) -> Finding:
    limit, used = server.get("maxmemory") or server.get("total_system_memory", 0), server.get("used_memory", 0)
    if limit and used >= LITTLE_ROOM * limit:
        what = f"{used / limit:.0%} of its {limit // 2**20} MiB are in use"
        return Finding("warning", what, "give it more memory, or shorten the retention")
    return Finding("ok", f"{used // 2**20} MiB in use" + (f" of {limit // 2**20} MiB" if limit else ""))


def _role(server: Mapping[str, Any]) -> Finding:
    if server.get("role") == "slave":
        return Finding("refused", "it is a replica", "give the address of its master")
    return Finding("ok", "it takes writes")


def _clock(redis: Redis) -> Finding:
    asked_at = time.time()
    with translated():
        theirs = milliseconds(redis.time()) / 1000
    difference = theirs - (asked_at + time.time()) / 2
    if abs(difference) > ANOTHER_CLOCK:
        what = f"its clock is {abs(difference):.0f} s {'ahead of' if difference > 0 else 'behind'} this machine's"
        return Finding("warning", what, "set both by NTP")
    return Finding("ok", "its clock is this machine's")

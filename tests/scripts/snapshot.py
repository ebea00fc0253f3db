"""The whole database as one value, to prove that a call changed nothing at all.

The count of stale writes is left out: that is what a refused write adds to, and a test of its own.
"""

from typing import Any

from redis import Redis


def snapshot(redis: Redis) -> dict[str, tuple[Any, ...]]:
    """Return every key with its type, the moment it expires, and all it holds."""
    picture = {key: _content(redis, key) for key in sorted(redis.scan_iter(count=1000))}
    return {key: (kind, *rest) for key, (kind, *rest) in picture.items() if rest[-1] != {}}


def _content(redis: Redis, key: str) -> tuple[Any, ...]:
    kind = str(redis.type(key))
    readers = {
        "string": lambda: redis.get(key),
        "list": lambda: redis.lrange(key, 0, -1),
        "set": lambda: sorted(redis.smembers(key)),
        "hash": lambda: {name: text for name, text in redis.hgetall(key).items() if name != "stale_writes"},
        "zset": lambda: redis.zrange(key, 0, -1, withscores=True),
        "stream": lambda: (redis.xrange(key), redis.xinfo_stream(key), _groups(redis, key)),
    }
    return kind, redis.pexpiretime(key), readers[kind]()


def _groups(redis: Redis, key: str) -> list[dict[str, Any]]:
    """Return how far each group is, and what its consumers hold, without times."""
    told = ("name", "pending", "last-delivered-id")
    groups = [{name: group[name] for name in told} for group in redis.xinfo_groups(key)]
    for group in groups:
        consumers = redis.xinfo_consumers(key, group["name"])
        group["consumers"] = {consumer["name"]: consumer["pending"] for consumer in consumers}
    return groups


def difference(before: dict[str, tuple[Any, ...]], after: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, Any]]:
    """Return what changed between two snapshots, for the message of a failed assertion."""
    names = before.keys() | after.keys()
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}

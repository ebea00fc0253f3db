"""Who is there: a worker's connections bear its name, and Redis sees them end when its process does.

Host and process id tell nothing, since in a container they are the same after a restart.
"""

from urllib.parse import quote

from redis import Redis

from .errors import RedisRefused
from .scripts import translated


def client_name(worker: str, incarnation: str) -> str:
    """Return what the connections of one life of a worker are called; Redis allows no blanks in it."""
    return f"{_prefix(worker)}{incarnation}"


def present(redis: Redis, worker: str, silence: float) -> set[str]:
    """Return the incarnations of a worker that are connected to this database and not silent for `silence` seconds.

    A host that vanished leaves connections behind, which Redis keeps for minutes. Empty where Redis does not tell
    who is connected. Raises RedisUnavailable.
    """
    prefix, database = _prefix(worker), str(redis.connection_pool.connection_kwargs.get("db") or 0)
    try:
        with translated():
            connections = redis.client_list()
    except RedisRefused:
        return set()
    return {
        name.removeprefix(prefix)
        for connection in connections
        if (name := connection.get("name", "")).startswith(prefix)
        and connection.get("db", database) == database  # some servers tell less
        and float(connection.get("idle", 0)) < silence
    }


def _prefix(worker: str) -> str:
    return f"ghostless:{quote(worker, safe='')}:"

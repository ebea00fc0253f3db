"""Publishing task types, in a deploy step or by a worker: what they are, and when they run by themselves."""

from collections.abc import Mapping
from typing import Any

from .schedules import Schedules
from .store import Store


def publish(store: Store, types: Mapping[str, Mapping[str, Any]]) -> None:
    """Publish task types, and register the schedules that they declare. Safe to repeat.

    The types come first, so that no run is due before its type is known. Raises RedisUnavailable, RedisFull or
    CorruptRecord.
    """
    store.publish_types(types)
    Schedules(store.redis, store.keys).declare(types)

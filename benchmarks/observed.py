"""What Redis was asked and how long that took: round trips, Redis' own time, slow commands."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from unittest.mock import patch

import psutil
from redis import Redis
from redis.connection import AbstractConnection


@dataclass(slots=True)
class Trips:
    """How many there were so far; a pipeline is one, whatever is in it."""

    number: int = 0


@contextmanager
def counted_trips() -> Generator[Trips]:
    """Count what every connection of this process sends."""
    trips, send = Trips(), cast("Callable[..., None]", AbstractConnection.send_packed_command)

    def counted(connection: AbstractConnection, *arguments: Any, **options: Any) -> None:
        trips.number += 1
        send(connection, *arguments, **options)

    with patch.object(AbstractConnection, "send_packed_command", counted):
        yield trips


@contextmanager
def on_one_cpu(*servers: Redis) -> Generator[None]:
    """Run this process and these servers on one CPU: where each of them runs would differ more than what they do."""
    pids = [os.getpid(), *(server.info("server")["process_id"] for server in servers)]
    everyone = [psutil.Process(pid) for pid in pids]
    before = everyone[0].cpu_affinity()
    try:
        for process in everyone:
            process.cpu_affinity(before[:1])
        yield
    finally:
        for process in everyone:
            process.cpu_affinity(before)


class SlowCommands:
    """Those commands since `watch` that kept Redis for longer than a limit, in µs."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        redis.config_set("slowlog-max-len", 100_000)

    def watch(self, limit: int) -> None:
        """Forget what was, and note those from now on."""
        self._redis.slowlog_reset()
        self._redis.config_set("slowlog-log-slower-than", limit)

    def longest(self, number: int) -> list[str]:
        """Return the longest ones, each as its time in ms and its first words."""
        slowest = sorted(self._noted(), key=lambda entry: -entry["duration"])[:number]
        return [f"{entry['duration'] / 1000:.1f} ms {_words(entry['command'])}" for entry in slowest]

    def durations(self, name: str) -> list[int]:
        """Return how long each command of this name took, µs."""
        return [entry["duration"] for entry in self._noted() if _words(entry["command"]).startswith(name)]

    def number(self) -> int:
        """Return how many there were."""
        return len(self._noted())

    def _noted(self) -> list[dict[str, Any]]:
        self._redis.config_set("slowlog-log-slower-than", -1)
        return self._redis.slowlog_get(100_000)


def _words(command: bytes | str) -> str:
    text = command.decode(errors="replace") if isinstance(command, bytes) else command
    return text[:60]

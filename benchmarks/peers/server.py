"""A Redis of its own for each visit, over TCP as the peers use it, and what it tells of its work."""

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.client import Monitor

from ...jobs.cli.ports import free_port
from ..tools import durable, private_redis

LOOKS = ("info", "config", "client", "monitor")
"""Commands with which this module looks."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running Redis."""

    port: int
    redis: Redis

    @property
    def url(self) -> str:
        """Its address."""
        return address(self.port)

    def weigh(self) -> int:
        """Return the bytes that it holds, and count commands from now on.

        The buffers of its clients and of its file do not weigh, nor its histograms of the commands counted so far.
        """
        self.redis.config_resetstat()
        memory = self.redis.info("memory")
        clients = sum(int(client["tot-mem"]) for client in self.redis.client_list())  # INFO's own sum is a second old
        return memory["used_memory"] - clients - memory["mem_aof_buffer"]

    def commands(self) -> tuple[Counter[str], Counter[str]]:
        """Return how often each command ran since the weighing, in scripts too, and for how many µs."""
        calls: Counter[str] = Counter()
        micros: Counter[str] = Counter()
        for key, found in self.redis.info("commandstats").items():
            name = key.removeprefix("cmdstat_").partition("|")[0]  # a subcommand stands behind the bar
            if name not in LOOKS:
                calls[name] += found["calls"]
                micros[name] += found["usec"]
        return calls, micros

    def watch(self, meanwhile: Callable[[], object]) -> dict[str, float]:
        """Return which part of each command's calls came from clients, not from scripts, while something happened."""
        everything: Counter[str] = Counter()
        clients: Counter[str] = Counter()
        with self.redis.monitor() as monitor:
            meanwhile()
            self.redis.echo("watched")
            for name, is_from_client in _seen(monitor):
                everything[name] += 1
                clients[name] += is_from_client
        return {name: clients[name] / calls for name, calls in everything.items()}


def _seen(monitor: Monitor) -> Iterator[tuple[str, bool]]:
    """Yield each command up to the ECHO, and whether a client sent it."""
    while True:
        command: Any = monitor.next_command()
        name = command["command"].partition(" ")[0].lower()
        if name == "echo":
            return
        yield name, command["client_type"] != "lua"


def address(port: int) -> str:
    """Return the address of a Redis on a port of this machine."""
    return f"redis://127.0.0.1:{port}/0"


@contextlib.contextmanager
def private_server(fsync: str) -> Generator[Server]:
    """Run a server with its defaults, but that it keeps no snapshots and, with fsync "off", no append-only file."""
    port = free_port(0)
    with (
        private_redis("--port", str(port), "--bind", "127.0.0.1", *durable(fsync)),
        Redis(port=port, decode_responses=True) as redis,
    ):
        yield Server(port, redis)

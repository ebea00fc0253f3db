"""How the whole stands, each part read by itself, so that what is damaged takes nothing else down."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from ..statemachine import State
from .client import Client
from .deliveries import Overview
from .errors import CorruptRecord
from .groups import GroupStatus

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Standing:
    """How many tasks are in each state and wait in each queue, the ledger, who swept, who works and who listens.

    A part that cannot be read is None, and `damaged` tells by its name why.
    """

    states: dict[State, int] | None
    ledger: dict[str, int] | None
    pending: dict[str, int] | None
    watchdog: dict[str, str | int] | None
    workers: int | None
    listeners: list[GroupStatus] | None
    deliveries: Overview | None
    damaged: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the form for JSON."""
        listeners = None if self.listeners is None else [group.to_dict() for group in self.listeners]
        deliveries = None if self.deliveries is None else self.deliveries.to_dict()
        return asdict(self) | {"listeners": listeners, "deliveries": deliveries}


def overview(client: Client) -> Standing:
    """Return how the whole stands now. Raises RedisUnavailable."""
    reads, damaged = client.reads, dict[str, str]()

    def spared(name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except CorruptRecord as error:
            damaged[name] = error.detail
            return None

    return Standing(
        states=spared("states", reads.counts),
        ledger=spared("ledger", reads.ledger),
        pending=spared("pending", lambda: reads.pending(sorted(reads.queues()))),
        watchdog=reads.watchdog(),
        workers=spared("workers", lambda: len(client.workers())),
        listeners=spared("listeners", lambda: list(client.listeners.all())),
        deliveries=spared("deliveries", client.deliveries.overview),
        damaged=damaged,
    )

"""What the routes share: the core, the hub, and how a task is shown."""

import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any, cast

from flask import current_app

from ..jobs.client import Client
from ..jobs.model import Task
from ..jobs.remote import RemoteWorkers
from ..jobs.store import Store
from .claiming import Claiming
from .hub import Hub
from .keyring import Keyring
from .limits import Limits, Share
from .past import Past

EPOCH_AGE = 2.0
"""Seconds that the database's id is remembered. An old one only makes a client fetch once more, never miss a move."""


@dataclass(slots=True)
class Desk:
    """One application's dependencies; they touch Redis when first used, not when made."""

    client: Client
    past: Past
    hub: Hub
    work: Store  # for workers over HTTP, with leases of their own
    claiming: Claiming
    workers: RemoteWorkers
    addresses: Share
    tokens: Share
    keyring: Keyring
    watchdog: threading.Thread | None = None  # where the process runs one
    _epoch: str = ""
    _epoch_read_at: float = field(default=-EPOCH_AGE)

    @classmethod
    def over(cls, client: Client, limits: Limits | None = None) -> "Desk":
        """Return a desk for this core; without `limits`, for what fits into this process."""
        past, settings = Past(client.reads), client.settings
        hub, workers = Hub(past, (limits or Limits.here()).subscribers), RemoteWorkers(client.store)
        work = Store(client.store.redis, replace(settings, lease=settings.http_lease))
        return cls(
            client,
            past,
            hub,
            work,
            Claiming(work, hub, workers),
            workers,
            Share("address", settings.streams_per_address),
            Share("token", settings.streams_per_token),
            Keyring(client.tokens),
        )

    def epoch(self) -> str:
        """Return the id of the database. Read it before a task: then its cursor can only be too old, never too new."""
        if self.hub.started:
            return self.hub.position.epoch
        if time.monotonic() - self._epoch_read_at >= EPOCH_AGE:
            self._epoch = self.past.epoch()
            self._epoch_read_at = time.monotonic()
        return self._epoch


def shown(task: Task, epoch: str) -> dict[str, Any]:
    """Return a task's public view, with the cursor from which a stream goes on behind it."""
    return task.to_dict() | {"cursor": f"{epoch}.{task.cursor}"}


def desk() -> Desk:
    """Return the desk of the application that serves this request."""
    return cast(Desk, current_app.extensions["ghostless"])

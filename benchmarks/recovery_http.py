"""Workers over HTTP that fall silent: a part of `recovery.py`."""

import random
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from flask.testing import FlaskClient

from ..app import create_app
from .recovery_field import BEAT, QUEUE, TYPE, Field, Recovery

OTHERS = 2
"""For each that dies there are so many that live: with more than half silent, the watchdog waits a beat longer."""


@dataclass
class Remote:
    """A worker that holds a task, which it claimed over HTTP without a socket."""

    name: str
    held: dict[str, Any]
    beat_at: float = field(default_factory=time.monotonic)

    def beat(self, web: FlaskClient) -> None:
        """Renew the lease, when it is time."""
        if time.monotonic() >= self.beat_at + BEAT:
            self.beat_at = time.monotonic()
            fence = {"worker": self.name} | {name: self.held[name] for name in ("attempt", "token")}
            assert web.put(f"/api/tasks/{self.held['id']}/heartbeat", json=fence).status_code == 200


class Crowd:
    """Workers over HTTP, of which some are to die."""

    def __init__(self, field: Field) -> None:
        self._web = create_app(client=field.client).test_client()
        kind = {"queue": QUEUE, "schema": {"type": "object"}}
        assert self._web.put(f"/api/types/{TYPE}", json=kind).status_code == 200
        self.alive: list[Remote] = []
        self._number = 0

    def live(self) -> None:
        """Let those that live beat, and one more claim what there is."""
        for remote in self.alive:
            remote.beat(self._web)
        name = f"http{self._number}"
        wish = {"worker": name, "types": [TYPE], "token": secrets.token_hex(8)}
        answer = self._web.post(f"/api/queues/{QUEUE}/claim?wait=0", json=wish)
        if answer.status_code == 200:
            self.alive.append(Remote(name, answer.get_json()))
            self._number += 1

    def live_on(self, seconds: float) -> None:
        """Go on so for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.live()
            time.sleep(0.01)


def over_http(field: Field, deaths: int) -> list[Recovery]:
    """Let so many fall silent, one after the other, and others take over what they held."""
    crowd = Crowd(field)
    field.submit((1 + OTHERS) * deaths)
    crowd.live_on(2 * BEAT)
    died: dict[str, int] = {}
    for _ in range(deaths):
        crowd.live_on(random.uniform(0, BEAT))
        died[crowd.alive.pop(0).held["id"]] = field.now()
    crowd.live_on(1.2 * field.client.settings.http_lease)
    return [field.recovery(task, at) for task, at in died.items()]

"""Lets time pass around the moment from which a stream listens, in any server of a test, as long as the test says so.

Before it something may be missed by who replays first and listens then; after it, something may come twice.
"""

import time
from pathlib import Path

from ghostless.web.hub import Hub
from ghostless.web.rooms import Subscription
from ghostless.web.watch import Watch

IS_LATE = "test:late"
"""The key in Redis that says so."""

LASTS = 600
"""Seconds after which it says so no more: longer than any test."""

BEFORE, AFTER = 0.1, 0.5
"""Seconds that pass."""

IN_A_SERVER = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import late; late.install()\n"
"""What a process of its own runs before it serves."""

_subscribe = Hub.subscribe


def subscribe(self: Hub, watch: Watch) -> Subscription:
    """Listen, late."""
    with self._past._reading():
        is_late = self._past.redis.exists(IS_LATE)
    if not is_late:
        return _subscribe(self, watch)
    time.sleep(BEFORE)
    inbox = _subscribe(self, watch)
    time.sleep(AFTER)
    return inbox


def install() -> None:
    """Let every hub of this process be late."""
    Hub.subscribe = subscribe

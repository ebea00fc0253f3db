"""What a worker claims: it asks until Redis answers, and gives back what it cannot begin."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from .errors import GhostlessError, RedisFull, RedisUnavailable
from .messages import Claim, Claimed, ClaimReply, NothingToClaim, PlainJob
from .pauses import Pauses
from .registered import tolerate
from .settle import given_back, tell
from .store import Store

log = logging.getLogger("rq.worker.ghostless")

ASK_AGAIN = (NothingToClaim("more"), NothingToClaim("damaged"))
"""Answers after which there may be a task all the same."""

LONGEST_PAUSE = 2.0
"""Seconds between two tries while Redis does not answer."""


@dataclass(slots=True)
class Claims:
    """The claims of one worker. `give_up` tells that it wants nothing more."""

    store: Store
    actor: str
    give_up: Callable[[], bool]
    answered_at: float = 0.0  # when Redis last answered a claim, on the monotonic clock
    _kept: ClaimReply | None = None

    def take(self, wish: Callable[[], Claim]) -> ClaimReply | None:
        """Return what was answered before and kept, else what Redis answers; None when the worker gave up."""
        kept, self._kept = self._kept, None
        return kept or self._ask(wish)

    def keep(self, reply: ClaimReply | None) -> None:
        """Keep what was answered together with the end of the task before, unless it is to ask again."""
        if reply not in ASK_AGAIN:
            self._kept = reply

    def give_back(self) -> None:
        """Give back what is kept and not begun."""
        kept, self._kept = self._kept, None
        if isinstance(kept, Claimed):
            tell(self.store, given_back([kept, *kept.followers]), self.actor, give_up=lambda: True)
        elif isinstance(kept, PlainJob):
            tolerate(lambda: self.store.put_back(kept))

    def _ask(self, wish: Callable[[], Claim]) -> ClaimReply | None:
        claim = wish()
        pauses = Pauses(0.1, LONGEST_PAUSE)
        while not self.give_up():
            try:
                reply = self.store.claim(claim)
                self.answered_at = time.monotonic()
                if reply not in ASK_AGAIN:
                    return reply
                claim = wish()  # what this one got is done with, and would be answered again
                continue
            except (RedisUnavailable, RedisFull) as error:
                log.warning("%s; trying again", error)
            except GhostlessError as error:
                log.error("%s", error)
            time.sleep(pauses.next())
        return None

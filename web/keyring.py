"""The tokens as one process knows them: remembered for a moment, so that most requests ask Redis nothing."""

import threading
import time
from concurrent.futures import Future
from dataclasses import replace

from ..jobs.tokens import Sight, Tokens

FRESH = 2.0
"""Seconds that a token is remembered, and after which a revoked one lets nobody in any more."""

KNOWN_LIMIT = 1000
"""Tokens and sessions remembered at once, ids that are none included; at one more all are forgotten."""

Seen = tuple[Sight, float]
"""What was seen, and when Redis was asked for it."""


class Keyring:
    """What this process knows of tokens. Safe to use from several threads, of which one asks for all."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._lock = threading.Lock()
        self._seen: dict[str, Seen] = {}
        self._asked: dict[str, Future[Seen]] = {}

    def look(self, token_id: str = "") -> Sight:
        """Return what there is to know of a token, with Redis' time now. Raises RedisUnavailable, CorruptRecord.

        While Redis does not answer nobody is known for longer than `FRESH`.
        """
        seen = self._seen.get(token_id)
        if seen is None or time.monotonic() - seen[1] >= FRESH:
            seen = self._look_together(token_id)
        sight, asked_at = seen
        return replace(sight, now=sight.now + int((time.monotonic() - asked_at) * 1000))

    def _look_together(self, token_id: str) -> Seen:
        """Ask Redis, or wait for the answer to one who asks already."""
        with self._lock:
            there = self._asked.get(token_id)
            answer = there or self._asked.setdefault(token_id, Future())
        if not there:
            self._ask(token_id, answer)
        return answer.result()

    def _ask(self, token_id: str, answer: "Future[Seen]") -> None:
        asked_at = time.monotonic()
        try:
            sight = self.tokens.look(token_id)
            if token_id or sight.signing_key:  # else somebody may make the key at any moment
                self._remember(token_id, (sight, asked_at))
            answer.set_result((sight, asked_at))
        except BaseException as error:
            answer.set_exception(error)  # nobody may wait for ever
        finally:
            with self._lock:
                del self._asked[token_id]

    def _remember(self, token_id: str, seen: Seen) -> None:
        if len(self._seen) >= KNOWN_LIMIT:
            self._seen.clear()
        self._seen[token_id] = seen

"""The tokens as one process knows them: remembered for a moment, so that most requests ask Redis nothing."""

import time
from dataclasses import replace

from ..jobs.tokens import Sight, Tokens

FRESH = 2.0
"""Seconds that a token is remembered, and after which a revoked one lets nobody in any more."""

KNOWN_LIMIT = 1000
"""Tokens remembered at once, ids that are none included; at one more all are forgotten."""


class Keyring:
    """What this process knows of tokens. Safe to use from several threads."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._seen: dict[str, tuple[Sight, float]] = {}

    def look(self, token_id: str = "") -> Sight:
        """Return what there is to know of a token, with Redis' time now. Raises RedisUnavailable, CorruptRecord.

        While Redis does not answer nobody is known for longer than `FRESH`.
        """
        seen = self._seen.get(token_id)
        if seen and (age := time.monotonic() - seen[1]) < FRESH:
            return replace(seen[0], now=seen[0].now + int(age * 1000))
        asked_at = time.monotonic()
        sight = self.tokens.look(token_id)
        if token_id or sight.signing_key:  # else somebody may make the key at any moment
            self._remember(token_id, sight, asked_at)
        return sight

    def _remember(self, token_id: str, sight: Sight, asked_at: float) -> None:
        if len(self._seen) >= KNOWN_LIMIT:
            self._seen.clear()
        self._seen[token_id] = sight, asked_at

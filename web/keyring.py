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

Asked = tuple[str, str]
"""Of which token, and of which session."""

Seen = tuple[Sight, float]
"""What was seen, and when Redis was asked for it."""


class Keyring:
    """What this process knows of tokens. Safe to use from several threads, of which one asks for all."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._lock = threading.Lock()
        self._seen: dict[Asked, Seen] = {}
        self._looks: dict[Asked, Future[Seen]] = {}

    def look(self, token_id: str = "", session_id: str = "") -> Sight:
        """Return what there is to know of a token, and of a session of it, with Redis' time now.

        While Redis does not answer nobody is known for longer than `FRESH`. Raises RedisUnavailable, CorruptRecord.
        """
        asked = token_id, session_id
        seen = self._seen.get(asked)
        if seen is None or time.monotonic() - seen[1] >= FRESH:
            seen = self._look_together(asked)
        sight, asked_at = seen
        return replace(sight, now=sight.now + int((time.monotonic() - asked_at) * 1000))

    def end_session(self, token_id: str, session_id: str, ends: int) -> None:
        """End a session, which ends by itself at `ends` (ms by Redis' clock): here at once, elsewhere within `FRESH`.

        Raises RedisUnavailable, RedisFull.
        """
        self.tokens.end_session(session_id, (ends - self.look().now) / 1000)
        self._seen.pop((token_id, session_id), None)

    def _look_together(self, asked: Asked) -> Seen:
        """Ask Redis, or wait for the answer to one who asks already."""
        with self._lock:
            there = self._looks.get(asked)
            answer = there or self._looks.setdefault(asked, Future())
        if not there:
            self._look_up(asked, answer)
        return answer.result()

    def _look_up(self, asked: Asked, answer: "Future[Seen]") -> None:
        asked_at = time.monotonic()
        try:
            sight = self.tokens.look(*asked)
            if any(asked) or sight.signing_key:  # else somebody may make the key at any moment
                self._remember(asked, (sight, asked_at))
            answer.set_result((sight, asked_at))
        except BaseException as error:
            answer.set_exception(error)  # nobody may wait for ever
        finally:
            with self._lock:
                del self._looks[asked]

    def _remember(self, asked: Asked, seen: Seen) -> None:
        if len(self._seen) >= KNOWN_LIMIT:
            self._seen.clear()
        self._seen[asked] = seen

"""Log lines without what opens doors: an address may have a token in it, and servers quote addresses."""

import logging
import re

from ..jobs.tokens import PREFIX
from .cookies import SESSION_COOKIE
from .credentials import STREAM_PREFIX

_OPENERS = re.compile(
    rf"\b({PREFIX}|{STREAM_PREFIX})[A-Za-z0-9_.-]{{8,}}"  # tokens, wherever they stand
    r"|(?<=[?&]token=)[^&\s'\"]+"
    rf"|(?<={SESSION_COOKIE}=)[^;\s'\"]+"
    r"|(?i:(?<=bearer ))[^\s'\"]+"
)


def redacted(text: str) -> str:
    """Return the text with dots in the place of tokens and cookies."""
    return _OPENERS.sub("…", text)


class Redacting(logging.Formatter):
    """A formatter that redacts what another one wrote, tracebacks included."""

    def __init__(self, inner: logging.Formatter | None) -> None:
        super().__init__()
        self._inner = inner or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or lines."""
        return redacted(self._inner.format(record))


def redact(logger: logging.Logger) -> None:
    """Let the handlers of a logger write nothing that opens doors."""
    for handler in logger.handlers:
        if not isinstance(handler.formatter, Redacting):
            handler.setFormatter(Redacting(handler.formatter))

"""What logs and addresses show of tokens: nothing."""

import io
import logging

import pytest
from ghostless.web.redaction import Redacting, redact, redacted

TOKEN = "gl_0123456789ab_" + "aB3-_" * 8 + "xyz"
SIGNED = "gls_eyJ0b2tlbiI6IjQyNWViYmRj.jiJ_u53d62sCOFt0260uY7"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"GET /api/events?token={SIGNED} HTTP/1.1", "GET /api/events?token=… HTTP/1.1"),
        (f"/api/events?a=1&token={SIGNED}&b=2", "/api/events?a=1&token=…&b=2"),
        ("/api/events?token=%67l_something", "/api/events?token=…"),
        (f"Authorization: Bearer {TOKEN}", "Authorization: Bearer …"),
        ("authorization: bEARER abc", "authorization: bEARER …"),
        (f"Cookie: a=b; ghostless_session={SIGNED[4:]}; c=d", "Cookie: a=b; ghostless_session=…; c=d"),
        (f"token {TOKEN} is wrong", "token … is wrong"),
        (f"('{SIGNED}',)", "('…',)"),
        ("no token here, gl_ and gls_ are words", "no token here, gl_ and gls_ are words"),
        ("/api/tasks?type=token&x=1", "/api/tasks?type=token&x=1"),
    ],
)
def test_tokens_are_dots(text: str, shown: str) -> None:
    """And the rest of the line is as it was."""
    assert shown == redacted(text)


def test_a_log_redacts_arguments_and_tracebacks() -> None:
    """Wherever in a record the token stands; once is enough however often it is set up."""
    logger, written = logging.Logger("x"), io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    redact(logger)
    redact(logger)
    assert isinstance(handler.formatter, Redacting)
    try:
        raise ValueError(f"with {TOKEN}")
    except ValueError:
        logger.exception("asked for %s", f"/x?token={SIGNED}")
    assert written.getvalue().startswith("ERROR asked for /x?token=…\nTraceback")
    assert "ValueError: with …" in written.getvalue()
    assert TOKEN not in written.getvalue()

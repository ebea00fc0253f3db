"""The Idempotency-Key of a request, as draft-ietf-httpapi-idempotency-key-header has it, or without its quotes."""

import re

from ..jobs.names import KEY_LIMIT
from .kinds import Kind
from .problems import Refusal

_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE = re.compile(r"[!#-~]+")
_ESCAPED = re.compile(r"\\(.)")


def idempotency_key(header: str | None) -> str | None:
    """Return the key that a request carries; `"a"`, a string of RFC 8941, is the same key as a bare `a`.

    Raises Refusal (400) for what is neither: sent again it would be no better, and taken as no key it would be a
    second task.
    """
    if header is None:
        return None
    text = header.strip(" \t")
    quoted = _QUOTED.fullmatch(text)
    key = _ESCAPED.sub(r"\1", quoted[1]) if quoted else text if _BARE.fullmatch(text) else ""
    if 0 < len(key) <= KEY_LIMIT:
        return key
    detail = f"Idempotency-Key: expected 1 to {KEY_LIMIT} visible ASCII characters, or such a string in double quotes"
    errors = [{"parameter": "Idempotency-Key", "detail": detail}]
    raise Refusal(Kind.INVALID_IDEMPOTENCY_KEY, detail, errors)

"""Cursors that tell nothing: that of a filtered page may name the task at which the look ended, which may be anybody's.

No signature: who changes a cursor only starts his own listing elsewhere.
"""

import base64
import hashlib
import secrets

_NONCE = 16


def veiled(text: str, key: str) -> str:
    """Return a text that only who has the key can read; another one each time."""
    nonce = secrets.token_bytes(_NONCE)
    return base64.urlsafe_b64encode(nonce + _mixed(text.encode(), key, nonce)).decode()


def unveiled(text: str, key: str) -> str:
    """Return what was veiled; for what never was, some other text."""
    try:
        raw = base64.urlsafe_b64decode(text.encode())
    except ValueError:
        return ""
    return _mixed(raw[_NONCE:], key, raw[:_NONCE]).decode("utf-8", "replace")


def _mixed(data: bytes, key: str, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(key.encode() + nonce).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))
